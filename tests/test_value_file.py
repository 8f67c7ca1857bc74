"""Step values for a file of rollouts: what is written, what is paid, and what an interruption costs (nothing)."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from apportion import files
from apportion.credit_file import recipe_of
from apportion.errors import InputError
from apportion.ledger import apportion
from apportion.policy.causal import CausalPolicy
from apportion.policy.continuing import Lots
from apportion.policy.sampling import Sampling
from apportion.rollouts import Rollout, collate
from apportion.tasks.chain import Chain
from apportion.value_file import Labelled, Settings, closing_table, label
from apportion.values.store import Stored
from faults import in_child

CHAIN = Settings(policy="embedded", task="chain", samples=2)
MANY = replace(CHAIN, samples=None, error=0.18, at_once=5)
"""Several rounds of several lots."""
QUIET = Console(file=io.StringIO(), width=100)


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    return CausalPolicy.load("embedded")


@pytest.fixture(scope="module")
def answers(policy: CausalPolicy) -> list[Rollout]:
    """Two answers to each of two chains, as token ids alone."""
    task = Chain(steps=3)
    rows = []
    for problem in task.sample(2, random.Random(0)):
        prompt = policy.encode(problem.prompt)
        for sample in policy.sample([prompt] * 2, Sampling(64), torch.Generator().manual_seed(len(rows))):
            mask = [False] * len(prompt) + [True] * len(sample.tokens)
            score = task.score(problem, policy.spell(sample.tokens)[0])
            rows.append(Rollout([*prompt, *sample.tokens], mask, problem.prompt, score, id=f"r{len(rows)}"))
    return rows


def save(path: Path, rows: Sequence[Rollout]) -> Path:
    files.save(collate(rows), path)
    return path


@pytest.fixture
def source(tmp_path: Path, answers: list[Rollout]) -> Path:
    return save(tmp_path / "in.jsonl", answers)


def run(source: Path, settings: Settings, name: str = "out.jsonl") -> Labelled:
    return label(source, source.parent / name, settings, QUIET)


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in files.read_rows(path)]


def count_in(store: Path) -> int:
    with closing(sqlite3.connect(store)) as base:
        return int(base.execute("select count(*) from continuations").fetchone()[0])


def said(done: Labelled) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(closing_table(done))
    return console.export_text()


def test_values_are_written_so_that_credit_takes_them_as_they_are(source: Path) -> None:
    done = run(source, CHAIN)

    rows = rows_in(done.target)
    for row in rows:
        assert len(row["step_values"]) == 4, "three moves and the answer"
        assert min(row["step_value_counts"]) >= 2
        assert all(0.1 < error <= 0.27 for error in row["step_value_errors"])
        assert row["text"].startswith(row["group"]), "spelled, since the file held ids alone"
    ledger = apportion(files.load(done.target), recipe_of("vineppo")).require_laws()
    assert ledger.value.tolist() == [row["step_values"] for row in rows]


def test_values_are_chances_of_success_by_the_policy(source: Path, policy: CausalPolicy) -> None:
    done = run(source, replace(CHAIN, samples=30))
    values = done.found.value

    prompts = {row.group: row.tokens[: row.action_mask.index(True)] for row in done.work.rollouts.rows()}
    for n, (group, prompt) in enumerate(prompts.items()):
        samples = policy.sample([prompt] * 400, Sampling(64), torch.Generator().manual_seed(9))
        right = [done.work.judge(group, [*prompt, *sample.tokens]) for sample in samples]
        rate = sum(score or 0.0 for score in right) / 400
        assert float(values[2 * n, 0]) == pytest.approx(rate, abs=4 * (0.25 / 30 + 0.25 / 400) ** 0.5)
    for n, outcome in enumerate(done.work.rollouts.outcome.tolist()):
        assert float(values[n, 3]) == pytest.approx(outcome, abs=0.1), "before the last line all is decided"


def test_a_rollout_without_outcome_has_no_values_and_is_counted(tmp_path: Path, answers: list[Rollout]) -> None:
    unscored = replace(answers[1], outcome=None, step_values=(0.5,) * 4)
    done = run(save(tmp_path / "in.jsonl", [answers[0], unscored]), CHAIN)
    first, second = rows_in(done.target)
    assert "step_values" in first
    assert not {"step_values", "step_value_errors", "step_value_counts"} & second.keys()
    assert "1 without outcome" in said(done)


def test_the_same_again_is_free_and_byte_for_byte_the_same(source: Path) -> None:
    first = run(source, MANY)
    again = run(source, replace(MANY, store=first.store), "again.jsonl")

    assert first.target.read_bytes() == again.target.read_bytes()
    assert (first.meter.taken, again.meter.generated) == (0, 0)
    assert first.meter.generated == again.meter.taken == first.found.spent
    assert first.meter.samples == count_in(first.store)
    assert f"0 generated now, {first.found.spent:,} taken from the store" in said(again)


def test_more_samples_of_the_same_cost_only_the_difference(source: Path) -> None:
    first = run(source, CHAIN)
    before = count_in(first.store)
    more = run(source, replace(CHAIN, samples=3))
    assert count_in(more.store) == before * 3 // 2
    assert more.meter.taken == first.meter.generated


def test_another_seed_draws_others(source: Path) -> None:
    first = run(source, CHAIN)
    other = run(source, replace(CHAIN, seed=1))
    assert other.meter.taken == 0
    assert other.meter.generated > 0
    assert count_in(first.store) == first.meter.samples + other.meter.samples


def test_a_budget_buys_the_same_whether_paid_now_or_before(source: Path) -> None:
    settings = replace(CHAIN, budget=200)
    with pytest.warns(UserWarning, match="the budget of 200 tokens ended"):
        first = run(source, settings)
    with pytest.warns(UserWarning, match="the budget of 200 tokens ended"):
        again = run(source, replace(settings, store=first.store), "again.jsonl")

    assert 100 < first.found.spent <= 200
    assert again.meter.generated == 0
    assert first.target.read_bytes() == again.target.read_bytes()


def test_what_was_not_sampled_has_a_value_of_its_neighbours_and_no_error(source: Path) -> None:
    done = run(source, replace(CHAIN, boundaries="first:1"), "out.parquet")
    for row in rows_in(done.target):
        assert row["step_values"] == [row["step_values"][0]] * 4
        assert row["step_value_errors"][1:] == [None] * 3
        assert row["step_value_counts"] == [2, 0, 0, 0]
    assert "4 sampled; 12 filled in from their neighbours" in said(done)


def test_the_files_own_answers_count_where_this_policy_sampled_them(source: Path) -> None:
    alone, pooled = run(source, CHAIN), run(source, replace(CHAIN, same_policy=True), "pooled.jsonl")
    counts = [int(done.found.count[0, 0]) for done in (alone, pooled)]
    assert counts == [2, 4], "two continuations, and the two answers of the group"


def test_steps_are_cut_as_asked_for(source: Path) -> None:
    done = run(source, replace(CHAIN, split="chunks:12", most_step_tokens=6))
    assert int(done.work.steps.lengths.max()) <= 6
    assert [len(row["step_values"]) for row in rows_in(done.target)] == done.work.steps.counts.tolist()


def test_an_answer_may_have_as_many_tokens_as_the_longest_in_the_file(source: Path, answers: list[Rollout]) -> None:
    done = run(source, CHAIN)
    assert done.work.max_new_tokens == max(sum(row.action_mask) for row in answers)
    short = run(source, replace(CHAIN, max_new_tokens=9))
    assert f"{short.meter.samples}; {short.meter.cut_off} cut off for length" in said(short)
    assert short.meter.cut_off > short.meter.samples / 2


@pytest.mark.parametrize("terminal", [pytest.param(True, id="terminal"), pytest.param(False, id="pipe")])
def test_progress_says_what_is_settled_and_spent(source: Path, terminal: bool) -> None:
    screens = [io.StringIO(), io.StringIO()]
    for screen in screens:
        label(source, source.parent / "out.jsonl", MANY, Console(file=screen, width=120, force_terminal=terminal))
    shown, again = (screen.getvalue() for screen in screens)

    settled, wanted, tokens = map(int, re.findall(r"(\d+)/(\d+) prefixes  (\d+) tokens", shown)[-1])
    assert 0 < settled <= wanted == 14
    assert tokens > 100
    assert re.search(r"error 0\.1\d\d", shown)
    assert "stored" not in shown
    assert re.search(r"prefixes  0 tokens \+ \d\d\d stored", again)
    assert ("left" in shown) == terminal
    if not terminal:
        shares = [int(line.split("%")[0]) for line in shown.splitlines()]
        assert shares == sorted(shares)
        assert 2 < len(shares) <= 10


def test_a_prefix_is_settled_when_it_has_had_the_most_continuations(source: Path) -> None:
    screen = io.StringIO()
    label(source, source.parent / "out.jsonl", replace(CHAIN, samples=4, at_once=1), Console(file=screen, width=120))
    settled = [int(found) for found in re.findall(r"(\d+)/14 prefixes", screen.getvalue())]
    assert settled == [1, 3, 4, 5, 7, 8, 10, 11, 12, 14]


def test_where_more_prefixes_are_wanted_in_the_end_progress_begins_anew(source: Path) -> None:
    screen = io.StringIO()
    label(source, source.parent / "out.jsonl", replace(CHAIN, boundaries="refine:0"), Console(file=screen, width=120))
    wanted = [int(found) for found in re.findall(r"100%  (\d+)/\d+ prefixes", screen.getvalue())]
    assert wanted[0] == 2, "the prompts"
    assert len(wanted) > 1


def test_a_judge_that_does_not_agree_with_the_file_is_pointed_out(tmp_path: Path, answers: list[Rollout]) -> None:
    source = save(tmp_path / "in.jsonl", [replace(answers[0], outcome=-1.0), *answers[1:]])
    with pytest.warns(UserWarning, match=r"differ on 1 of 4 answers \(first: rollout r0, [01].0 and -1.0\)"):
        run(source, CHAIN)


def chain_answer(prompt: str) -> str:
    return str(sum(map(int, re.findall(r"^\d+|[+-]\d", prompt))))


class LastLine:
    """A module of the user's, with a checker in it."""

    @staticmethod
    def last_line(response: str, answer: str) -> bool:
        return response[0] == "A" and response.strip().split("\n")[-1] == answer


