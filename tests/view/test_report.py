"""The report of a run: whole in one file, safe with any text, and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from apportion import ledger, recipes
from apportion.errors import InputError
from apportion.files import write_rows
from apportion.rollouts import collate
from apportion.view import answers
from apportion.view.report import write_report
from batches import row

CONFIG = """\
recipe = "vineppo"  # method of credit, by name
model = "/models/tiny"  # `embedded`, a Hugging Face folder, or a GGUF file
seed = 7  # all chance in a run follows from it
steps = 2  # updates of the policy
task = "chain"  # `chain` (embedded)
# data =  # JSONL of prompts and answers, for the task `data`
"""
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "<b>",
    "&",
    "\n",
    "\u2028",
    "\u202e",
    "\ud800",
    "{{ 7*7 }}",
    "\x00",
    "👩‍🔬",
]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """The page as a browser sees it: its tags, the text of its scripts, and its security policy."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.scripts += [""] if tag == "script" else []
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def saved_row(pieces: list[str], advantage: list[float] | None, **columns: Any) -> dict[str, Any]:
    """A row of a saved ledger, every token a step."""
    count = len(pieces)
    steps = {name: [0.5] * count for name in ("reward", "value", "credit", "normalised")}
    ends = accumulate(map(len, pieces), initial=0)
    return {
        "group": "g",
        "prompt": [],
        "response": list(range(count)),
        "action_mask": [True] * count,
        "outcome": 1.0,
        "text": "".join(pieces),
        "offsets": list(pairwise(ends)),
        "ledger": {"step_of": list(range(count)), **steps, "advantage": advantage},
    } | columns


def make_run(folder: Path, *ledgers: list[dict[str, Any]], config: str = CONFIG) -> Path:
    (folder / "ledgers").mkdir()
    (folder / "config.toml").write_text(config, encoding="utf-8")
    for step, rows in enumerate(ledgers):
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / "ledgers" / f"step-{step:06d}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def page_of(folder: Path, *ledgers: list[dict[str, Any]], config: str = CONFIG) -> Page:
    return Page(write_report(make_run(folder, *ledgers, config=config)))


