"""Between text and token ids: prompts are tokenized, and what was sampled gets character offsets without that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"
LONGEST = 4
"""Bytes, and so tokens, of a character at most; what is no character by then never becomes one."""


def encode(tokenizer: Any, prompt: str) -> list[int]:
    """The token ids of a prompt, through the tokenizer's chat template where it has one."""
    if getattr(tokenizer, "chat_template", None):
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])
    return list(tokenizer(prompt)["input_ids"])


def encode_answer(tokenizer: Any, answer: str) -> list[int]:
    """The token ids of an answer as a policy would write it: nothing before it, no end of text."""
    return list(tokenizer(answer, add_special_tokens=False)["input_ids"])


class Speller:
    """Spell token ids as text with the (start, end) characters of every token.

    Special tokens spell nothing. A character whose bytes are spread over several tokens belongs to the last of them;
    the others are empty there.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def spell(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        text = self._decode(ids)
        pieces = [self._piece(token) for token in ids]
        if "".join(pieces) != text:  # tokens that do not stand alone: bytes of one character, a leading space
            pieces = self._pieces_in_context(ids)
        offsets, end = [], 0
        for piece in pieces:
            offsets.append((end, end + len(piece)))
            end += len(piece)
        return "".join(pieces), offsets

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = self._decode([token])
        return self._pieces[token]

    def _pieces_in_context(self, ids: Sequence[int]) -> list[str]:
        """Each token as what it adds to the text of the few tokens before it."""
        pieces: list[str] = []
        start = pending = 0  # the window begins at `start`; tokens from `pending` on are not spelled yet
        for now in range(len(ids)):
            before = self._decode(ids[start:pending])
            grown = self._decode(ids[start : now + 1])
            whole = now + 1 == len(ids) or now + 1 - pending >= LONGEST
            unfinished = grown.endswith(REPLACEMENT) and not whole
            pieces.append("" if unfinished else grown[len(before) :])
            if not unfinished:
                start, pending = pending, now + 1
        return pieces

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