@pytest.mark.parametrize("found_by", ["text", "group", "tokens", "row"])
def test_reference_answers_are_found(
    tmp_path: Path, answers: list[Rollout], found_by: str, policy: CausalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "user_checkers", LastLine())
    source = save(tmp_path / "in.jsonl", [replace(row, group=f"g {row.group}") for row in answers])
    expected = rows_in(run(source, CHAIN).target)
    right = {prompt: chain_answer(prompt) for prompt in dict.fromkeys(str(row.group) for row in answers)}
    rows = {
        "text": [{"question": prompt, "answer": answer} for prompt, answer in right.items()],
        "group": [{"prompt": f"no. {a}", "answer": a, "group": f"g {p}"} for p, a in right.items()],
        "tokens": [{"prompt": f"Say {prompt}", "answer": answer} for prompt, answer in right.items()],
        "row": [row | {"ground_truth": int(right[row["group"][2:]])} for row in rows_in(source)],
    }[found_by]
    data = tmp_path / "data.jsonl"
    (source if found_by == "row" else data).write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(  # as where a chat template makes something else of a prompt
        "apportion.value_file.tokenizer.Tokenizer.encode", lambda self, text: policy.encode(text[len("Say ") :])
    )

    by_answers = replace(CHAIN, task=None, checker="user_checkers:last_line", data=None if found_by == "row" else data)
    assert rows_in(run(source, by_answers).target) == expected


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param({"prompt": "2?", "answer": "2"}, "no row has the prompt of group '", id="another prompt"),
        pytest.param({"prompt": "1?", "answer": "3"}, "'1[?]' has two answers, '1' and '3'", id="two answers"),
        pytest.param({"prompt": "2?", "answer": "2", "group": [1]}, "line 2: group is .1.", id="no group"),
    ],
)
def test_a_file_of_prompts_that_does_not_fit_is_refused(source: Path, row: dict[str, Any], words: str) -> None:
    data = source.with_name("data.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in [{"prompt": "1?", "answer": "1"}, row]))
    with pytest.raises(InputError, match=words):
        run(source, Settings(policy="embedded", checker="exact", data=data))


ONE = {"action_mask": [False, True]}


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        pytest.param(
            {}, {"task": None}, "in.jsonl, line 1: rollout r0 has no reference answer; give --data", id="answer"
        ),
        pytest.param(ONE | {"tokens": [-1, -2]}, {}, "rollout r0 came as text", id="text"),
        pytest.param(ONE | {"tokens": [7, 129]}, {}, "id 129, and --policy has 129 tokens", id="ids"),
        pytest.param(ONE | {"tokens": [7, 9]}, {}, "r1: its prompt is not that of others of its group", id="prompts"),
        pytest.param(ONE | {"tokens": [9, 1], "group": "g"}, {}, "not a chain", id="chain"),
        pytest.param({}, {"max_new_tokens": 250}, "do not fit the model's context of 256", id="length"),
        pytest.param({}, {"task": "gym"}, "there is no task 'gym' that judges; known: chain", id="task"),
        pytest.param({}, {"policy": "gone"}, "model gone: no such folder", id="policy"),
        pytest.param({}, {"policy": "gone", "engine": "ray"}, "model gone: no such folder", id="tokenizer"),
        pytest.param({}, {"split": "line"}, "did you mean 'lines'", id="splitter"),
    ],
)
def test_what_cannot_be_valued_is_refused_before_anything_is_sampled(
    tmp_path: Path, answers: list[Rollout], changes: dict[str, Any], settings: dict[str, Any], words: str
) -> None:
    source = save(tmp_path / "in.jsonl", [replace(answers[0], **changes), *answers[1:]])
    with pytest.raises(InputError, match=words) as refused:
        run(source, replace(CHAIN, **settings))
    assert "\n" not in str(refused.value)
    store = tmp_path / "out.jsonl.store"
    assert not store.exists() or count_in(store) == 0
    assert not (tmp_path / "out.jsonl").exists()


