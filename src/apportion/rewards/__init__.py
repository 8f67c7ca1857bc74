"""Rewards: judges of answers and steps, and how their parts become one reward a step."""
