"""The answers of one file as the page holds them: an index of all, and the bodies group by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.files import Row
from apportion.view.answers import COLOURS, Answer, limits, strip_of

TOKENS = 1_000_000
"""Tokens whose text and credit a page holds; answers beyond that are in its list alone."""


@dataclass(frozen=True)
class Shelf:
    """Answers that were sampled together: those of a file, or of a training step. name: the step, None for a file."""

    name: int | None
    answers: Sequence[Answer]

    @property
    def groups(self) -> dict[str, list[Answer]]:
        found: dict[str, list[Answer]] = {}
        for answer in self.answers:
            found.setdefault(answer.group, []).append(answer)
        return found


@dataclass
class Shown:
    """What the page is given: `index` is read at once, each of `bodies` when its group is looked at."""

    limits: dict[str, float]
    index: list[Row] = field(default_factory=list)
    bodies: dict[str, Row] = field(default_factory=dict)


def shown(shelves: Sequence[Shelf]) -> Shown:
    """Put the shelves into the page, each with its share of the room for tokens; groups with most credit go first."""
    found = Shown(limits([answer for shelf in shelves for answer in shelf.answers]))
    for s, shelf in enumerate(shelves):
        groups = shelf.groups
        chosen = _chosen(list(groups.values()), TOKENS // len(shelves))
        strongest = max(range(len(groups)), key=lambda g: _mean_size(list(groups.values())[g]), default=0)
        entries: list[Row] = []
        for g, (answers, room) in enumerate(zip(groups.values(), chosen, strict=True)):
            shared = _shared(answers)
            if room:
                found.bodies[f"{s}-{g}"] = _body(answers[:room], shared)
            entries += [answer.entry(g, _strip(answer, shared, found.limits)) for answer in answers]
        found.index.append(
            {
                "name": shelf.name,
                "groups": [{"name": name, "held": room} for name, room in zip(groups, chosen, strict=True)],
                "strongest": strongest,
                "answers": entries,
            }
        )
    return found


def _chosen(groups: list[list[Answer]], room: int) -> list[int]:
    """How many answers of each group are held; the first of the group with most credit in any case."""
    held = [0] * len(groups)
    for g in sorted(range(len(groups)), key=lambda g: _mean_size(groups[g]), reverse=True):
        shared = _shared(groups[g])
        for answer in groups[g]:
            room -= len(answer.id) - shared
            if room < 0 and any(held):
                return held
            held[g] += 1
    return held


def _shared(answers: list[Answer]) -> int:
    """Tokens of the prompt, where all answers of the group have the same."""
    same = {(answer.prompt, tuple(answer.id[: answer.prompt])) for answer in answers}
    return answers[0].prompt if len(same) == 1 else 0


def _body(answers: list[Answer], shared: int) -> Row:
    first = answers[0]
    prompt = {"id": first.id[:shared], "text": None if first.text is None else first.text[:shared]}
    return {"prompt": prompt, "answers": [answer.body(shared) for answer in answers]}


def _strip(answer: Answer, shared: int, known: dict[str, float]) -> str | None:
    column: list[Any] | None = None
    for name in COLOURS:
        if name in known and (column := answer.colour(name)) is not None:
            return strip_of(column[max(shared, answer.prompt) :], known[name])
    return None


def _mean_size(answers: list[Answer]) -> float:
    return sum(answer.size for answer in answers) / len(answers)
