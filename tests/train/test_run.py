"""Whole runs on the embedded model: what is learnt, and what is written down of it."""

import json
import time

import pytest
import torch

from apportion import files
from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy
from apportion.recipes import BY_NAME
from apportion.tasks.chain import Chain
from apportion.train.batch import Batch
from apportion.train.config import resolve
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.values.spot_check import Gap
from runs import TINY, Silent, train


@pytest.mark.parametrize("recipe", BY_NAME)
def test_a_run_of_every_recipe_leaves_a_folder_that_can_be_read(tmp_path, recipe):
    run = train(tmp_path / "run", recipe=recipe, steps=2)
    rows = run.rows("metrics.jsonl")
    assert [row["step"] for row in rows] == [0, 1]
    numbers = [value for row in rows for name, value in row.items() if name != "events"]
    assert all(value is None or abs(value) < float("inf") for value in numbers)
    assert rows[-1]["mismatch_max"] < 1e-3
    ledger = json.loads((run.ledgers / "step-000001.jsonl").read_text().splitlines()[0])
    assert ledger["ledger"]["recipe"] == recipe
    assert len(files.load(run.ledgers / "step-000001.jsonl")) == 16
    assert set(run.evaluations()) == {"before", "after"}
    assert CausalPolicy.load(run.model).parameters == CausalPolicy.load("embedded").parameters


def test_monte_carlo_continuations_are_counted_as_generated_tokens(tmp_path):
    rows = train(tmp_path / "run", recipe="vineppo", steps=1, mc_samples=2).rows("metrics.jsonl")
    plain = train(tmp_path / "plain", recipe="grpo", steps=1).rows("metrics.jsonl")
    assert rows[0]["sampled_tokens"] == plain[0]["sampled_tokens"]
    assert rows[0]["generated_tokens"] > 1.5 * plain[0]["generated_tokens"]


def test_values_to_a_standard_error_of_some_steps_of_the_best_answers_cost_less(tmp_path):
    plain = train(tmp_path / "plain", recipe="vineppo", steps=1, mc_samples=4).rows("metrics.jsonl")[0]
    lean = {"mc_error": 0.25, "mc_boundaries": "refine:0.3", "mc_best_share": 0.5}
    run = train(tmp_path / "lean", recipe="vineppo", steps=1, **lean)
    assert run.rows("metrics.jsonl")[0]["generated_tokens"] < 0.6 * plain["generated_tokens"]
    rows = [json.loads(line)["ledger"] for line in (run.ledgers / "step-000000.jsonl").read_text().splitlines()]
    assert {1, max(len(row["credit"]) for row in rows)} <= {len(row["credit"]) for row in rows}


@pytest.mark.parametrize("values", ["likelihood", "exact"])
def test_values_that_cost_no_tokens_can_be_trained_on(tmp_path, values):
    plain = train(tmp_path / "plain", recipe="grpo", steps=1).rows("metrics.jsonl")
    rows = train(tmp_path / "run", recipe="vineppo", steps=1, values=values).rows("metrics.jsonl")
    assert rows[0]["generated_tokens"] == plain[0]["generated_tokens"]
    assert rows[0]["steps_per_rollout"] > 2


def test_values_are_checked_against_continuations_when_it_is_due(tmp_path):
    settings = {"recipe": "vineppo", "values": "likelihood", "steps": 3}
    checks = {"check_values_every": 2, "check_prefixes": 8, "check_samples": 2}
    plain = train(tmp_path / "plain", **settings).rows("metrics.jsonl")
    rows = train(tmp_path / "run", **settings, **checks).rows("metrics.jsonl")
    assert "value_gap" not in plain[0]
    assert [row["value_gap"] is None for row in rows] == [False, True, False]
    assert rows[0]["value_gap"] > 0.2, "nobody writes the answer right away"
    assert rows[0]["value_bias"] < 0
    assert rows[0]["generated_tokens"] > plain[0]["generated_tokens"]
    assert [row["loss"] for row in rows] == [row["loss"] for row in plain], "looking changes nothing"


def test_values_that_no_longer_fit_are_an_alarm(tmp_path, monkeypatch):
    gaps = iter([Gap(8, 0.0, 0.01, 0.001), Gap(8, 0.3, 0.09, 0.001)])
    monkeypatch.setattr("apportion.train.values.checked", lambda *arguments: next(gaps))
    with pytest.warns(UserWarning, match=r"off by 0\.30 .*bias \+0\.30\), and were by 0\.10 at best"):
        train(tmp_path / "run", recipe="vineppo", values="exact", steps=2, check_values_every=1)


