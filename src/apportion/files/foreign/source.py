"""What a reader of somebody else's files starts from, and names for groups that came without one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from apportion.files.storage import Row

TOOL_RESULT = "<tool_response>"
"""How chat templates such as Qwen's begin what a tool said."""


@dataclass(frozen=True)
class Source:
    """The rows of a file, each with its place, and the ids that its words have so far."""

    file: str
    rows: Sequence[tuple[str, Row]]
    words: dict[str, int] = field(default_factory=dict)

    def warn(self, said: str) -> None:
        warnings.warn(f"{self.file}: {said}", stacklevel=3)

    def warn_of_tools(self, name: str) -> None:
        """Text of a whole answer does not say what was sampled; warn where tool results can be seen in it."""
        holding = sum(isinstance(row[name], str) and TOOL_RESULT in row[name] for _, row in self.rows)
        if holding:
            self.warn(
                f"the {name} of {holding} of {len(self.rows)} rows holds tool results ({TOOL_RESULT}); it does not say "
                "what was sampled, so all of it counts as sampled, tool results too"
            )


@dataclass
class Groups:
    """Groups of rows with equal prompts, numbered as they first appear.

    >>> groups = Groups()
    >>> groups.of("2 + 2?"), groups.of("3 + 3?"), groups.of("2 + 2?"), groups.of("2 + 2?", "step 7, ")
    ('prompt 0', 'prompt 1', 'prompt 0', 'step 7, prompt 0')
    """

    found: dict[str, dict[str, int]] = field(default_factory=dict)

    def of(self, prompt: Any, when: str = "") -> str:
        """when: rows of another time are another group, whatever their prompt."""
        numbers = self.found.setdefault(when, {})
        return f"{when}prompt {numbers.setdefault(json.dumps(prompt, sort_keys=True, default=repr), len(numbers))}"
