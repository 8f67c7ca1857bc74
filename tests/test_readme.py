"""What the README shows is true: its example is run, its table is the recipes', its commands exist."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apportion import recipes
from apportion.cli import app
from apportion.train.config import TrainConfig

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_example_prints_what_the_page_says(capsys):
    exec(blocks("python")[0], {})
    assert capsys.readouterr().out == blocks("text")[0]


def test_the_example_has_ten_lines_or_so():
    assert len(blocks("python")[0].splitlines()) <= 12


def test_the_table_names_every_recipe_and_its_choices():
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", README.read_text(), re.M
    )
    assert [row[0] for row in rows] == list(recipes.BY_NAME)
    for name, split, value, credit, normalise, spread in rows:
        recipe = recipes.by_name(name)
        words = {
            "whole answer": "whole",
            "given; Monte Carlo in training": "given",
            "given; a critic in training": "given",
            "gae(1, 0.95)": "gae",
        }
        cells = (split, value.partition(";")[0], credit, normalise, spread)
        said = [words.get(cell, cell).replace(" ", "_") for cell in cells]
        stages = (recipe.split, recipe.value, recipe.credit, recipe.normalise, recipe.spread)
        assert said == [getattr(stage, "func", stage).__name__ for stage in stages]


@pytest.mark.parametrize("line", [line for block in blocks("sh") for line in block.splitlines()])
def test_every_command_and_option_shown_exists(line):
    words = line.partition("#")[0].split()
    if words[0] == "make":
        makefile = (README.parent / "Makefile").read_text()
        assert f"\n{words[1]}:" in makefile
        return
    assert words[0] == "apportion"
    command = words[1:3] if words[1] == "experiment" else words[1:2]
    page = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--"):
            assert word in page
        if word == "--set":
            assert following.partition("=")[0] in TrainConfig.model_fields


def test_every_page_that_the_readme_points_to_is_there():
    targets = re.findall(r"\]\(([^)#]+)\)", README.read_text())
    assert targets
    assert all((README.parent / target).exists() for target in targets)
