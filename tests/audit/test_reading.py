"""Likelihoods of references with every token read once are those of reading everything anew."""

from __future__ import annotations

import pytest

from apportion.audit.reading import log_likelihoods
from apportion.policy.causal import CausalPolicy


def test_they_are_those_of_one_batch_whatever_the_prefixes_share() -> None:
    policy = CausalPolicy.load("embedded")
    tokens = policy.encode("47A+5B-3~?") + policy.encode_answer("Ab47+5=52\nBb52-3=49\n49")
    other = policy.encode("51A-2B-3~?")
    asked = [(tokens[:end], lead, (17, 22)) for end, lead in ((6, ()), (11, (4,)), (11, ()), (20, (4, 8)), (7, ()))]
    asked += [(other, (), (17,)), (tokens[:1], (), (17, 22))]
    expected = [policy.log_likelihood([([*prefix, *lead], reference)])[0] for prefix, lead, reference in asked]
    assert log_likelihoods(policy, asked) == pytest.approx(expected, rel=1e-3, abs=1e-3)
