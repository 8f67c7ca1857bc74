"""Tasks: problems to ask and judges for the answers."""
