"""Rollout dumps of verl: what `trainer.rollout_data_dir` and `trainer.validation_data_dir` make it write.

Source: verl 0.9.1, `_write_generations` in `trainer/ppo/ray_trainer.py` and `trainer/ppo/v1/trainer_base.py`. A row has
`input`, `output`, `gts`, `score`, `step` and what the reward function added. Under trainer v1 its `uid` is
`PROMPT_SESSION_OUTPUT`: a session of an agent may have several outputs, each with what it was given, and all with the
session's score.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from apportion.errors import InputError
from apportion.files.fields import needed, score
from apportion.files.foreign.source import Groups, Source
from apportion.files.storage import Row
from apportion.files.words import TEXT, Tokens
from apportion.rollouts import Rollout

FIELDS = ("input", "output", "score")
SESSION = re.compile(r"(?P<prompt>.*)_(?P<session>\d{1,18})_(?P<output>\d{1,18})", re.DOTALL)


@dataclass(frozen=True)
class _Output:
    """A row with the group and session that its `uid` names (None = it names none), and its place in the session."""

    place: str
    row: Row
    group: str | None
    session: str | None
    number: int

    @property
    def score(self) -> float | None:
        return score(needed(self.row, "score", self.place), "score", self.place)


def read(source: Source) -> list[Rollout]:
    """One rollout a row; under trainer v1 one a session, its outputs in order with what was given between them.

    The score of a session is that of its last output, as verl has it for GRPO.
    Warns of scores that are not taken for that reason, and of outputs that hold tool results.
    """
    sessions: dict[str | int, dict[int, _Output]] = {}
    for n, (place, row) in enumerate(source.rows):
        output = _output(row, place)
        session = sessions.setdefault(n if output.session is None else output.session, {})
        if output.number in session:
            raise InputError(f"{place}: uid {row['uid']} came before, {session[output.number].place}")
        session[output.number] = output
    ordered = [[session[number] for number in sorted(session)] for session in sessions.values()]
    groups = Groups()
    rollouts = [_rollout(session, source, groups) for session in ordered]
    _warn_of_scores(source, ordered)
    source.warn_of_tools("output")
    return rollouts


def _output(row: Row, place: str) -> _Output:
    uid = row.get("uid")
    if uid is None:
        return _Output(place, row, None, None, 0)
    if not isinstance(uid, str):
        raise InputError(f"{place}: uid is {uid!r}; expected text")
    found = SESSION.fullmatch(uid)
    if found is None:
        return _Output(place, row, uid, None, 0)
    return _Output(place, row, found["prompt"], f"{found['prompt']}_{found['session']}", int(found["output"]))


def _rollout(session: list[_Output], source: Source, groups: Groups) -> Rollout:
    tokens = Tokens(source.words)
    for output in session:
        for name in ("input", "output"):
            part = needed(output.row, name, output.place)
            tokens.add(part, (TEXT,), name, output.place, sampled=name == "output")
    first = session[0]
    return tokens.rollout(
        group=first.group or groups.of(first.row["input"], f"step {first.row.get('step', '?')}, "),
        outcome=session[-1].score,
        id=first.session or str(first.row.get("request_id", "")),
    )


def _warn_of_scores(source: Source, sessions: list[list[_Output]]) -> None:
    mixed = sum(len({output.score for output in session}) > 1 for session in sessions)
    if mixed:
        source.warn(f"{mixed} of {len(sessions)} sessions have outputs of different scores; the last one's is taken")