def test_a_prefix_too_long_for_the_model_is_refused_before_the_others_are_paid_for(
    tmp_path: Path, answers: list[Rollout]
) -> None:
    start = answers[0].action_mask.index(True)
    used = [sampled and n != start + 12 for n, sampled in enumerate(answers[3].action_mask)]  # one token of a tool
    source = save(tmp_path / "in.jsonl", [*answers[:3], replace(answers[3], action_mask=used)])
    with pytest.raises(InputError, match="do not fit the model's context of 256"):
        run(source, replace(CHAIN, max_new_tokens=256 - start, at_once=1))
    assert count_in(tmp_path / "out.jsonl.store") == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("out.csv", "must end in .jsonl or .parquet", id="ending"),
        pytest.param("gone/out.jsonl", "gone does not exist", id="folder"),
        pytest.param("in.jsonl", "give another --out", id="source"),
    ],
)
def test_a_target_that_could_not_be_written_is_refused_at_once(source: Path, name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run(source, CHAIN, name)
    assert os.listdir(source.parent) == ["in.jsonl"]


def test_killed_again_and_again_it_ends_with_what_one_run_would_have_given(source: Path) -> None:
    whole = run(source, MANY)
    count = count_in(whole.store)

    kills, drawn = killed_and_taken_up(source)
    assert kills == len(DEATHS)
    assert source.with_name("killed.jsonl").read_bytes() == whole.target.read_bytes()
    assert count_in(source.with_name("killed.jsonl.store")) == count
    assert drawn == count + 2 * MANY.at_once, "drawn twice are the two lots that were not written yet"


DEATHS = [(Lots, "continued", 1), (Stored, "_kept", 2), (Lots, "continued", 3), (Stored, "_kept", 1)]
"""After how many calls of a method each child is killed: with a lot drawn and not written, or just written."""


def killed_and_taken_up(source: Path) -> tuple[int, int]:
    """Label the file in children of which all but the last are killed; how many, and what all of them drew."""
    log = source.with_name("drawn")

    def labelled_until(owner: type, method: str, calls: int) -> Callable[[], None]:
        def work() -> None:
            after_calls(Lots, "continued", lambda lot: log.open("a").write(f"{len(lot)}\n"))
            left = iter(range(calls - 1, -1, -1))
            after_calls(owner, method, lambda _: next(left) or os.kill(os.getpid(), signal.SIGKILL))
            label(source, source.with_name("killed.jsonl"), MANY, QUIET)

        return work

    ends = [in_child(labelled_until(*death)) for death in [*DEATHS, (Stored, "close", 2)]]
    assert ends[-1][0] == 0, ends[-1]
    return [status for status, _ in ends].count(signal.SIGKILL), sum(map(int, log.read_text().split()))


def after_calls(owner: type, name: str, then: Callable[[Any], Any]) -> None:
    """Let something be done with what a method gives, before it is given."""
    method = getattr(owner, name)

    def both(*arguments: Any) -> Any:
        found = method(*arguments)
        then(found)
        return found

    setattr(owner, name, both)
