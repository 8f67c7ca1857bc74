"""The worked example as it is shown: key figures, a fixed width, plain characters, and the page."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console
from typer.testing import CliRunner

from apportion.cli import app
from apportion.explain import explain_example, explain_page


def shown(width: int = 80) -> str:
    file = io.StringIO()
    explain_example(Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("open 3 1 2 1 3 2.0", id="scores and Q of open"),
        pytest.param("partly 10 8 9.0", id="scores and Q of partly"),
        pytest.param("V = 0.5 * 2.0 + 0.3 * 5.0 + 0.2 * 9.0 = 4.3", id="V"),
        pytest.param("open 2.0 4.3 -2.3 down", id="advantage of open"),
        pytest.param("closed 5.0 4.3 +0.7 up", id="advantage of closed"),
        pytest.param("partly 9.0 4.3 +4.7 up", id="advantage of partly"),
        pytest.param("sum of policy * A = -1.15 + 0.21 + 0.94 = 0.0", id="weighted sum"),
        pytest.param("score -1.15 +0.21 +0.94 20.74", id="no baseline"),
        pytest.param("score - V -1.15 +0.21 +0.94 3.70", id="baseline"),
        pytest.param("open 4.3 0.0 -2.3", id="TD error of open"),
        pytest.param("-2.3 = 2.0 - 4.3", id="nothing is lost"),
        pytest.param("is 0.00 -2.18 -2.30", id="GAE before the decision"),
        pytest.param("1 0.15 0.36 0.49 6.5", id="first update"),
        pytest.param("2 0.04 0.11 0.85 8.3", id="second update"),
        pytest.param("0.242 1.21 0.00", id="clipped"),
        pytest.param("90% 9.54 2.38 7.16", id="KL penalty"),
    ],
)
def test_key_figures_stand_in_a_line_of_the_text(line: str) -> None:
    lines = [re.sub(r"\s+", " ", raw).strip() for raw in shown().splitlines()]

    assert line in lines


@pytest.mark.parametrize("width", [80, 200], ids=["80 columns", "a wide terminal"])
def test_no_line_is_wider_than_80_columns(width: int) -> None:
    assert max(len(line) for line in shown(width).splitlines()) <= 80


def test_a_heading_fits_its_line() -> None:
    headings = [line for line in shown().splitlines() if re.match(r"\d+\. ", line)]

    assert len(headings) == 14
    assert all(line.count("[") == line.count("]") for line in headings)


def test_a_file_in_an_old_encoding_can_hold_it() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")

    explain_example(Console(file=file, width=80))
    file.flush()

    assert b"\x1b" not in raw.getvalue()


def test_the_command_prints_it() -> None:
    result = CliRunner().invoke(app, ["explain"])

    assert result.exit_code == 0
    assert "which token earned it?" in result.output


def test_the_page_says_the_same_and_needs_nothing_else() -> None:
    page = explain_page()
    words = _Words()
    words.feed(page)

    assert words.title == "apportion: one answer, token by token"
    assert "".join(words.body).split() == re.sub("─+", "", shown()).split()
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert "default-src 'none'" in page


def test_the_page_shades_blame_and_credit_by_size() -> None:
    page = explain_page()

    rows = re.findall(r"<tr>(<td>(?:open|closed|partly)</td> <td>\S+</td> <td>4\.3</td> .*?)</tr>", page)
    assert [re.findall(r'class="(.*?)">(.*?)<', row) for row in rows] == [
        [("blame s3", "-2.3")],
        [("credit s1", "+0.7")],
        [("credit s5", "+4.7")],
    ]


PUBLISHED = """
    10 1 2 3 4 5 6 8 9 0 0.0 0.5 0.3 0.2 2.0 5.0 9.0 4.3 -2.3 +0.7 +4.7 -1.15 0.21 +0.21 0.94 +0.94 20.74 3.70 0.18
    0.00 -2.08 -2.18 -2.30 0.95 0.15 0.36 0.49 6.5 0.04 0.11 0.85 8.3 0.24 0.8 1.2 4.70 9.03 9.54 2.38 7.16 9.6
    0.50 0.30 0.20 5% 90%
"""
OURS = """
    7 11 12 13 14 0.200 1.00 0.220 1.10 5.17 0.238 1.19 5.59 0.242 1.21 0.260 1.30
"""


def test_every_number_that_is_shown_is_published_or_follows_and_none_is_missing() -> None:
    """OURS: numbers of headings, and probabilities around the published end of the clip range: ratio, ratio * 4.7."""
    found = set(re.findall(r"(?<![\w.])[+-]?\d+(?:\.\d+)?%?(?![\w])", shown()))

    assert found == set((PUBLISHED + OURS).split())


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.inside = ""
        self.title = ""
        self.body: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in ("title", "style", "head"):
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title = data
        elif self.inside not in ("style", "head", "html", "meta", ""):
            self.body.append(data)
