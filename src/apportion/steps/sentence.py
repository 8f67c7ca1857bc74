"""Where a sentence ends inside a line: one regular expression, for Latin and for Chinese and Japanese marks.

It runs over text once and never backs up over what it has read, so a degenerate answer (ten thousand dots) takes as
long as any other.
"""

from __future__ import annotations

import re

_GAP = r"[^\S\n]++(?=\S)"  # blanks, and then something more in this line
_BRACKETS = r"[)\]}*_$\\]*+"
_QUOTE = r"[\"'”’»]"
_CLOSING = r"[)\]}*_$\\\"'”’»]*+"

_NO_END = r"""
    # the number of a list item or step: `1.`, `- b)`, `**2.**`, `Step 3.`
    ^[^\S\n]*+ (?:[#>*•-]++[^\S\n]*+)*+ [*_]*+ (?:(?:[Ss]tep|[Cc]ase|[Pp]art)[ ])? (?:\d++|[A-Za-z]) [.)][*_]*+ (?=\s)
    # always before more of the sentence
  | \b(?:[eE]\.g|[iI]\.e|[cC]f|[vV]s|[vV]iz|[aA]pprox|[rR]esp|w\.r\.t|a\.k\.a|s\.t|et[ ]al|Mr|Mrs|Ms|Dr|Prof|St)\.
    # before a number
  | \b(?:[nN]o|[fF]igs?|[eE]qs?|[sS]ec|[cC]h|[tT]hm|[vV]ol|pp?)\. (?=[^\S\n]*+[\d(])
    # unless a capital letter follows
  | \b(?:etc|Inc|Ltd|Co|Corp|Jr|Sr|(?:[A-Za-z]\.)+[A-Za-z])\. (?![^\S\n]++[A-Z])
"""

_END = rf"""
    (?<![.!?…]) (?:
        (?!\.\.|…) [.!?…]++ {_BRACKETS} {_GAP}
      | (?:\.\.|…) [.!?…]*+ {_BRACKETS} {_GAP} (?![a-z])
      | [.!?…]++ {_BRACKETS} {_QUOTE} {_CLOSING} {_GAP} (?![a-z])
    )
  | (?<![。！？｡]) [。！？｡]++ [\"'”’」』】）》〉)\]]*+ [^\S\n]*+ (?=\S)
"""

STOP = re.compile(rf"{_NO_END} | (?P<stop>{_END})", re.MULTILINE | re.VERBOSE)
"""A match with its group `stop` ends a sentence, blanks and all; one without ends none and is only read over."""
