"""Runs side by side, from the folders that training leaves."""

import json
import re

import pytest
from typer.testing import CliRunner

from apportion.cli import app
from apportion.compare import compare
from apportion.compare.experiment import ARMS
from apportion.compare.page import write_page
from apportion.compare.runs import Run
from apportion.compare.tables import as_markdown, cells
from apportion.errors import InputError
from apportion.train.config import resolve, to_toml


def written(folder, rates, *, tokens=100, seconds=2.0, held_out=None, **settings):
    """The folder of a run that spent so much in every step."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(to_toml(resolve({"steps": len(rates)} | settings)))
    rows = [{"step": n, "pass_rate": rate, "generated_tokens": tokens * (n + 1)} for n, rate in enumerate(rates)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = [{"step": n, "seconds": seconds} for n in range(len(rates))]
    (folder / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in times))
    if held_out is not None:
        (folder / "evaluations.json").write_text(json.dumps({"after": {"rate": held_out}}))
    return folder


def test_a_run_as_a_curve_by_hand(tmp_path):
    run = Run.read(written(tmp_path / "run", [0.0, 0.2, 0.4, 0.6]))
    assert run.places == {"tokens": [100, 200, 300, 400], "seconds": [2, 4, 6, 8]}
    assert run.rate_at(300.0, "tokens", window=100.0) == 0.4
    assert run.rate_at(300.0, "tokens", window=200.0) == pytest.approx(0.3)
    assert run.rate_at(50.0, "tokens", window=10.0) == 0.0, "the nearest step"
    assert run.mean_rate(400.0, "tokens") == pytest.approx(0.3)
    assert run.mean_rate(250.0, "tokens") == pytest.approx((0 + 20 + 20) / 250)
    assert run.mean_rate(4.0, "seconds") == pytest.approx(0.1)


def test_a_step_without_a_score_or_without_a_time_is_no_hole(tmp_path):
    folder = written(tmp_path / "run", [0.5, None, 0.7])
    (folder / "timings.jsonl").write_text('{"step": 0, "seconds": 2}\n{"step": 2, "seconds": 2}\n')
    run = Run.read(folder)
    assert (run.rates, run.places) == ([0.5, 0.7], {"tokens": [100, 300], "seconds": [2, 6]})


def test_seeds_make_an_arm_and_what_differs_names_it(tmp_path):
    folders = [
        written(tmp_path / name, [0.5], seed=seed, recipe=recipe, learning_rate=rate, **more)
        for name, seed, recipe, rate, more in [
            ("a", 0, "grpo", 1e-3, {}),
            ("b", 1, "grpo", 1e-3, {"checkpoint_every": 7}),
            ("c", 0, "vineppo", 2e-3, {"mc_samples": 1}),
            ("d", 0, "vineppo", 2e-3, {"mc_samples": 2}),
        ]
    ]
    found = compare(folders)
    assert [(arm.name, len(arm.runs)) for arm in found.arms] == [
        ("grpo, learning_rate=0.001", 2),
        ("vineppo, mc_samples=1, learning_rate=0.002", 1),
        ("vineppo, mc_samples=2, learning_rate=0.002", 1),
    ]


def sides(tmp_path):
    """Two recipes of three seeds each; the second wins by ten points for the same tokens, and takes twice the time."""
    made = []
    for recipe, lead, seconds in (("grpo", 0.0, 2.0), ("rloo", 0.1, 4.0)):
        for seed in range(3):
            rates = [0.2 + lead + 0.01 * seed + 0.001 * seed * bool(lead)] * 2 + [0.4 + lead] * 2
            made.append(written(tmp_path / f"{recipe}{seed}", rates, seconds=seconds, recipe=recipe, seed=seed))
    return made


def test_what_is_equal_is_as_much_as_all_runs_have_spent(tmp_path):
    found = compare([*sides(tmp_path), written(tmp_path / "short", [0.9, 0.9], recipe="dr_grpo", seed=0)])
    assert found.upto == {"tokens": 200, "seconds": 4}


def test_a_lead_that_is_told_apart_is_said_and_one_that_is_not_is_not(tmp_path):
    found = compare(sides(tmp_path))
    tokens, seconds = found.verdicts
    assert re.fullmatch(r"rloo is ahead of grpo over the same tokens: \+10\.\d ± 0\.\d points", tokens)
    assert re.fullmatch(r"rloo and grpo cannot be told apart over the same time: .*", seconds) or "behind" in seconds
    assert found.lines["tokens"][1].mean.mean == pytest.approx(0.4055)
    swapped = compare([*sides(tmp_path / "again")[3:], *sides(tmp_path / "more")[:3]])
    assert "grpo is behind rloo over the same tokens: -10." in swapped.verdicts[0]


def test_one_seed_a_side_proves_nothing(tmp_path):
    folders = [written(tmp_path / recipe, [rate], recipe=recipe) for recipe, rate in (("grpo", 0.1), ("rloo", 0.9))]
    assert all("proves nothing" in verdict for verdict in compare(folders).verdicts)


def test_without_times_only_tokens_are_compared_and_held_out_is_of_the_end(tmp_path):
    one, two = written(tmp_path / "a", [0.5], held_out=0.75), written(tmp_path / "b", [0.5], recipe="rloo")
    (one / "timings.jsonl").unlink()
    found = compare([one, two])
    assert list(found.lines) == ["tokens"]
    assert "| grpo | 1 | 50.0 | 50.0 | 50.0 | 50.0 | 50.0 |  | 75.0 |" in as_markdown(cells(found, "tokens"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda at: [written(at / "a", [0.5])], "1 run to compare", id="alone"),
        pytest.param(lambda at: [written(at / "a", [0.5]), written(at / "b", [0.5])], "one run twice", id="twice"),
        pytest.param(lambda at: [written(at / "a", []), written(at / "b", [0.5], seed=1)], "no step yet", id="none"),
        pytest.param(lambda at: [at / "nowhere", at / "there"], "holds no run", id="no-run"),
        pytest.param(lambda at: [written(at / "a", [None]), at], "no step has a", id="nothing-scored"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(tmp_path, make, words):
    with pytest.raises(InputError, match=words):
        compare(make(tmp_path))


def test_a_page_stands_alone_and_hostile_names_stay_text(tmp_path):
    hostile = "<script>alert(1)<!--"
    folders = [written(tmp_path / f"{hostile}{recipe}", [0.2, 0.4], recipe=recipe) for recipe in ("grpo", "rloo")]
    write_page(compare(folders), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<svg") == 2
    assert page.count("<polyline") == 4
    assert not re.search(r"(src|href)=|url\(", page)


def test_the_command_prints_the_table_and_writes_the_page(tmp_path):
    folders = [str(folder) for folder in sides(tmp_path)]
    done = CliRunner().invoke(app, ["compare", *folders, "--out", str(tmp_path / "page.html")], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "B  rloo (3 seeds)" in done.output
    assert "rloo is ahead of grpo over the same tokens" in done.output
    assert (tmp_path / "page.html").stat().st_size > 5000
    told = json.loads(CliRunner().invoke(app, ["compare", *folders, "--json"]).output)
    assert told["upto"] == {"tokens": 400, "seconds": 8}
    assert told["arms"][1]["tokens"]["lead"]["mean"] == pytest.approx(0.1055, abs=0.01)


def test_the_experiment_trains_both_arms_once_and_compares_them(tmp_path):
    small = {"chain_steps": 2, "prompts": 2, "group": 4, "max_new_tokens": 24, "held_out": 4}
    words = ["experiment", "credit", "--out", str(tmp_path), "--seeds", "1", "--tokens", "50", "--no-open"]
    words += [word for name, value in small.items() for word in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    metrics = {name: tmp_path / f"{name}-seed0" / "metrics.jsonl" for name in ARMS}
    assert all(len(file.read_text().splitlines()) == 1 for file in metrics.values())
    assert (tmp_path / "compare.html").exists()
    before = {name: file.stat().st_mtime_ns for name, file in metrics.items()}
    assert CliRunner().invoke(app, words).exit_code == 0
    assert {name: file.stat().st_mtime_ns for name, file in metrics.items()} == before, "nothing is trained twice"
    other = CliRunner().invoke(app, [*words, "--set", "gamma=1.0", "--set", "prompts=4"])
    assert isinstance(other.exception, InputError)