def test_prompts_that_fail_are_asked_more_often_within_one_budget(tmp_path):
    run = train(tmp_path / "run", steps=1, first_answers=2)
    rows = [json.loads(line) for line in (run.ledgers / "step-000000.jsonl").read_text().splitlines()]
    assert len(rows) == 16
    groups = [row["group"] for row in rows]
    assert groups == sorted(groups)
    first = {g: [row["outcome"] for row in rows if row["group"] == g][:2] for g in groups}
    sizes = {g: groups.count(g) for g in groups}
    assert min(sizes.values()) >= 2
    assert len(set(sizes.values())) > 1
    hardest, easiest = min(first, key=lambda g: sum(first[g])), max(first, key=lambda g: sum(first[g]))
    assert sizes[hardest] > sizes[easiest]


def test_a_run_ends_with_the_step_that_spends_its_tokens(tmp_path):
    whole = train(tmp_path / "whole", steps=4).rows("metrics.jsonl")
    budget = whole[1]["generated_tokens"]
    run = train(tmp_path / "run", steps=4, token_budget=budget)
    assert run.rows("metrics.jsonl") == whole[:2]
    assert run.evaluations()["after"]["step"] == 2
    assert run.steps_taken() == 2


@pytest.mark.parametrize("forks", ["even", "entropy", "uncertainty"])
def test_trees_generate_fewer_tokens_than_they_train_answers_on(tmp_path, forks):
    settings = {"tree_roots": 2, "tree_rounds": 2, "tree_forks": forks}
    run = train(tmp_path / "run", recipe="tree", steps=1, **settings)
    metrics = run.rows("metrics.jsonl")[0]
    rows = [json.loads(line) for line in (run.ledgers / "step-000000.jsonl").read_text().splitlines()]

    assert len(rows) == 16
    branches = [row for row in rows if row.get("branched_at")]
    assert len(branches) == 8
    shared = sum(row["branched_at"] - len(row["prompt"]) for row in branches)
    assert metrics["generated_tokens"] == metrics["trained_tokens"] == metrics["sampled_tokens"] - shared
    assert metrics["mismatch_max"] < 1e-3


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path):
    one, two, other = (
        (train(tmp_path / name, steps=2, seed=seed).path / "metrics.jsonl").read_bytes()
        for name, seed in [("one", 3), ("two", 3), ("other", 4)]
    )
    assert one == two
    assert one != other


def test_the_policy_moves_by_its_gradient_and_the_reference_stays(tmp_path):
    config = resolve(TINY | {"steps": 2})
    trainer = Trainer(RunFolder.new(tmp_path / "run"), config, Silent())
    start = {name: weights.clone() for name, weights in trainer.policy.model.state_dict().items()}
    trainer.train()
    moved = trainer.policy.model.state_dict()
    assert any(not torch.equal(start[name], moved[name]) for name in start)
    assert trainer.updater.reference is not None
    with trainer.updater.reference() as reference:
        kept = reference.model.state_dict()
    assert all(torch.equal(start[name], kept[name]) for name in start)


