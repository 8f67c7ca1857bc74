"""A page: whole in one file, safe with any text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from apportion.errors import InputError
from apportion.view import report
from apportion.view.report import write_page
from pages import HOSTILE, Page, make_run, page_of, saved_row, write_lines

PAGE = Path(report.__file__).parent


def test_the_page_asks_nothing_of_any_network(tmp_path: Path) -> None:
    page = page_of(tmp_path, [saved_row(["a", "b"], [1.0, -1.0])])
    source = page.source.replace("/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "")
    source = re.sub(r"sha256-[\w+/=]+", "", source)

    assert not re.search(r"https?:|//[a-z]|\bsrc=|\bhref=|url\(|@import|\bimport\(|fetch\(|XMLHttpRequest", source)
    assert "default-src 'none'" in page.policy


def test_the_security_policy_lets_in_our_scripts_and_no_other(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in page.own]

    assert len(digests) == 2
    assert re.findall(r"script-src ([^;]*)", page.policy) == [" ".join(f"'sha256-{digest}'" for digest in digests)]


def test_the_page_holds_the_licence_of_the_plotter_that_it_holds(tmp_path: Path) -> None:
    plotter = page_of(tmp_path).own[0]

    assert (PAGE / "uplot" / "LICENSE").read_text(encoding="utf-8") in plotter
    assert "var uPlot=" in plotter


def test_hostile_text_stays_text_and_arrives_whole(tmp_path: Path) -> None:
    page = page_of(tmp_path, [saved_row(HOSTILE, [0.5] * len(HOSTILE), id="<i>", group="</script>")])

    assert page.tags.count("script") == 4
    assert not {"b", "i"} & set(page.tags)
    assert "<!-- <script>" not in page.source
    assert not {"\u2028", "\0"} & set("".join(page.scripts[:2]))
    assert page.answers[0]["text"] == HOSTILE
    assert page.entries[0]["name"] == "<i>"
    assert page.data["shelves"][0]["groups"][0]["name"] == "</script>"


def test_hostile_settings_stay_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, config='recipe = "<img>"  # <u>\nmodel = "a/<img>"\n"<img>" = 1\n')

    assert not {"img", "u"} & set(page.tags)
    assert page.source.count("&lt;img&gt;") >= 4


def test_a_hostile_file_name_and_group_stay_text(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "<img>.jsonl", {"response": "<b>", "group": "<b>", "outcome": 1.0})

    page = Page(write_page(source))

    assert not {"img", "b"} & set(page.tags)
    assert "&lt;img&gt;.jsonl" in page.source


@pytest.mark.parametrize("name", report.SCRIPTS)
def test_nothing_in_a_script_makes_markup_from_text(name: str) -> None:
    script = (PAGE / "page" / f"{name}.js").read_text(encoding="utf-8")

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)


def test_every_script_is_in_the_page_and_shorter_than_400_lines() -> None:
    files = list((PAGE / "page").glob("*.js"))

    assert {file.stem for file in files} == set(report.SCRIPTS)
    assert max(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 400


def test_findings_are_shown_with_evidence_and_remedy_and_stay_text(tmp_path: Path) -> None:
    found = {"code": "AP01", "level": "error", "title": "<b>KL", "evidence": {"kl": 0.123456}, "remedy": "beta / 10"}

    page = Page(write_page(make_run(tmp_path), findings=[found, {"title": "x", "level": "grave"}]))

    words = re.sub(r"<[^>]*>|\s+", " ", page.source[page.source.index('<section id="findings"') :])
    assert "error AP01 &lt;b&gt;KL kl 0.1235 Remedy beta / 10" in " ".join(words.split())
    assert 'class="finding level-note"' in page.source
    assert "b" not in page.tags


@pytest.mark.parametrize(
    ("findings", "words"),
    [pytest.param([], "Nothing was found", id="a doctor who found nothing"), pytest.param(None, "", id="no doctor")],
)
def test_nothing_found_is_said_and_nobody_asked_is_not(
    tmp_path: Path, findings: list[dict[str, str]] | None, words: str
) -> None:
    page = Page(write_page(make_run(tmp_path), findings=findings))

    assert ("Findings" in page.source) == (findings is not None)
    assert words in page.source


def test_a_page_is_never_written_over_what_it_shows(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", {"response": "x", "group": "g", "outcome": 1.0})

    with pytest.raises(InputError, match="give another --out"):
        write_page(source, source)
    assert json.loads(source.read_text())["response"] == "x"


def test_without_scripts_the_strongest_group_is_there_as_text(tmp_path: Path) -> None:
    rows = [saved_row([f"answer {g}"], [g / 2], group=g) for g in range(3)]

    source = page_of(tmp_path, rows).source

    plain = source[source.index("<noscript>") : source.index("</noscript>")]
    assert "answer 2" in plain
    assert "answer 0" not in plain
