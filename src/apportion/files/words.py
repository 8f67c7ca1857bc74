"""Text and chat messages as tokens.

Text that came without token ids is cut into words, so that credit has something to sit on. Such words get negative
ids: they are never mistaken for the ids of a tokenizer.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.errors import InputError
from apportion.files.fields import is_token
from apportion.rollouts import Rollout

TEXT, IDS, MESSAGES = "text", "a list of token ids", "a list of chat messages"

_WORD = re.compile(r"[^\S\n]*(?:\w+|[^\w\s]|\n)|[^\S\n]+")


@dataclass
class Tokens:
    """The tokens of a rollout as they are put together; `text` is None once ids without text came in.

    `words` is shared by the rollouts of a file: the same word has the same id in all of them.
    """

    words: dict[str, int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    text: str | None = ""
    turn: int = field(init=False)

    def add(self, part: Any, kinds: Sequence[str], name: str, place: str, *, sampled: bool) -> None:
        """Add a part as a turn of its own, or as one turn a message; of messages only the assistant's were sampled.

        kinds: which of TEXT, IDS and MESSAGES the field `name` may hold.
        """
        self._new_turn()
        if part == []:
            return
        kind = _kind(part)
        if kind not in kinds:
            expected = f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]
            raise InputError(f"{place}: {name} must be {expected}; {_came(part, name)}")
        if kind == TEXT:
            self._add_text(part, sampled)
        elif kind == IDS:
            self.text = None
            self._extend(part, sampled)
        else:
            for n, message in enumerate(part):
                self._new_turn()
                text = _message_text(message, f"{place}: {name}[{n}]")
                self._add_text(text, sampled and message["role"] == "assistant")
                self._add_text("\n", False)

    def rollout(self, *, group: str | int, outcome: float | None, id: str = "") -> Rollout:
        """The rollout of these tokens, where nothing else is known of it."""
        return Rollout(
            tokens=self.ids,
            action_mask=self.sampled,
            group=group,
            outcome=outcome,
            id=id,
            text=self.text,
            turns=self.turns,
            offsets=None if self.text is None else self.offsets,
        )

    def _new_turn(self) -> None:
        self.turn = self.turns[-1] + 1 if self.turns else 0

    def _add_text(self, text: str, sampled: bool) -> None:
        start = len(self.text or "")
        pieces = list(_WORD.finditer(text))
        self.offsets += [(start + piece.start(), start + piece.end()) for piece in pieces]
        self._extend([self.words.setdefault(p.group(), -1 - len(self.words)) for p in pieces], sampled)
        if self.text is not None:
            self.text += text

    def _extend(self, ids: Sequence[int], sampled: bool) -> None:
        self.ids += ids
        self.sampled += [sampled] * len(ids)
        self.turns += [self.turn] * len(ids)


def _kind(part: Any) -> str | None:
    if isinstance(part, str):
        return TEXT
    if isinstance(part, list) and all(is_token(token) for token in part):
        return IDS
    if isinstance(part, list) and all(isinstance(message, dict) for message in part):
        return MESSAGES
    return None


def _came(part: Any, name: str) -> str:
    """The first entry of a list that is no token id or no message as the one before it, or what came instead."""
    kind = _kind(part)
    if kind is not None or not isinstance(part, list):
        return f"got {kind or type(part).__name__}"
    first = _kind(part[:1])
    odd = next(n for n, entry in enumerate(part) if first is None or _kind([entry]) != first)
    return f"{name}[{odd}] is {reprlib.repr(part[odd])}"


def _message_text(message: dict[str, Any], place: str) -> str:
    """What a message says and calls, a line each: thought, text, refusal, calls."""
    if "role" not in message:
        raise InputError(f"{place}: a chat message has no role; it has {', '.join(message) or 'no field'}")
    text = message.get("content") or ""
    if isinstance(text, list):
        text = "".join(part if isinstance(part, str) else _part_text(part, place) for part in text)
    calls = message.get("tool_calls") or []
    if not isinstance(text, str) or not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InputError(f"{place}: a chat message must have text as its content and a list of objects as tool_calls")
    functions = [call.get("function") or call for call in calls]
    if message.get("function_call"):  # as calls were written before `tool_calls`
        functions.append(message["function_call"])
    said = [str(message.get("reasoning_content") or ""), text, str(message.get("refusal") or "")]
    return "\n".join(part for part in [*said, *(_call_text(function, place) for function in functions)] if part)


def _part_text(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise InputError(
            f"{place}: a part of a chat message's content is {reprlib.repr(part)}; expected text or an object"
        )
    return str(part.get("text") or part.get("refusal") or "")


def _call_text(function: Any, place: str) -> str:
    if not isinstance(function, dict) or "name" not in function:
        raise InputError(f"{place}: a tool call has no function name")
    arguments = function.get("arguments") or ""
    return f"{function['name']}({arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)})"
