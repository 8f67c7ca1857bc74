"""A policy's tokenizer without the policy: what spells continuations that others sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from apportion.errors import InputError
from apportion.policy.causal import located
from apportion.policy.text import Speller, encode


class Tokenizer:
    """Spells token ids, and gives those of a prompt. encoder: the tokenizer as transformers has it."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self._speller = Speller(encoder)

    @classmethod
    def load(cls, source: str) -> Tokenizer:
        """Load that of `embedded`, a folder in Hugging Face format, or a GGUF file.

        Raises InputError when there is none.
        """
        folder, options = located(source, "its tokenizer is needed here, so ")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise InputError("a tokenizer needs transformers: pip install 'apportion[train]'") from error
        try:
            return cls(AutoTokenizer.from_pretrained(folder, **options))
        except Exception as error:  # the reader raises whatever damaged or foreign files lead it to
            reason = str(error).strip().split("\n")[0]
            raise InputError(f"model {source}: its tokenizer could not be loaded: {reason}") from error

    def __len__(self) -> int:
        """How many tokens there are; ids count from 0."""
        return len(self.encoder)

    def spell(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Text and character offsets of token ids."""
        return self._speller.spell(ids)

    def encode(self, prompt: str) -> list[int]:
        """The token ids of a prompt, through the chat template where there is one."""
        return encode(self.encoder, prompt)
