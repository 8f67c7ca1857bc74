"""docs/lint: a page a check and a check a page, and every example is what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from apportion import cli
from apportion.lint import CHECKS, lint
from apportion.lint.names import KNOWN
from apportion.lint.report import as_json

PAGES = Path(__file__).parents[2] / "docs" / "lint"
INDEX = (PAGES / "index.md").read_text(encoding="utf-8")
every_check = pytest.mark.parametrize("check", CHECKS, ids=[check.code for check in CHECKS])


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_every_check_has_a_page_and_every_page_a_check():
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted([check.code for check in CHECKS] + ["index"])


@every_check
def test_a_page_has_what_the_rule_is_why_an_example_and_the_remedy(check):
    page = (PAGES / f"{check.code}.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    assert lines[0] == f"# {check.code}"
    assert lines[2].lower() == f"{check.rule}.".lower()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings == ["## What it does", "## Why it is bad", "## Example", "## Remedy"]
    assert " ".join(page.partition("## Remedy")[2].split()) == " ".join(check.remedy.split())


@every_check
def test_the_broken_example_is_broken_first_of_all_by_this_check_and_the_good_one_holds(check):
    page = (PAGES / f"{check.code}.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in blocks(page, "python"):
        exec(block, names)
    broken = [found for found in lint(names["broken"]) if found.verdict == "broken"]
    assert str(broken[0]) == blocks(page, "text")[0].strip()
    assert broken[0].code == check.code
    good = {found.code: found.verdict for found in lint(names["good"])}
    assert good[check.code] == "holds"
    assert "broken" not in good.values()


def test_the_index_lists_the_checks_in_the_order_of_the_report():
    rows = re.findall(r"^\| \[([\w-]+)\]\(([\w-]+)\.md\) \| (.+) \|$", INDEX, re.MULTILINE)
    assert rows == [(check.code, check.code, check.rule) for check in CHECKS]


def test_the_index_names_every_column_and_setting():
    described = re.findall(r"`(\w+)`", "\n".join(line for line in INDEX.splitlines() if line.startswith("| `")))
    assert [name for name in KNOWN if name not in described] == []


def test_the_index_names_every_field_of_the_json_document():
    document = as_json(Path("x.npz"), lint({"action_mask": [[1, 0]], "advantages": [[0.5, 0.5]]}))
    fields = set(re.findall(r'^ *"(\w+)":', document, re.MULTILINE))
    table = INDEX.partition("## JSON")[2]
    assert [name for name in fields if f"`{name}`" not in table] == []


def test_the_example_in_python_prints_what_the_index_says(capsys):
    exec(blocks(INDEX, "python")[0], {})
    assert capsys.readouterr().out == blocks(INDEX, "text")[0]


def test_the_example_file_is_broken_as_the_index_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("batch.jsonl").write_text(blocks(INDEX, "jsonl")[0])
    monkeypatch.setattr("sys.argv", shlex.split(blocks(INDEX, "sh")[0]))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert re.findall(r"^ *│? ?(\S+) +│? ?broken", capsys.readouterr().out, re.MULTILINE) == ["gap-leak"]
