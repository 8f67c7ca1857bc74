"""What a reward function may return, and how verl carries it."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path

import pytest
import torch

from apportion import InputError, Rollout, collate
from apportion.adapters.verl.rewards import carried, lines_of, manager_class
from apportion.steps.splitters import lines


@pytest.mark.parametrize(
    ("returned", "total", "outcome", "steps"),
    [
        (0.5, 0.5, 0.5, ""),
        (True, 1.0, 1.0, ""),
        ([0.25, 0.5], 0.75, 0.0, "[0.25, 0.5]"),
        (torch.tensor([0.25, 0.5]), 0.75, 0.0, "[0.25, 0.5]"),
        (torch.tensor(0.5), 0.5, 0.5, ""),
        ({"score": 1.0, "step_rewards": [0.25, -0.5]}, 0.75, 1.0, "[0.25, -0.5]"),
        ({"score": [0.5]}, 0.5, 0.0, "[0.5]"),
        ({"score": []}, 0.0, 0.0, "[]"),
    ],
    ids=["number", "truth", "list", "tensor", "number in a tensor", "dict", "list in a dict", "empty list"],
)
def test_verl_carries_the_sum_and_beside_it_the_parts(returned, total, outcome, steps):
    came = carried(returned)
    info = came["reward_extra_info"]
    assert came["reward_score"] == info["score"] == total
    assert (info["apportion_outcome"], info["apportion_step_rewards"]) == (outcome, steps)
    assert info["apportion_step_values"] == ""


def test_step_values_come_along_and_so_does_all_else_that_was_said():
    info = carried({"score": 1.0, "step_values": [0.5, 0.75], "format": 0.25})["reward_extra_info"]
    assert json.loads(info["apportion_step_values"]) == [0.5, 0.75]
    assert info["format"] == 0.25


def test_lists_travel_as_text_since_verl_averages_what_is_none():
    info = carried({"score": [0.5, 0.5], "step_values": [0.5, 0.5]})["reward_extra_info"]
    assert not [name for name, entry in info.items() if isinstance(entry, list)]


def test_accuracy_is_the_total_as_verl_has_it_unless_the_function_speaks_for_itself():
    assert carried([0.25, 0.5])["reward_extra_info"]["acc"] == 0.75
    assert carried({"score": 0.5, "acc": 1.0})["reward_extra_info"]["acc"] == 1.0
    assert "acc" not in carried({"score": 0.5})["reward_extra_info"]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "score None; verl needs a finite number for every answer"),
        (float("nan"), "score nan"),
        ("1.0", "score '1.0'"),
        ([0.5, None], r"step_rewards\[1\] None"),
        ({"reward": 1.0}, "a dict without score; it has reward"),
        ({"score": [0.5], "step_rewards": [0.5]}, "a list as score and step_rewards beside it"),
        ({"score": 0.5, "step_values": 0.5}, "step_values must be a list of numbers"),
    ],
    ids=["none", "nan", "text", "none in a list", "no score", "two lists", "one value"],
)
def test_what_is_no_reward_is_refused(returned, said):
    with pytest.raises(InputError, match=said):
        carried(returned)


class Naive:
    """As verl's naive manager answers: a dict whole, anything else as score and as `acc`."""

    def __init__(self, returned):
        self.returned = returned

    async def run_single(self, data):
        if isinstance(self.returned, dict):
            return {"reward_score": self.returned["score"], "reward_extra_info": dict(self.returned)}
        return {"reward_score": self.returned, "reward_extra_info": {"acc": self.returned}}


@pytest.mark.parametrize("returned", [0.5, [0.25, 0.5], {"score": 1.0, "step_rewards": [0.5], "step_values": [0.5]}])
def test_the_manager_carries_what_the_function_returned(returned):
    assert asyncio.run(manager_class(Naive)(returned).run_single(None)) == carried(returned)


@pytest.mark.parametrize("text", ["", "a", "a\n", "a\n\nb", "\n\na\n b\n", "a\n\n"], ids=repr)
def test_the_lines_of_a_text_are_the_steps_that_the_splitter_cuts(text):
    found = lines_of(text)
    assert "".join(found) == text
    if text:
        spans = [(n, n + 1) for n in range(len(text))]
        rollout = Rollout([0] * len(text), [True] * len(text), "p", text=text, offsets=spans)
        assert len(found) == int(lines(collate([rollout])).counts[0])


def test_the_reward_function_of_the_example_pays_by_line():
    score = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "verl_reward.py"))["compute_score"]
    found = score("There are 3 + 4 = 7.\n7 - 2 = 4, so\n1,000 * 2 = 2000\nthe answer: 5", "5")
    assert found == {"score": 1.0, "step_rewards": [0.1, -0.1, 0.1, 0.0]}
    assert score("8 / 0 = 1\n2", "5") == {"score": 0.0, "step_rewards": [-0.1, 0.0]}
    assert carried(score("", "5"))["reward_score"] == 0.0
