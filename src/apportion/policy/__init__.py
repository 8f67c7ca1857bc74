"""Policies: language models that sample answers and give the log-probabilities of tokens."""
