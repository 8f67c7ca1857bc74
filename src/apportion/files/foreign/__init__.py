"""Files of others, one module a format. Each has `read`: a `Source` in, rollouts out."""
