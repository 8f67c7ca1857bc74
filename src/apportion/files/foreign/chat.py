"""Chat transcripts in the messages of OpenAI's API, tool calls included, each with its score.

Known by their messages: `messages`, `traj` (tau-bench results), or `prompt` and `completion`. A row's score is its
`reward`, `score` or `outcome`; its group `group`, `task_id`, `example_id` or `prompt_id`, and otherwise rows that begin
with the same messages are a group.
"""

from __future__ import annotations

from typing import Any

from apportion.errors import InputError
from apportion.files.fields import name_of_group, score
from apportion.files.foreign.source import Groups, Source
from apportion.files.storage import Row
from apportion.files.words import MESSAGES, Tokens
from apportion.rollouts import Rollout

TRANSCRIPTS = (("messages",), ("traj",), ("prompt", "completion"))
SCORES = ("reward", "score", "outcome")
GROUPS = ("group", "task_id", "example_id", "prompt_id")


def read(source: Source) -> list[Rollout]:
    """One rollout a transcript, one turn a message: what the assistant wrote and called was sampled.

    Of `prompt` and `completion`, the prompt was given, whoever speaks in it.
    """
    groups = Groups()
    return [_rollout(row, place, Tokens(source.words), groups) for place, row in source.rows]


def _rollout(row: Row, place: str, tokens: Tokens, groups: Groups) -> Rollout:
    names = next((names for names in TRANSCRIPTS if set(names) <= row.keys()), ())
    if not names:
        raise InputError(
            f"{place}: no messages; expected the field messages, or traj, or prompt and completion; "
            f"the row has {', '.join(row) or 'no field'}"
        )
    for name in names:
        tokens.add(row[name], (MESSAGES,), name, place, sampled=name != "prompt")
    given = _first(row, SCORES, place)
    return tokens.rollout(
        group=_group(row, names, place, groups),
        outcome=score(row[given], given, place),
        id=_id(row),
    )


def _first(row: Row, names: tuple[str, ...], place: str) -> str:
    for name in names:
        if name in row:
            return name
    raise InputError(
        f"{place}: no score; expected one of the fields {', '.join(names)} (null = not scored); "
        f"the row has {', '.join(row)}"
    )


def _group(row: Row, names: tuple[str, ...], place: str, groups: Groups) -> str | int:
    for name in GROUPS:
        if row.get(name) is not None:
            return name_of_group(row[name], name, place)
    return groups.of(row["prompt"] if "prompt" in names else _before_the_assistant(row[names[0]]))


def _before_the_assistant(messages: list[Any]) -> list[Any]:
    roles = [message["role"] for message in messages]
    return messages[: roles.index("assistant") if "assistant" in roles else len(roles)]


def _id(row: Row) -> str:
    """Its `id`, or task and trial."""
    if row.get("id") is not None:
        return str(row["id"])
    named = [str(row[name]) for name in ("task_id", "trial") if row.get(name) is not None]
    return "/".join(named) if len(named) == 2 else ""
