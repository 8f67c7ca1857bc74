"""Any file of rollouts has a page: with credit that it holds, credit by a recipe, or what there is in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from apportion import files
from apportion.credit_file import credit_file
from apportion.recipes import by_name
from apportion.view.report import write_page
from apportion.view.source import read_answers, step_curves
from pages import Page, write_lines

FIXTURES = Path(__file__).parents[1] / "files" / "fixtures"
ROWS = [
    {"prompt": "1+1?", "response": "1+1=2\n2", "outcome": 1.0, "group": "a", "step_values": [0.5, 0.75]},
    {"prompt": "1+1?", "response": "1+1=3\n3", "outcome": 0.0, "group": "a", "step_values": [0.5, 0.25]},
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", [None, "grpo"])
@pytest.mark.parametrize("path", sorted(p for p in FIXTURES.iterdir() if p.suffix != ".md"), ids=lambda path: path.name)
def test_files_of_others_have_a_page(tmp_path: Path, path: Path, recipe: str | None) -> None:
    page = Page(write_page(path, tmp_path / "page.html", recipe=None if recipe is None else by_name(recipe)))

    rollouts = files.load(path)
    assert [entry["tokens"] for entry in page.entries] == rollouts.action_counts.tolist()
    assert sum(answer["advantage"] is not None for answer in page.answers) >= (1 if recipe else 0)


def test_a_file_without_credit_shows_its_step_values_on_the_lines_that_they_fit(tmp_path: Path) -> None:
    page = Page(write_page(write_lines(tmp_path / "in.jsonl", *ROWS)))

    first = page.answers[0]
    assert first["advantage"] is None
    assert first["steps"] == {"value": [0.5, 0.75]}
    assert [first["of"][first["text"].index(piece)] for piece in ("+", "\n")] == [0, 0]
    assert first["of"][-1] == 1
    assert [entry["drop"] for entry in page.entries] == [0, -0.25]
    assert "holds no credit" in page.source


def test_scores_of_tokens_stand_on_their_tokens_and_skip_the_tool(tmp_path: Path) -> None:
    row = {"prompt": [1], "response": [2, 3, 4], "action_mask": [True, False, True], "outcome": 1.0, "group": "a"}
    path = write_lines(tmp_path / "in.jsonl", row | {"step_rewards": [0.25, -0.5]})

    (answer,) = read_answers(path)

    assert answer.of == [-1, 0, -1, 1]
    assert answer.colour("reward") == [None, 0.25, None, -0.5]


def test_scores_that_fit_no_steps_are_not_put_anywhere(tmp_path: Path) -> None:
    (answer,) = read_answers(write_lines(tmp_path / "in.jsonl", ROWS[0] | {"step_values": [0.5] * 4}))

    assert answer.steps["value"] is None


def test_a_recipe_works_out_what_credit_would_write(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", *ROWS)
    made = credit_file(source, by_name("vineppo"), tmp_path / "out.jsonl")

    by_recipe, held = read_answers(source, recipe=by_name("vineppo")), read_answers(tmp_path / "out.jsonl")

    assert [answer.advantage for answer in by_recipe] == [answer.advantage for answer in held]
    assert [answer.advantage for answer in held] == made.advantage.tolist()
    assert held[1].steps["credit"] == [-0.25, -0.25]


def test_the_advantage_that_was_logged_is_that_of_the_sampled_tokens(tmp_path: Path) -> None:
    rows = [{"step": 1, "prompt": "p q", "completion": "a b", "reward": r, "advantage": r - 0.5} for r in (0.0, 1.0)]

    answers = read_answers(write_lines(tmp_path / "log.jsonl", *rows))

    assert answers[0].advantage == [0, 0, -0.5, -0.5]
    assert answers[0].steps["credit"] is None


def test_the_score_of_each_reward_function_stands_with_the_answer(tmp_path: Path) -> None:
    row = {"step": 1, "prompt": "p", "completion": "a", "right": 1.0, "short": 0.25, "note": "text"}

    with pytest.warns(UserWarning, match="every column of numbers counts once"):
        (answer,) = read_answers(write_lines(tmp_path / "log.jsonl", row))

    assert answer.figures == {"right": 1, "short": 0.25}


def test_a_log_of_several_steps_has_curves_and_one_of_a_single_step_has_none(tmp_path: Path) -> None:
    rows = [{"step": s, "input": "p", "output": "a", "score": x} for s, x in ((2, 1.0), (1, 0.0), (2, 0.5))]

    assert step_curves(write_lines(tmp_path / "log.jsonl", *rows)) == {"step": [1, 2], "outcome_mean": [0, 0.75]}
    assert step_curves(write_lines(tmp_path / "one.jsonl", rows[0])) == {}