def test_micro_batches_do_not_change_what_is_learnt(tmp_path):
    whole = train(tmp_path / "whole", steps=1, micro_batch=16).rows("metrics.jsonl")[0]
    cut = train(tmp_path / "cut", steps=1, micro_batch=3).rows("metrics.jsonl")[0]
    assert cut["loss"] == pytest.approx(whole["loss"], abs=1e-6)
    assert cut["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-4)


@pytest.mark.parametrize("recipe", ["grpo", "ppo"])
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_layout_does_not_change_what_is_learnt(tmp_path, layout, recipe):
    settings = {"recipe": recipe, "steps": 1, "kl_beta": 0.1, "entropy_bonus": 0.01}
    once = train(tmp_path / "once", **settings).rows("metrics.jsonl")[0]
    other = train(tmp_path / "other", layout=layout, **settings).rows("metrics.jsonl")[0]
    for name in {"loss", "grad_norm", "critic_loss", "critic_grad_norm"} & once.keys():
        assert other[name] == pytest.approx(once[name], rel=1e-4, abs=1e-6), name


def test_the_first_ratio_is_exactly_1_whatever_is_sampled_from(tmp_path):
    row = train(tmp_path / "run", steps=1, chain_steps=4, max_new_tokens=48, temperature=1.2, top_p=0.95).rows(
        "metrics.jsonl"
    )[0]
    assert row["ratio_min"] == row["ratio_max"] == 1
    assert 0 < row["mismatch_max"] < 1e-3


def test_rollouts_that_move_nothing_are_left_out_of_the_passes_and_of_nothing_else(tmp_path, monkeypatch):
    real, seen = Batch.take, []
    monkeypatch.setattr(Batch, "take", lambda batch, rows: seen.append(len(rows)) or real(batch, rows))
    rows = {}
    for bonus in (0.0, 1e-12):  # with an entropy bonus, every rollout counts
        settings = {"steps": 1, "entropy_bonus": bonus, "gradient_variance_every": None}
        rows[bonus] = train(tmp_path / str(bonus), **settings).rows("metrics.jsonl")[0]
        rows[bonus]["passed_through"] = sum(seen)
        seen.clear()
    assert rows[0.0]["zero_variance_groups"] == 0.5
    assert rows[0.0]["passed_through"] == 8
    assert rows[1e-12]["passed_through"] == 16
    for name in ("loss", "grad_norm", "trained_tokens"):
        assert rows[0.0][name] == pytest.approx(rows[1e-12][name], rel=1e-4, abs=1e-7)


def test_an_adapter_is_all_that_is_trained_and_the_model_that_is_kept_has_it_merged(tmp_path):
    config = resolve(TINY | {"steps": 2, "lora_rank": 4, "learning_rate": 1e-2, "kl_beta": 0.1})
    trainer = Trainer(RunFolder.new(tmp_path / "run"), config, Silent())
    before = {name: weights.clone() for name, weights in trainer.policy.model.state_dict().items()}
    trainer.train()
    after = trainer.policy.model.state_dict()
    assert {name for name in before if not torch.equal(before[name], after[name])} == set(trainer.policy.weights())
    assert all("lora_" in name for name in trainer.policy.weights())
    kept, start = CausalPolicy.load(trainer.run.model), CausalPolicy.load("embedded")
    tokens = torch.tensor([start.encode("47A+5B-3~~?")])
    merged, own, old = (policy.model(input_ids=tokens).logits for policy in (kept, trainer.policy, start))
    torch.testing.assert_close(merged, own, rtol=1e-4, atol=1e-4)
    assert (own - old).abs().max() > 0.01
    rows = trainer.run.rows("metrics.jsonl")
    assert rows[0]["kl"] == pytest.approx(0, abs=1e-7), "without the adapter it is its own reference"
    assert rows[1]["kl"] > 1e-5


def test_without_a_reference_the_same_is_learnt_and_what_it_would_say_is_not_known(tmp_path):
    with_it = train(tmp_path / "with", steps=1).rows("metrics.jsonl")[0]
    without = train(tmp_path / "without", steps=1, keep_reference=False, entropy_floor=0.0).rows("metrics.jsonl")[0]
    assert without["kl"] is without["entropy_share_of_reference"] is None
    assert (without["loss"], without["grad_norm"]) == (with_it["loss"], with_it["grad_norm"])


def test_half_precision_and_finding_things_twice_come_to_much_the_same(tmp_path):
    plain = train(tmp_path / "plain", steps=1, layout="padded").rows("metrics.jsonl")[0]
    lean = train(tmp_path / "lean", steps=1, layout="padded", gradient_checkpointing=True).rows("metrics.jsonl")[0]
    assert lean["grad_norm"] == pytest.approx(plain["grad_norm"], rel=1e-4)
    half = train(tmp_path / "half", steps=1, bf16=True).rows("metrics.jsonl")[0]
    assert half["entropy"] == pytest.approx(plain["entropy"], rel=0.1)
    assert 1e-4 < half["mismatch_max"] < 0.5


def test_while_the_critic_warms_up_the_policy_stays(tmp_path):
    run = train(tmp_path / "run", recipe="ppo", steps=3, critic_warmup=2, learning_rate=1e-3)
    rows = run.rows("metrics.jsonl")
    assert [row["loss"] is None for row in rows] == [True, True, False]
    assert all(row["critic_loss"] is not None for row in rows)
    assert rows[1]["explained_variance"] is not None
    start, kept = CausalPolicy.load("embedded").model.state_dict(), CausalPolicy.load(run.model).model.state_dict()
    assert any(not torch.equal(start[name], kept[name]) for name in start)


def test_a_critic_can_value_the_lines_of_any_recipe_that_asks_for_values(tmp_path):
    run = train(tmp_path / "run", recipe="vineppo", values="critic", steps=2, learning_rate=1e-3)
    rows = [json.loads(line)["ledger"] for line in (run.ledgers / "step-000001.jsonl").read_text().splitlines()]
    assert any(len(row["value"]) > 2 and len(set(row["value"])) > 2 for row in rows)


def test_several_updates_a_batch_move_the_ratio_away_from_1(tmp_path):
    row = train(tmp_path / "run", steps=1, updates=4, learning_rate=1e-3).rows("metrics.jsonl")[0]
    assert row["ratio_min"] < 0.99
    assert row["mismatch_max"] < 1e-3


def test_an_update_without_finite_numbers_is_skipped_and_counted(tmp_path, monkeypatch):
    config = resolve(TINY | {"steps": 1})
    trainer = Trainer(RunFolder.new(tmp_path / "run"), config, Silent())
    start = {name: weights.clone() for name, weights in trainer.policy.model.state_dict().items()}
    real = trainer.policy.scorer.forward
    monkeypatch.setattr(
        trainer.policy.scorer, "forward", lambda *a, **k: tuple(x * float("nan") for x in real(*a, **k))
    )
    trainer.train()
    assert all(torch.equal(start[name], weights) for name, weights in trainer.policy.model.state_dict().items())
    row = trainer.run.rows("metrics.jsonl")[0]
    assert row["skipped_updates"] == 1
    assert row["loss"] is row["grad_norm"] is row["kl"] is None
    assert row["events"] == [
        {"guard": "not_finite", "seen": 1, "done": "left out updates whose loss or gradient is no number"}
    ]


def test_continuations_for_values_keep_to_what_is_left_of_an_answers_length(tmp_path):
    # no answer to five steps fits in 24 tokens, so no prefix has any chance
    run = train(tmp_path / "run", recipe="vineppo", steps=1, chain_steps=5, mc_samples=2)
    rows = [json.loads(line) for line in (run.ledgers / "step-000000.jsonl").read_text().splitlines()]
    assert {value for row in rows for value in row["ledger"]["value"]} == {0.0}


def test_a_batch_in_which_nothing_could_be_scored_is_data_and_no_crash(tmp_path, monkeypatch):
    monkeypatch.setattr("apportion.tasks.chain.Chain.score", lambda self, problem, response: None)
    for recipe in ("grpo", "vineppo"):
        row = train(tmp_path / recipe, recipe=recipe, steps=1).rows("metrics.jsonl")[0]
        assert row["unscored"] == 1
        assert row["pass_rate"] is row["kl"] is None
        assert row["loss"] == 0


def test_a_fixed_divisor_weighs_a_token_by_the_longest_batch_there_could_be(tmp_path):
    by_mean = train(tmp_path / "mean", steps=1).rows("metrics.jsonl")[0]
    fixed = train(tmp_path / "fixed", steps=1, reduction="fixed_divisor").rows("metrics.jsonl")[0]
    share = by_mean["trained_tokens"] / (4 * 4 * 24)
    assert fixed["grad_norm"] == pytest.approx(by_mean["grad_norm"] * share, rel=1e-4)


def test_answers_that_could_not_be_judged_are_told_in_the_metrics(tmp_path, monkeypatch):
    real, calls = Chain.score, iter(range(10_000))

    def score(task, problem, response):
        if next(calls) % 3 == 1:
            raise RuntimeError("the judge is away")
        return real(task, problem, response)

    monkeypatch.setattr(Chain, "score", score)
    row = train(tmp_path / "run", steps=1).rows("metrics.jsonl")[0]
    [event] = row["events"]
    assert event["guard"] == "judge"
    assert event["seen"] == row["unscored"] * 16 >= 5
    assert "RuntimeError: the judge is away" in event["done"]


def test_continuations_that_the_judge_fails_on_are_left_unscored_and_told(tmp_path, monkeypatch):
    real, calls = Chain.score, iter(range(10_000))

    def score(task, problem, response):
        number = next(calls)
        if number >= 8 + 16 and number % 5 == 0:  # behind the test before the run, and behind the answers
            raise RuntimeError("the judge is away")
        if number == 8 + 16 + 1:
            time.sleep(2)
        return real(task, problem, response)

    monkeypatch.setattr(Chain, "score", score)
    settings = {"steps": 1, "recipe": "vineppo", "mc_samples": 6, "judge_timeout": 0.5}
    row = train(tmp_path / "run", **settings).rows("metrics.jsonl")[0]
    [event] = row["events"]
    assert event["guard"] == "judge"
    assert event["seen"] > 20
    assert row["unscored"] == 0


def test_a_judge_who_fails_on_all_continuations_ends_the_run_by_what_he_said(tmp_path, monkeypatch):
    real, calls = Chain.score, iter(range(10_000))

    def score(task, problem, response):
        if next(calls) >= 8 + 16:
            raise RuntimeError("the judge is away")
        return real(task, problem, response)

    monkeypatch.setattr(Chain, "score", score)
    with pytest.raises(InputError, match="could be judged; the first: the judge raised RuntimeError: the judge is"):
        train(tmp_path / "run", recipe="vineppo", steps=1, mc_samples=2)
