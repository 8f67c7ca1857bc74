"""Who judges the continuations of a file's prompts, and with which reference answers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InputError, did_you_mean
from apportion.files import read_rows
from apportion.files.fields import name_of_group
from apportion.rewards.checkers import checker, exact
from apportion.rollouts import Rollouts
from apportion.tasks.chain import Chain, write_answer
from apportion.tasks.problem import Problem
from apportion.tasks.prompts import ANSWER_FIELDS, Prompts
from apportion.value_file.settings import Settings
from apportion.value_file.tokenizer import Tokenizer

CHECKER = "math_equal"
NEEDED = "give --data with prompts and answers, the field `answer` in every row, or --task chain"

Problems = dict[Hashable, Problem]


@dataclass(frozen=True)
class Prompt:
    """What the answers of a group were sampled from."""

    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Judge:
    """Scores a whole answer of a group, prompt and all."""

    tokenizer: Tokenizer
    prompts: dict[Hashable, Prompt]
    problems: Problems
    score: Callable[[Problem, str], float | None]

    def __call__(self, group: Hashable, tokens: Sequence[int]) -> float | None:
        text, offsets = self.tokenizer.spell(tokens)
        start = len(self.prompts[group].tokens)
        return self.score(self.problems[group], text[offsets[start][0] :] if start < len(offsets) else "")


def judge_of(settings: Settings, source: Path, rollouts: Rollouts, tokenizer: Tokenizer) -> Judge:
    """The judge of all answers that have an outcome.

    Raises InputError where one has no reference answer, or a group has two prompts.
    """
    prompts = _prompts(rollouts, tokenizer)
    if settings.task is not None:
        if settings.task != "chain":
            raise InputError(f"there is no task {settings.task!r} that judges{did_you_mean(settings.task, ['chain'])}")
        return Judge(tokenizer, prompts, _of_chains(prompts), Chain().score)
    check = checker(settings.checker or CHECKER)
    problems = (
        _of_rows(source, rollouts, prompts) if settings.data is None else _of_data(settings.data, prompts, tokenizer)
    )
    return Judge(tokenizer, prompts, problems, lambda problem, response: check(response, problem.answer))


def warn_of_another_scale(judge: Judge, rollouts: Rollouts) -> None:
    """Values are expected outcomes: warn where the judge does not say of the file's answers what the file says."""
    votes = rollouts.votes.tolist()
    rows = [row for row, vote in zip(rollouts.rows(), votes, strict=True) if vote]
    scores = [judge(row.group, row.tokens) for row in rows]
    astray = [(row, score) for row, score in zip(rows, scores, strict=True) if score != row.outcome]
    if astray:
        row, score = astray[0]
        warnings.warn(
            f"the judge and the file differ on {len(astray)} of {len(rows)} answers (first: rollout {row.id}, {score} "
            f"and {row.outcome}); where that is another scale, credit from these values means nothing",
            stacklevel=2,
        )


def _prompts(rollouts: Rollouts, tokenizer: Tokenizer) -> dict[Hashable, Prompt]:
    """The prompt of every group with an outcome. A branch may count what it shares as prompt, so the shortest is it."""
    shortest: dict[Hashable, tuple[int, ...]] = {}
    for row, vote in zip(rollouts.rows(), rollouts.votes.tolist(), strict=True):
        if vote:
            prompt = tuple(row.tokens[: list(row.action_mask).index(True)])
            known = shortest.setdefault(row.group, prompt)
            shorter, longer = sorted((known, prompt), key=len)
            if longer[: len(shorter)] != shorter:
                raise InputError(f"rollout {row.id}: its prompt is not that of others of its group, {row.group!r}")
            shortest[row.group] = shorter
    return {group: Prompt(tokens, tokenizer.spell(tokens)[0]) for group, tokens in shortest.items()}


def _of_chains(prompts: dict[Hashable, Prompt]) -> Problems:
    """Chains hold their answer: it is the last line of a right one."""
    asked = {group: Problem(prompt.text, "") for group, prompt in prompts.items()}
    return {
        group: Problem(problem.prompt, write_answer(problem, random.Random(0)).split("\n")[-1])
        for group, problem in asked.items()
    }


def _of_rows(source: Path, rollouts: Rollouts, prompts: dict[Hashable, Prompt]) -> Problems:
    """Answers that the rows of rollouts bring themselves."""
    rows = list(read_rows(source))
    problems: Problems = {}
    votes, groups = rollouts.votes.tolist(), [rollouts.group_names[g] for g in rollouts.groups.tolist()]
    for n, (group, vote) in enumerate(zip(groups, votes, strict=True)):
        if vote:
            place, row = rows[n] if len(rows) == len(rollouts) else (f"{source}", {})
            name = next((name for name in ANSWER_FIELDS if row.get(name) is not None), None)
            if name is None:
                raise InputError(f"{place}: rollout {rollouts.ids[n]} has no reference answer; {NEEDED}")
            problem = Problem(prompts[group].text, str(row[name]).strip())
            if problems.setdefault(group, problem) != problem:
                raise InputError(f"{place}: {name} is {problem.answer!r}, and another in an earlier row of the group")
    return problems


def _of_data(path: Path, prompts: dict[Hashable, Prompt], tokenizer: Tokenizer) -> Problems:
    """Answers of a file of prompts, found by the group's name, the prompt's text, or its tokens."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*holds only one prompt")  # none is held out here
        loaded = Prompts.load(path, check=exact, held_out=0).training
    rows = list(zip(read_rows(path), loaded, strict=True))
    named = [(name_of_group(row["group"], "group", place), p) for (place, row), p in rows if "group" in row]
    by_name = _index(path, [*((problem.prompt, problem) for problem in loaded), *named])
    by_text = _index(path, [(problem.prompt.strip(), problem) for problem in loaded])
    problems: Problems = {}
    by_tokens: Problems = {}
    for group, prompt in prompts.items():
        found = by_name.get(group) or by_text.get(prompt.text.strip())
        if found is None:
            by_tokens = by_tokens or _index(path, [(tuple(tokenizer.encode(p.prompt)), p) for p in loaded])
            found = by_tokens.get(prompt.tokens)
        if found is None:
            raise InputError(
                f"{path}: no row has the prompt of group {group!r}, {prompt.text[:60]!r}, so its answers have no "
                f"reference answer; {NEEDED}"
            )
        problems[group] = found
    return problems


def _index(path: Path, pairs: Sequence[tuple[Hashable, Problem]]) -> Problems:
    index: Problems = {}
    for key, problem in pairs:
        if index.setdefault(key, problem).answer != problem.answer:
            raise InputError(
                f"{path}: {problem.prompt[:60]!r} has two answers, {index[key].answer!r} and {problem.answer!r}"
            )
    return index
