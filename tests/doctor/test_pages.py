"""docs/doctor: a page a check and a check a page; what a page says is what the code does."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from apportion.doctor import CHECKS, Check, History, examine, report

ROOT = Path(__file__).parents[2]
INDEX = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
every_check = pytest.mark.parametrize("check", CHECKS, ids=[check.code for check in CHECKS])

spec = importlib.util.spec_from_file_location("doctor_pages", ROOT / "tools" / "doctor_pages.py")
assert spec is not None
assert spec.loader is not None
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)


def cases(check: Check) -> tuple[History, History]:
    """The sick and the well run of a page."""
    code = pages.examples((ROOT / check.page).read_text(encoding="utf-8"))
    sick, well = pages.columns(check, *code)
    return History.of_columns(sick), History.of_columns(well)


def test_every_check_has_a_page_and_every_page_a_check():
    there = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "doctor").iterdir())
    assert there == sorted(check.page for check in CHECKS)


@every_check
def test_a_page_is_what_the_tool_writes_of_its_check(check):
    page = (ROOT / check.page).read_text(encoding="utf-8")
    assert page == pages.render(check, *pages.examples(page))


@every_check
def test_of_the_sick_example_the_check_is_found_first_and_of_the_well_one_nothing_is(check):
    sick, well = (examine(history) for history in cases(check))
    assert sick.findings[0].code == check.code
    assert sick.findings[0].level in ("error", "warning")
    assert well.findings == ()
    assert check in well.well


@every_check
def test_a_check_whose_figures_are_missing_says_which_and_what_to_log(check):
    diagnosis = examine(History.of_columns({"learning_rate": [0.1] * 30}))
    reasons = {skipped.code: reason for skipped, reason in diagnosis.skipped}
    assert reasons[check.code].startswith("not logged: ")
    assert check.needs[0] in reasons[check.code]
    assert check.log


def test_codes_are_numbered_and_names_are_not_used_twice():
    assert sorted(check.code for check in CHECKS) == [f"D{n:02d}" for n in range(1, len(CHECKS) + 1)]
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_causes_are_known_and_nothing_explains_itself_by_way_of_others():
    causes = {check.code: set(check.causes) for check in CHECKS}
    assert all(own <= set(causes) for own in causes.values())
    left = dict(causes)
    while left:
        free = [code for code, own in left.items() if not own & set(left)]
        assert free, f"these explain one another: {left}"
        for code in free:
            del left[code]


def test_the_index_lists_the_checks_in_their_order():
    rows = re.findall(r"^\| \[(D\d\d)\]\(doctor/([\w-]+)\.md\) ([\w-]+) \| (.+) \|$", INDEX, re.MULTILINE)
    assert rows == [(check.code, f"{check.code}-{check.name}", check.name, check.rule) for check in CHECKS]


def test_the_index_names_every_field_of_the_json_document():
    history = History.of_columns({"mean_abs_advantage": [0.5] * 9, "kl": [0.1] * 9, "truncated": [0.9] * 9})
    document = json.loads(report.as_json(Path("run"), examine(history)))
    fields = {*document, *document["findings"][0], *document["skipped"][0]}
    table = INDEX.partition("## JSON")[2]
    assert [name for name in fields if f"`{name}`" not in table] == []


def test_the_example_in_python_prints_what_the_index_says(capsys):
    code = re.findall(r"^```python\n(.*?)^```$", INDEX, re.MULTILINE | re.DOTALL)[0]
    said = re.findall(r"^```text\n(.*?)^```$", INDEX, re.MULTILINE | re.DOTALL)[0]
    exec(code, {})
    assert capsys.readouterr().out == said