def write_logs(folder: Path) -> None:
    metrics = [{"step": 0, "pass_rate": 0.25, "kl": math.nan}, {"step": 1, "pass_rate": None, "kl": 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    (folder / "timings.jsonl").write_text('{"step": 1, "tokens_per_second": 1234.5}\n')


def all_answers(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer for one in data["ledgers"] for group in one["groups"] for answer in group["answers"]]


def groups_of(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = page_of(folder, rows).data["ledgers"][0]["groups"]
    return groups


def test_the_page_asks_nothing_of_any_network(tmp_path: Path) -> None:
    page = page_of(tmp_path, [saved_row(["a", "b"], [1.0, -1.0])])

    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=|url\(|@import|\bimport\(|fetch\(", page.source)
    assert "default-src 'none'" in page.policy


def test_the_security_policy_lets_in_our_script_and_no_other(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    digest = hashlib.sha256(page.scripts[1].encode()).digest()

    assert re.findall(r"script-src ([^;]*)", page.policy) == [f"'sha256-{base64.b64encode(digest).decode()}'"]


def test_hostile_text_stays_text_and_arrives_whole(tmp_path: Path) -> None:
    page = page_of(tmp_path, [saved_row(HOSTILE, [0.5] * len(HOSTILE), id="<i>", group="</script>")])

    assert page.tags.count("script") == 2
    assert not {"b", "i"} & set(page.tags)
    assert "<!-- <script>" not in page.source
    assert not {"\u2028", "\0"} & set(page.scripts[0])
    assert all_answers(page.data)[0]["text"] == HOSTILE


def test_hostile_settings_stay_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, config='recipe = "<img>"  # <u>\nmodel = "a/<img>"\n"<img>" = 1\n')

    assert not {"img", "u"} & set(page.tags)
    assert page.source.count("&lt;img&gt;") >= 4


def test_nothing_in_the_script_makes_markup_from_text() -> None:
    script = (Path(answers.__file__).parent / "report.js").read_text(encoding="utf-8")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)


def test_credit_that_is_no_number_is_null_and_all_columns_keep_their_length(tmp_path: Path) -> None:
    dumped = saved_row(["<b>", "&", "\n"], [0.5, math.nan, -0.5], action_mask=[True, False, True])
    dumped["ledger"] |= {"step_of": [0, -1, 1]} | {
        name: [0.5, math.inf] for name in ("reward", "value", "credit", "normalised")
    }

    page = page_of(tmp_path, [dumped])

    (answer,) = all_answers(page.data)
    assert answer["advantage"] == [0.5, None, -0.5]
    assert answer["of"] == [0, -1, 1]
    assert answer["steps"]["value"] == [0.5, None]
    assert {len(answer[name]) for name in ("id", "text", "of", "advantage")} == {3}
    assert "<b>" not in page.source
    assert "&lt;b&gt;&amp;\n" in page.source


def test_an_answer_that_was_not_scored_has_null_and_not_0(tmp_path: Path) -> None:
    dumped = saved_row(["a", "b"], None, outcome=None)
    dumped["ledger"] |= {"value": None, "credit": None, "normalised": None}

    (answer,) = all_answers(page_of(tmp_path, [dumped]).data)

    assert (answer["scored"], answer["outcome"], answer["advantage"]) == (False, None, [None, None])
    assert answer["steps"]["credit"] == [None, None]


@pytest.mark.parametrize("name", list(recipes.BY_NAME))
def test_the_columns_of_every_recipe_are_those_of_its_ledger(tmp_path: Path, name: str) -> None:
    pieces = ["p", "b", "\n", "tool", "d"]
    rows = [row("paata", pieces, outcome=o, step_values=(0.25, 0.25, 0.5)) for o in (0.0, 1.0, None)]
    made = ledger.apportion(collate(rows), recipes.by_name(name))
    run = make_run(tmp_path)
    write_rows(run / "ledgers" / "step-000004.jsonl", made.rows())

    data = Page(write_report(run)).data

    shown = all_answers(data)
    assert data["ledgers"][0]["step"] == 4
    assert data["ledgers"][0]["groups"][0]["prompt"] == {"id": [0], "text": ["p"]}
    assert [answer["text"] for answer in shown] == [pieces[1:]] * 3
    assert [answer["scored"] for answer in shown] == [True, True, False]
    for n, answer in enumerate(shown[:2]):
        assert answer["of"] == made.steps.step_of[n, 1:].tolist()
        assert answer["advantage"] == pytest.approx(made.advantage[n, 1:].tolist(), rel=1e-3)
        assert answer["steps"]["value"] == pytest.approx(made.value[n, : made.steps.counts[n]].tolist(), rel=1e-3)


def test_curves_have_one_length_and_null_where_nothing_was_logged(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_logs(run)

    curves = Page(write_report(run)).data["curves"]

    assert {len(curve) for curve in curves.values()} == {2}
    assert (curves["pass_rate"], curves["kl"], curves["entropy"]) == ([0.25, None], [None, 0.5], [None, None])
    assert curves["tokens_per_second"] == [None, 1234]


def cut_a_log(run: Path) -> None:
    write_logs(run)
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "pass_r')


def evaluate_no_problem(run: Path) -> None:
    (run / "evaluations.json").write_text('{"before": {"passed": 0, "scored": 0, "rate": NaN, "low": 0, "high": 1}}')


@pytest.mark.parametrize(
    ("damage", "steps"),
    [
        pytest.param(lambda run: None, 0, id="only-a-config"),
        pytest.param(lambda run: (run / "ledgers").rmdir(), 0, id="no-ledgers-folder"),
        pytest.param(lambda run: (run / "metrics.jsonl").touch(), 0, id="empty-metrics"),
        pytest.param(cut_a_log, 2, id="last-line-cut-short"),
        pytest.param(evaluate_no_problem, 0, id="no-problem-tested"),
    ],
)
def test_an_unfinished_run_has_a_page(tmp_path: Path, damage: Callable[[Path], object], steps: int) -> None:
    run = make_run(tmp_path)
    damage(run)

    page = Page(write_report(run))

    assert len(page.data["curves"]["step"]) == steps
    assert page.source.count("not tested") == 2


def test_answers_without_text_are_shown_by_their_ids(tmp_path: Path) -> None:
    bare = saved_row(["a", "b"], [1.0, 1.0], response=[11, 12])
    del bare["text"], bare["offsets"]

    page = page_of(tmp_path, [bare])

    (answer,) = all_answers(page.data)
    assert (answer["id"], answer["text"]) == ([11, 12], None)
    assert "11 12" in page.source


def test_a_character_of_several_tokens_goes_to_the_last_and_one_of_none_to_the_next(tmp_path: Path) -> None:
    spelled = saved_row(["a", "b", "c"], [1.0] * 3, text="é x", offsets=[[0, 1], [0, 1], [2, 3]])

    (answer,) = all_answers(page_of(tmp_path, [spelled]).data)

    assert answer["text"] == ["", "é", " x"]


def test_prompts_that_differ_stay_with_their_answers(tmp_path: Path) -> None:
    rows = [saved_row(["p", "a"], [0.0, 1.0], prompt=[first], response=[9]) for first in (1, 2)]

    (group,) = groups_of(tmp_path, rows)

    assert group["prompt"]["id"] == []
    assert [answer["id"] for answer in group["answers"]] == [[1, 9], [2, 9]]


def test_the_page_holds_the_first_and_the_last_ledger_and_says_how_many_there_are(tmp_path: Path) -> None:
    data = page_of(tmp_path, *[[saved_row(["a"], [1.0])]] * 9).data

    assert [one["step"] for one in data["ledgers"]] == [0, 2, 4, 6, 8]
    assert data["ledgers_total"] == 9


def test_of_many_groups_those_with_the_most_credit_are_shown_in_their_order(tmp_path: Path) -> None:
    rows = [saved_row(["a"], [(-1) ** g * (g % 7) / 8], group=g) for g in range(12)]

    (shown,) = page_of(tmp_path, rows).data["ledgers"]

    assert [group["name"] for group in shown["groups"]] == ["2", "3", "4", "5", "6", "9", "10", "11"]
    assert shown["groups_total"] == 12
    assert shown["groups"][shown["strongest"]]["name"] == "6"


def test_long_answers_are_left_out_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "TOKENS", 5)
    rows = [saved_row(["a", "b"], [1.0, 1.0], group=n // 3) for n in range(6)]

    group, *others = groups_of(tmp_path, rows)

    assert others == []
    assert (len(group["answers"]), group["answers_total"]) == (2, 3)


@pytest.mark.parametrize(
    ("advantages", "limit"),
    [
        pytest.param([0.25, -1.5], 1.5, id="largest-of-either-sign"),
        pytest.param([0.0, 0.0], 0.0, id="all-zero"),
        pytest.param([0.0123, None], 0.013, id="rounded-up-to-two-digits"),
        pytest.param([1.0] * 400 + [900.0], 1.0, id="one-of-hundreds-does-not-count"),
    ],
)
def test_full_colour_is_one_size_both_ways(advantages: list[float | None], limit: float) -> None:
    shown = [{"groups": [{"answers": [{"advantage": advantages}]}]}]

    assert answers.scale_limit(shown) == limit


@pytest.mark.parametrize(
    ("low", "words"),
    [pytest.param(0.5, "The intervals do not overlap", id="apart"), pytest.param(0.3, "overlap:", id="overlapping")],
)
def test_the_headline_gives_both_pass_rates_with_their_intervals(tmp_path: Path, low: float, words: str) -> None:
    run = make_run(tmp_path)
    before = {"passed": 16, "scored": 64, "rate": 0.25, "low": 0.16, "high": 0.37}
    after = {"passed": 40, "scored": 64, "rate": 0.625, "low": low, "high": 0.73}
    (run / "evaluations.json").write_text(json.dumps({"before": before, "after": after}))

    source = Page(write_report(run)).source

    assert "16.0 to 37.0 %" in source
    assert "62.5<small>%</small>" in source
    assert words in source
    assert "vineppo</strong> on <strong>chain" in source


def test_settings_stand_with_their_meaning_and_unset_ones_say_so(tmp_path: Path) -> None:
    source = page_of(tmp_path).source

    assert "<td>7</td><td>all chance in a run follows from it</td>" in source
    assert '<span class="none">not set</span></td><td>JSONL of prompts' in source


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no run \(there is no config.toml"):
        write_report(tmp_path)


def test_a_column_of_another_length_is_refused_with_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path, [saved_row(["a", "b"], [1.0])])

    with pytest.raises(InputError, match=r"step-000000.jsonl, line 1: advantage has 1 entries where 2 were expected"):
        write_report(run)


def test_a_broken_line_inside_a_log_is_refused_with_its_place(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"st\n{"step": 2}\n')

    with pytest.raises(InputError, match=r"metrics.jsonl, line 2: not JSON"):
        write_report(run)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium on the path")
def test_a_browser_draws_the_answers_and_runs_nothing_from_them(tmp_path: Path) -> None:
    mask = [True, False, *[True] * (len(HOSTILE) - 2)]
    dumped = saved_row(HOSTILE, [0.5, 0, *[-0.25] * (len(HOSTILE) - 2)], action_mask=mask)
    dumped["ledger"]["step_of"] = [0, -1, *range(1, len(HOSTILE) - 1)]
    for name in answers.STEP_COLUMNS:
        dumped["ledger"][name] = [0.5] * (len(HOSTILE) - 1)
    run = make_run(tmp_path, [dumped])
    write_logs(run)
    path = write_report(run)

    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    body = drawn[drawn.index('<div class="grid') : drawn.index("<aside")]
    assert body.count('class="token') == len(HOSTILE)
    assert "&lt;b&gt;" in body
    assert "&amp;" in body
    assert "<b>" not in body
    assert '<span class="token given" tabindex="-1" data-t="1">&lt;!-- &lt;script&gt;</span>' in body
    assert 'class="token credit first"' in body
    assert "U+202E" in body
    assert drawn.count('class="curve"') == 3
