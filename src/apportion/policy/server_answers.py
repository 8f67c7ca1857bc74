"""What a server's answer holds: continuations as token ids, in one of the ways that servers give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from apportion.errors import InputError
from apportion.policy.server_connection import UnusableError


@runtime_checkable
class Encoder(Protocol):
    """Turns text into token ids, as the tokenizers of transformers do."""

    def encode(self, text: str, *, add_special_tokens: bool) -> Sequence[int]: ...


@dataclass(frozen=True)
class Way:
    """A way to have token ids back.

    settings: what a request must hold for it. find: what stands for the ids in a choice, None where nothing does.
    exact: they are those that the model drew.
    """

    settings: Mapping[str, Any]
    find: Callable[[Mapping[str, Any]], Any]
    exact: bool = True

    def read(self, choice: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The ids of a choice, None where there are none; raises TypeError or ValueError for what cannot be ids."""
        ids = self.find(choice)
        if ids is None:
            return None
        if not all(type(token) is int and token >= 0 for token in ids):
            raise ValueError(f"no token ids: {ids}")
        return tuple(ids)


def _given(choice: Mapping[str, Any]) -> Any:
    return choice.get("token_ids")


def _beside_logprobs(choice: Mapping[str, Any]) -> Any:
    logprobs = choice.get("logprobs") or {}
    entries, tokens = logprobs.get("content") or [], logprobs.get("tokens") or []
    if entries and all("id" in entry for entry in entries):
        return [entry["id"] for entry in entries]
    if tokens and all(token.startswith("token_id:") for token in tokens):
        return [int(token.removeprefix("token_id:")) for token in tokens]
    return None


EXACT_WAYS = (
    Way({"return_token_ids": True}, _given),  # vLLM, SGLang
    Way({"logprobs": 1, "return_tokens_as_token_ids": True}, _beside_logprobs),  # llama.cpp, vLLM of before
)


def encoded(tokenizer: Encoder) -> Way:
    """Encode the text, where the server gives nothing else."""
    return Way({}, lambda choice: tokenizer.encode(choice["text"], add_special_tokens=False), exact=False)


class Continuation(NamedTuple):
    tokens: tuple[int, ...]
    ended: bool


@dataclass(frozen=True)
class Reader:
    """Reads the answer to a prompt of so many tokens, of which `count` continuations of at most `limit` were asked."""

    way: Way
    prompt: int
    count: int
    limit: int

    def __call__(self, answer: Any) -> list[Continuation] | None:
        """The continuations; None where their token ids are not there.

        Raises UnusableError for an answer that is none, InputError for one that is to something else than was asked.
        """
        try:
            choices = sorted(answer["choices"], key=lambda choice: choice["index"])
            usage = dict(answer.get("usage") or {})
            ids = [self.way.read(choice) for choice in choices]
            reasons = [choice["finish_reason"] for choice in choices]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnusableError(f"no completions: {json.dumps(answer)[:200]}") from error
        if any(reason not in ("stop", "length") for reason in reasons):
            raise UnusableError(f"completions that ended with {reasons}")
        if len(choices) != self.count:
            raise InputError(f"{self.count} continuations were asked for and {len(choices)} came")
        if None in ids:
            return None
        found = [
            Continuation(tokens, reason == "stop")
            for tokens, reason in zip(ids, reasons, strict=True)
            if tokens is not None
        ]
        self._refuse_other_prompt(usage)
        if self.way.exact:
            self._refuse_other_lengths(found, usage)
        return found

    def _refuse_other_prompt(self, usage: Mapping[str, Any]) -> None:
        if usage.get("prompt_tokens", self.prompt) != self.prompt:
            raise InputError(
                f"a prompt of {self.prompt} tokens was sent and the server counted {usage['prompt_tokens']}, so what "
                "came continues something else; a server that adds or drops tokens cannot be used"
            )

    def _refuse_other_lengths(self, found: Sequence[Continuation], usage: Mapping[str, Any]) -> None:
        """Raise InputError where tokens are missing or too many; a server may leave the end-of-text token out."""
        for tokens, ended in found:
            counted = usage.get("completion_tokens", len(tokens)) if len(found) == 1 else len(tokens)
            if len(tokens) > self.limit or not len(tokens) <= counted <= len(tokens) + ended:
                raise InputError(
                    f"{self.limit} tokens at most were asked for; the server counted {counted} and gave "
                    f"{len(tokens)} ids"
                )
            if not ended and len(tokens) < self.limit:
                raise InputError(
                    f"a continuation was cut off at {len(tokens)} tokens of {self.limit}: the server's context is too "
                    f"short for them behind a prompt of {self.prompt}; lower max_new_tokens or give it a longer one"
                )
