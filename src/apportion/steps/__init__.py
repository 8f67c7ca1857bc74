"""Steps: where an answer is cut, and the map between tokens and the step grid."""
