"""Values: what is expected from the state before each step. Every source has one shape, [N, K]."""
