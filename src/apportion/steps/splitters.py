"""Splitters: where an answer is cut into steps. Each takes rollouts and gives a `StepMap`.

How fine the credit is, is the choice of a splitter and of nothing else. All but `whole` start a new step with every
turn, so that no step holds two decisions with the world's answer between them.

| splitter     | a step is                                            | looks at        |
|--------------|------------------------------------------------------|-----------------|
| whole        | the whole answer                                     |                 |
| turns        | one turn of the policy, such as a tool call          | turns           |
| chunks       | a fixed number of tokens                             | turns           |
| lines        | a line, with the blank lines below it                | text            |
| sentences    | a sentence, or a line                                | text            |
| after        | what ends in a match of a regular expression         | text            |
| marker       | what ends in a certain token id                      | token ids       |
| key_tokens   | a key token, or a run of tokens between key tokens   | text, token ids |
| every_token  | a token                                              |                 |

`at_most` (in `steps.sizes`) cuts the long steps of any of them into pieces.
"""

from __future__ import annotations

from apportion.steps.grid import number_steps
from apportion.steps.text import Keys, after, key_steps, key_tokens, lines, sentences
from apportion.steps.tokens import Splitter, chunks, every_token, marker, turns, whole

__all__ = [
    "BY_NAME",
    "Keys",
    "Splitter",
    "after",
    "chunks",
    "every_token",
    "key_steps",
    "key_tokens",
    "lines",
    "marker",
    "number_steps",
    "sentences",
    "turns",
    "whole",
]

BY_NAME: dict[str, Splitter] = {
    "whole": whole,
    "every_token": every_token,
    "lines": lines,
    "sentences": sentences,
    "turns": turns,
}
"""Those that need nothing more said; `after`, `chunks`, `key_tokens` and `marker` make a splitter from an argument."""
