"""The page in a real browser: what it draws, and that nothing out of an answer is run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from apportion.view.answers import STEP_COLUMNS
from apportion.view.report import write_page
from pages import HOSTILE, make_run, saved_row, write_lines, write_logs

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on the path")]

ACTED = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def drawn(page: Path, act: str = "") -> str:
    """The page as it stands after its scripts, and after those of `act`, for which its security policy is taken out."""
    if act:
        source = ACTED.sub("", page.read_text(encoding="utf-8"))
        page.write_text(source.replace("</body>", f"<script>{{{act}}}</script></body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def part(source: str, name: str) -> str:
    """The words of the element of this class, tags left out."""
    start = source.index(f'class="{name}"')
    body = source[source.index(">", start) + 1 :]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body[: body.index("</aside>")])).split())


def two_lines(**columns: Any) -> dict[str, Any]:
    """An answer of two steps with a tool in between: a b | tool | c."""
    dumped = saved_row(["a", "b", "tool", "c"], [0.5, 0.5, 0.0, -0.25], action_mask=[True, True, False, True])
    parts = {"process": [0.125, 0.0], "outcome": [0.0, 1.0]}
    steps = {"reward": [0.125, 1.0], "value": [0.25, 0.75], "credit": [0.5, -0.25], "normalised": [0.5, -0.25]}
    return dumped | {"ledger": dumped["ledger"] | {"step_of": [0, 0, -1, 1], "parts": parts} | steps} | columns


def test_a_browser_draws_the_answers_and_runs_nothing_from_them(tmp_path: Path) -> None:
    mask = [True, False, *[True] * (len(HOSTILE) - 2)]
    dumped = saved_row(HOSTILE, [0.5, 0, *[-0.25] * (len(HOSTILE) - 2)], action_mask=mask)
    dumped["ledger"]["step_of"] = [0, -1, *range(1, len(HOSTILE) - 1)]
    for name in STEP_COLUMNS:
        dumped["ledger"][name] = [0.5] * (len(HOSTILE) - 1)
    run = make_run(tmp_path, [dumped | {"group": "g\u202e", "id": "<b>\u202e"}])
    write_logs(run)

    found = drawn(write_page(run))

    body = found[found.index('<div class="grid') : found.index('<aside class="readout"')]
    plain = found[found.index("<noscript>") : found.index("</noscript>")]
    assert body.count('class="token') == len(HOSTILE)
    assert "&lt;b&gt;" in body
    assert "&amp;" in body
    assert "<b>" not in body
    assert '<span class="token given" tabindex="-1" data-t="1">&lt;!-- &lt;script&gt;</span>' in body
    assert 'class="token credit"' in body
    assert "U+202E" in body
    assert "\u202e" not in found[found.index("<main") : found.index('<script type="application/json"')].replace(
        plain, ""
    )
    assert found.count('class="plot"') == found.count("<canvas") == 3


def test_a_token_of_a_million_characters_is_cut_where_it_is_shown(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", {"response": "x" * 1_000_000 + " y", "group": "g", "outcome": 1.0})

    found = drawn(write_page(source))

    body = found[found.index('<div class="grid') : found.index('<aside class="readout"')]
    assert "… 1,000,000 characters" in body
    assert len(body) < 10_000


def test_of_a_very_long_answer_the_beginning_is_drawn_and_more_where_one_goes(tmp_path: Path) -> None:
    page = write_page(write_lines(tmp_path / "in.jsonl", {"response": "x " * 30_000, "group": "g", "outcome": 1.0}))
    act = "const first = document.querySelectorAll('.answer .token').length;"
    act += "const end = new KeyboardEvent('keydown', {key: 'End', bubbles: true});"
    act += "document.querySelector('.answer .token').dispatchEvent(end);"
    act += "document.title = `${first} then ${document.querySelectorAll('.answer .token').length}`"

    assert "<title>12000 then 30001</title>" in drawn(page, act)


@pytest.mark.parametrize(
    "act",
    [
        pytest.param('document.querySelectorAll(".answer .token")[1].focus()', id="focus"),
        pytest.param(
            'document.querySelectorAll(".answer .token")[1].dispatchEvent(new Event("pointerover", {bubbles: true}))',
            id="hover",
        ),
        pytest.param(
            'const t = document.querySelector(".answer .token"); t.focus();'
            't.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true}))',
            id="arrow key",
        ),
    ],
)
def test_a_token_tells_its_value_before_and_after_its_parts_and_its_credit(tmp_path: Path, act: str) -> None:
    page = write_page(make_run(tmp_path, [two_lines(token_logprobs=[-0.6931472, -0.6931472, None, -0.1])]))

    assert part(drawn(page, act), "readout") == (
        "token 1 b step 0 of 0–1 reward 0.125 part process 0.125 part outcome 0 value before → after 0.25 → 0.75 "
        "credit +0.5 advantage +0.5 sampled with probability 0.5"
    )


def test_tool_tokens_stand_apart_and_the_next_step_is_an_arrow_down(tmp_path: Path) -> None:
    act = 'const t = document.querySelector(".answer .token"); t.focus();'
    act += 't.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true}))'

    found = drawn(write_page(make_run(tmp_path, [two_lines()])), act)

    assert '<span class="tool"><span class="who">not sampled</span><span class="token given"' in found
    assert "0.75 → end" in part(found, "readout")


def choose(selector: str, value: str) -> str:
    node = f"const n = document.querySelector('{selector}'); n.value = {json.dumps(value)};"
    return f"{{ {node} n.dispatchEvent(new Event('input')); }}"


ANSWERS = [
    ("a", 1.0, 0.25, 1, "g"),
    ("b", 0.0, -0.5, 3, "g"),
    ("c", 0.0, -0.75, 2, "h"),
    ("d", None, None, 1, "h"),
]


FOUND = {
    "failed": (choose("#show", "failed"), "bc"),
    "not scored": (choose("#show", "not scored"), "d"),
    "best": (choose("#show", "best of its group"), "a"),
    "by drop": (choose("#sort", "largest drop"), "cbad"),
    "by length": (choose("#sort", "length"), "bcad"),
    "by outcome": (choose("#sort", "outcome"), "bcad"),
    "reversed": (choose("#sort", "group") + "document.querySelector('#reverse').click();", "dcba"),
    "of a group": (choose("#of-group", "h"), "cd"),
    "of a length": (choose("#shortest", "2") + choose("#longest", "2"), "c"),
    "of a drop": (choose("#deepest", "0.5"), "bc"),
}
RESET = "".join(choose(f"#{name}", "") for name in ("of-group", "shortest", "longest", "deepest"))
RESET += choose("#show", "all answers") + choose("#sort", "as in the file")
RESET += "{ const r = document.querySelector('#reverse'); if (r.getAttribute('aria-pressed') === 'true') r.click(); }"
LISTED = "[...document.querySelectorAll('.entry .name')].map((n) => n.title.at(-1)).join('')"


def test_answers_are_filtered_and_sorted(tmp_path: Path) -> None:
    rows = []
    for name, outcome, credit, length, group in ANSWERS:
        row = saved_row(["x"] * length, None if credit is None else [credit] * length, outcome=outcome, id=name)
        row["ledger"]["credit"] = None if credit is None else [credit] * length
        rows.append(row | {"group": group})
    acts = "".join(f"{RESET}{act} found[{json.dumps(name)}] = {LISTED};" for name, (act, _) in FOUND.items())
    write = (
        'const pre = document.createElement("pre"); pre.textContent = JSON.stringify(found); document.body.append(pre)'
    )

    page = drawn(write_page(make_run(tmp_path, rows)), f"const found = {{}}; {acts} {write}")

    listed = json.loads(unescape(page[page.rindex("<pre>") + 5 : page.rindex("</pre>")]))
    assert listed == {name: names for name, (_, names) in FOUND.items()}


def test_of_a_thousand_answers_only_those_in_sight_are_drawn(tmp_path: Path) -> None:
    rows = [saved_row(["a", "b"], [0.5, -0.5], id=n, group=n // 4) for n in range(1000)]

    found = drawn(write_page(make_run(tmp_path, rows)))

    assert 10 < found.count('class="entry"') < 60
    assert found.count('class="answer') == 4
    assert "1,000 answers" in found


def test_an_answer_shows_where_it_leaves_the_others_of_its_group(tmp_path: Path) -> None:
    rows = [saved_row(["a", "b", "c"], [0.5] * 3, response=ids) for ids in ([1, 2, 3], [1, 2, 4], [1, 5, 6])]

    found = drawn(write_page(make_run(tmp_path, rows)))

    assert re.findall(r"like no other answer of the group from token (\d)", found) == ["2", "2", "1"]
    assert found.count('class="token credit departs"') == 3
