"""verl's reward manager for rewards by step or by token: `reward.reward_manager.name=apportion`.

The reward function is verl's own kind (`reward.custom_reward_function.path`), called with `data_source`,
`solution_str`, `ground_truth` and `extra_info`; it may return

- a number: the score of the whole answer;
- a list of numbers: a reward for every step, or for every sampled token;
- a dict with `score` (a number or such a list), and perhaps `step_rewards` beside a `score` that is a number, and
  `step_values`: what was expected before each step. Whatever else it holds is verl's `reward_extra_info`.

verl carries one number an answer to its trainer: the sum. The parts travel beside it as text, and the trainer of
`apportion.adapters.verl.trainer` puts them where they belong; under verl's own trainer only the sum is seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from apportion.errors import InputError
from apportion.rollouts import Rollout, collate
from apportion.steps.splitters import lines


def carried(result: Any) -> dict[str, Any]:
    """What a reward function returned, as verl carries it.

    Raises InputError for anything that is no finite number, naming it.

    >>> carried([0.25, 0.5])["reward_score"]
    0.75
    """
    said = dict(result) if isinstance(result, Mapping) else {"score": result}
    if "score" not in said:
        raise InputError(f"the reward function returned a dict without score; it has {', '.join(map(str, said))}")
    score, steps, values = said.pop("score"), said.pop("step_rewards", None), said.pop("step_values", None)
    if _listed(score):
        if steps is not None:
            raise InputError("the reward function returned a list as score and step_rewards beside it; give one list")
        score, steps = 0.0, score
    outcome = _number(score, "score")
    rewards = None if steps is None else _numbers(steps, "step_rewards")
    total = math.fsum([outcome, *(rewards or ())])
    parts: dict[str, Any] = {} if isinstance(result, Mapping) else {"acc": total}
    parts |= {
        "apportion_outcome": outcome,
        "apportion_step_rewards": "" if rewards is None else json.dumps(rewards),
        "apportion_step_values": "" if values is None else json.dumps(_numbers(values, "step_values")),
    }
    return {"reward_score": total, "reward_extra_info": parts | {"score": total} | said}


def lines_of(text: str) -> list[str]:
    """The lines of an answer as the splitter `lines` cuts them, to give one reward for each.

    Tokens are cut with them, so a token that reaches over the end of a line makes two lines one step.

    >>> lines_of("3+4=7\\n\\n7-2=5\\n")
    ['3+4=7\\n\\n', '7-2=5\\n']
    """
    if not text:
        return []
    spans = [(n, n + 1) for n in range(len(text))]
    letters = Rollout([0] * len(text), [True] * len(text), 0, text=text, offsets=spans)
    step_of = lines(collate([letters])).step_of[0]
    starts = [0, *((step_of.diff() != 0).nonzero().flatten() + 1).tolist(), len(text)]
    return [text[a:b] for a, b in pairwise(starts)]


def manager_class(base: type[Any]) -> type[Any]:
    """verl's `NaiveRewardManager` with a reward function that may return rewards by step."""

    class ApportionRewardManager(base):  # type: ignore[misc]
        async def run_single(self, data: Any) -> dict[str, Any]:
            """Score the last output of a session."""
            came = await super().run_single(data)
            return carried(came["reward_score"] if not _whole(came) else came["reward_extra_info"])

    return ApportionRewardManager


def _whole(came: Mapping[str, Any]) -> bool:
    """Did the function return a dict? verl copies all of it."""
    return "score" in came["reward_extra_info"]


def _listed(entry: Any) -> bool:
    return isinstance(entry.tolist() if hasattr(entry, "tolist") else entry, list | tuple)


def _numbers(entries: Any, name: str) -> list[float]:
    if not _listed(entries):
        raise InputError(f"{name} must be a list of numbers, one a step or one a sampled token; got {entries!r}")
    return [_number(entry, f"{name}[{n}]") for n, entry in enumerate(entries)]


def _number(entry: Any, name: str) -> float:
    try:
        number = float(entry)
    except (TypeError, ValueError):
        number = math.nan
    if entry is None or isinstance(entry, str | bytes) or not math.isfinite(number):
        raise InputError(f"the reward function returned {name} {entry!r}; verl needs a finite number for every answer")
    return number
