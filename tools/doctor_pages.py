"""Write the pages of docs/doctor anew: `python tools/doctor_pages.py`.

All of a page comes from its check, but for the two examples: columns of a sick and of a well run, which are kept as
they stand in the page. What the doctor says of the sick one is worked out.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from apportion.doctor import CHECKS, Check, History, examine

PAGES = Path(__file__).parents[1] / "docs" / "doctor"
WIDTH = 120
NEW = ("sick = {}\n", "well = {}\n")


def examples(page: str) -> tuple[str, str]:
    """The code of the two examples of a page."""
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return (blocks[0], blocks[1]) if len(blocks) == 2 else NEW


def columns(check: Check, sick: str, well: str) -> tuple[dict, dict]:
    names: dict = {}
    exec(sick + well, names)
    return names["sick"], names["well"]


def render(check: Check, sick: str, well: str) -> str:
    """The page of a check with these examples."""
    found = examine(History.of_columns(columns(check, sick, well)[0])).findings
    causes = [other for other in CHECKS if other.code in check.causes]
    follows = ", ".join(f"[{other.code}]({Path(other.page).name}) {other.name}" for other in causes)
    parts = [
        f"# {check.code} {check.name}",
        _wrapped(f"{check.rule[0].upper()}{check.rule[1:]}."),
        "## What it looks at",
        _wrapped(check.looks),
        _wrapped(f"It needs {', '.join(f'`{need}`'.replace(' or ', '` or `') for need in check.needs)}."),
        _wrapped(f"To be logged: {check.log}."),
        *([_wrapped(f"Where these are found as well, they explain it and come first: {follows}.")] if causes else []),
        "## Why it is bad",
        _wrapped(check.why),
        "## Example",
        f"```python\n{sick}```",
        "```text\n" + "".join(f"{finding}\n" for finding in found) + "```",
        f"```python\n{well}```",
        "## Remedy",
        _wrapped(check.remedy),
    ]
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def main() -> None:
    PAGES.mkdir(exist_ok=True)
    for check in CHECKS:
        path = PAGES / Path(check.page).name
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(render(check, *examples(page)), encoding="utf-8")


if __name__ == "__main__":
    main()
