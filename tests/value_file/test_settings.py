"""Names and numbers of the command line, and what they stand for."""

from __future__ import annotations

from typing import Any

import pytest

from apportion.errors import InputError
from apportion.value_file import Settings
from apportion.values import rules
from apportion.values.sample_tree import Estimate

NAN = float("nan")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param({"samples": 2, "error": 0.1}, "--samples .* --error .* give one of them", id="two rules"),
        pytest.param({"samples": 0}, "at least 1 sample", id="no sample"),
        pytest.param({"error": 0.0}, "0.0 was asked for", id="no error"),
        pytest.param({"error": 0.5}, "0.5 was asked for", id="any error"),
        pytest.param(
            {"server": "u", "server_model": "m", "engine": "ray"}, "--server and --engine ray", id="two engines"
        ),
        pytest.param({"server": "u"}, "--server and --server-model go together", id="server without model"),
        pytest.param({"server_model": "m"}, "--server and --server-model go together", id="model without server"),
        pytest.param({"engine": "rya"}, "no engine 'rya'; did you mean 'ray'", id="unknown engine"),
        pytest.param({"engine": "ray:many"}, "no engine 'ray:many'.*ray:ACTORS", id="actors without number"),
        pytest.param({"task": "chain", "checker": "exact"}, "--task .* give one of them", id="two judges"),
        pytest.param({"at_once": 0}, "--at-once is 0", id="none at once"),
        pytest.param({"budget": 0}, "--budget is 0", id="no budget"),
        pytest.param({"max_new_tokens": 0}, "--max-new-tokens is 0", id="no tokens"),
        pytest.param({"temperature": 0.0}, "--temperature is 0.0", id="temperature"),
        pytest.param({"top_p": 0.0}, "--top-p 0.0", id="no mass"),
        pytest.param({"top_p": 1.1}, "--top-p 1.1", id="more than all mass"),
        pytest.param({"boundaries": "first"}, "no boundaries 'first'.*first:M", id="unknown boundaries"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Settings(policy="embedded", **settings)


def test_samples_and_error_are_rules() -> None:
    known = Estimate(0.5, 0.19, 2)
    assert Settings(policy="embedded").rule()(known, 2) == 4
    assert Settings(policy="embedded", samples=9).rule()(known, 2) == 7
    for error in (0.2, 0.1):
        rule = Settings(policy="embedded", error=error).rule()
        assert rule(known, 2) == rules.adaptive(error)(known, 2) == int(error != 0.2)


@pytest.mark.parametrize("asked", [{}, {"error": 0.05}, {"error": 0.49}, {"samples": 4}])
def test_the_most_samples_are_the_most_that_the_rule_gives(asked: dict[str, Any]) -> None:
    settings = Settings(policy="embedded", **asked)
    rule, most = settings.rule(), settings.most_samples()
    assert [rule(Estimate(0.5, 0.495, drawn), drawn) > 0 for drawn in (most - 1, most)] == [
        most > 1,
        False,
    ] or most == 1
    assert rule(Estimate(NAN, NAN, 0), 0) > 0


def test_actors_are_counted_or_left_to_ray() -> None:
    asked = ("process", "ray", "ray:3")
    assert [Settings(policy="embedded", engine=engine).actors() for engine in asked] == [None, None, 3]
