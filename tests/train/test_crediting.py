"""What changes in a run's credit as it goes on: schedules, running whitening, a KL in the reward, older rollouts."""

import json
from dataclasses import replace

import pytest
import torch

from apportion import files, normalise, recipes
from apportion.ledger import apportion
from apportion.policy.causal import CausalPolicy
from apportion.train.batch import Batch
from apportion.train.collect import Collector, make_task
from apportion.train.config import resolve
from apportion.train.credit import Crediting, penalised
from apportion.train.guards import Guards
from apportion.train.replay import Replay
from apportion.train.variance import NAMES, Scatter, gradient_variance
from runs import TINY, train


@pytest.fixture(scope="module")
def policy():
    return CausalPolicy.load("embedded")


def sampled(policy, **settings):
    """Scored rollouts, their problems, and what they are to be credited with."""
    config = resolve(TINY | {"temperature": 1.3, "recipe": "vineppo", "values": "exact"} | settings)
    collector = Collector(policy, make_task(config), config)
    problems = collector.task.held_out(4)
    rollouts = collector.scored(collector.rollouts(problems, 0), problems)
    return rollouts, problems, Crediting(config, collector, policy.reference())


def test_the_outcome_alone_decides_until_steps_are_credited(tmp_path):
    settings = {"recipe": "vineppo", "mc_samples": 2, "steps": 2, "step_credit_from": 0.5}
    rows = train(tmp_path / "run", **settings).rows("metrics.jsonl")
    plain = train(tmp_path / "plain", recipe="grpo", steps=1).rows("metrics.jsonl")
    assert [row.pop("step_credit_weight") for row in rows] == [0.0, 1.0]
    assert rows[0] == plain[0], "a step of grpo, which samples no continuation"
    assert rows[1]["generated_tokens"] > 2 * rows[0]["generated_tokens"]


def test_values_are_not_checked_while_nothing_is_credited_by_them(tmp_path):
    settings = {"recipe": "vineppo", "values": "likelihood", "steps": 2, "step_credit_from": 0.5}
    checks = {"check_values_every": 1, "check_prefixes": 4, "check_samples": 2}
    rows = train(tmp_path / "run", **settings, **checks).rows("metrics.jsonl")
    assert [row["value_gap"] is None for row in rows] == [True, False]


def test_on_a_ramp_an_advantage_is_between_the_two(policy):
    rollouts, problems, crediting = sampled(policy, steps=10, step_credit_from=0.2, step_credit_full=0.6)
    assert [round(crediting.weight(step, 0), 6) for step in (1, 2, 3, 6, 9)] == [0, 0, 0.25, 1, 1]
    whole, between, steps = (
        crediting.ledger(rollouts, problems, 0, weight=weight, kl_beta=0.0).advantage for weight in (0.0, 0.25, 1.0)
    )
    assert torch.equal(whole, apportion(rollouts, recipes.grpo()).advantage)
    torch.testing.assert_close(between, 0.75 * whole + 0.25 * steps)
    assert not torch.equal(whole, steps)


def test_progress_is_by_tokens_where_they_are_what_ends_the_run(policy):
    *_, crediting = sampled(policy, steps=100, token_budget=1000, step_credit_from=0.5)
    assert [crediting.weight(step, spent) for step, spent in ((0, 499), (0, 500), (50, 0), (1, 2000))] == [0, 1, 1, 1]


def test_running_whitening_is_that_of_all_batches_so_far(policy):
    rollouts, problems, crediting = sampled(policy, normalise="running")
    first, second = (crediting.ledger(rollouts, problems, 0, weight=1.0, kl_beta=0.0) for _ in range(2))
    both = torch.cat([first.credit, second.credit])
    mask, one = torch.cat([first.steps.mask] * 2), torch.zeros(len(both), dtype=torch.int64)
    torch.testing.assert_close(second.normalised, normalise.whiten(both, mask, one)[len(rollouts) :])
    torch.testing.assert_close(first.normalised, normalise.whiten(first.credit, first.steps.mask, one[: len(rollouts)]))
    *_, later = sampled(policy, normalise="running")
    later.load(json.loads(json.dumps(crediting.state())))
    assert later.seen == crediting.seen


def test_another_normalisation_than_the_recipes_own_is_a_setting(policy):
    rollouts, problems, crediting = sampled(policy, normalise="mean_abs")
    ledger = crediting.ledger(rollouts, problems, 0, weight=1.0, kl_beta=0.0)
    assert float(ledger.normalised[ledger.steps.mask].abs().mean()) == pytest.approx(1)


@pytest.mark.parametrize("recipe", ["reinforce", "grpo", "vineppo"])
def test_a_kl_in_the_reward_is_a_part_that_adds_up_to_the_whole_answers(policy, recipe):
    rollouts, *_ = sampled(policy)
    tokens = torch.where(
        rollouts.action_mask, torch.linspace(-1, 1, rollouts.tokens.numel()).view_as(rollouts.tokens), 0
    )
    made = recipes.by_name(recipe)
    if recipe == "vineppo":
        made = recipes.replace(made, value=recipes.baselines.group_mean)
    ledger = apportion(rollouts, penalised(made, rollouts, tokens)).require_laws()
    assert set(ledger.parts) == {"outcome", "kl"}
    torch.testing.assert_close(ledger.parts["kl"].sum(1), tokens.sum(1))
    if recipe == "reinforce":
        torch.testing.assert_close(ledger.credit.squeeze(1), rollouts.outcome + tokens.sum(1))


def test_the_kl_in_the_reward_is_that_to_the_starting_model(policy):
    rollouts, problems, crediting = sampled(policy, kl_beta=0.5, kl_in="reward")
    ledger = crediting.ledger(rollouts, problems, 0, weight=1.0, kl_beta=0.5)
    assert float(ledger.parts["kl"].abs().max()) < 1e-4, "so far it is the policy itself"
    shifted = rollouts.logprobs - 0.25
    moved = replace(rollouts, logprobs=shifted)
    ledger = crediting.ledger(moved, problems, 0, weight=1.0, kl_beta=0.5)
    torch.testing.assert_close(ledger.parts["kl"].sum(1), 0.125 * rollouts.action_counts, rtol=0, atol=1e-3)


def test_a_kl_in_the_reward_is_no_term_of_the_loss(tmp_path):
    assert [Guards.of(resolve({"kl_beta": 0.5, "kl_in": place})).terms.kl_beta for place in ("loss", "reward")] == [
        0.5,
        0,
    ]
    settings = {"steps": 3, "learning_rate": 1e-3}
    free = train(tmp_path / "free", **settings).rows("metrics.jsonl")
    held = train(tmp_path / "held", **settings, kl_beta=0.5, kl_in="reward").rows("metrics.jsonl")
    assert held[0]["loss"] == pytest.approx(free[0]["loss"], abs=1e-4), "nothing is far from the start yet"
    assert abs(held[0]["reward_kl"]) < 1e-5 < 1e-3 < -held[-1]["reward_kl"]
    assert [row["kl_beta"] for row in held] == [0.5] * 3
    assert held[-1]["loss"] != free[-1]["loss"]


def batch_of(policy, temperature):
    rollouts, problems, crediting = sampled(policy, temperature=temperature)
    return Batch.of(crediting.ledger(rollouts, problems, 0, weight=1.0, kl_beta=0.0))


def test_older_rollouts_are_at_most_their_share_and_keep_what_they_came_with(policy):
    old, fresh = batch_of(policy, 1.5), batch_of(policy, 1.3)
    replay = Replay(share=0.2, steps=2)
    assert replay.joined(fresh, torch.Generator()) is fresh
    replay.keep(old)
    joined = replay.joined(fresh, torch.Generator().manual_seed(0))
    assert (len(fresh.tokens), len(joined.tokens)) == (16, 20)
    assert joined.fresh.tolist() == [True] * 16 + [False] * 4
    assert joined.rollout_of[:, 0].unique().numel() == 20
    known = {
        tuple(row[row_valid].tolist()): n for n, (row, row_valid) in enumerate(zip(old.tokens, old.valid, strict=True))
    }
    for row in joined.take(torch.arange(16, 20)).parts(torch.arange(4), 1, 1):
        n = known[tuple(row.tokens[row.valid].tolist())]
        width = row.tokens.shape[1]
        assert torch.equal(row.old_logprobs[0].nan_to_num(), old.old_logprobs[n, :width].nan_to_num())
        assert torch.equal(row.advantages[0], old.advantages[n, :width])
    now = torch.full_like(joined.old_logprobs, -7.0)
    assert (joined.as_sampled(now).old_logprobs == -7).all(1).tolist() == joined.fresh.tolist()


def test_only_rollouts_that_teach_are_kept_and_only_for_some_steps(policy):
    batch = batch_of(policy, 1.3)
    silent = replace(batch, advantages=torch.zeros_like(batch.advantages))
    replay = Replay(share=0.2, steps=2)
    replay.keep(silent)
    assert replay.state() == []
    for _ in range(3):
        replay.keep(batch)
    assert len(replay.state()) == 2
    again = Replay(share=0.2, steps=2)
    again.load(replay.state(), torch.device("cpu"))
    one, two = (kept.joined(batch, torch.Generator().manual_seed(3)) for kept in (replay, again))
    assert torch.equal(one.tokens, two.tokens)


def test_a_run_trains_on_older_rollouts_beside_all_fresh_ones(tmp_path):
    settings = {"steps": 3, "learning_rate": 1e-3}
    plain = train(tmp_path / "plain", **settings).rows("metrics.jsonl")
    rows = train(tmp_path / "run", **settings, replay_share=0.2, replay_steps=2).rows("metrics.jsonl")
    assert rows[0] == plain[0]
    assert rows[1]["ratio_max"] > rows[0]["ratio_max"] == pytest.approx(1)
    for row in rows[1:]:
        assert row["sampled_tokens"] < row["trained_tokens"] <= 1.6 * row["sampled_tokens"]
        assert row["mismatch_max"] < 1e-3, "only of what this policy sampled"


def test_vectors_scatter_as_their_variances_say():
    vectors = torch.randn(5, 7)
    scatter = Scatter()
    for vector in vectors:
        scatter.add(vector)
    assert scatter.variance == pytest.approx(float(vectors.var(0).sum()), rel=1e-5)


def test_the_gradients_variance_is_that_of_the_gradients_of_every_prompt(policy):
    rollouts, problems, crediting = sampled(policy, micro_batch=3)
    ledger = crediting.ledger(rollouts, problems, 0, weight=1.0, kl_beta=0.0)
    found = gradient_variance(ledger, policy, crediting.config, torch.Generator())
    by_answer = apportion(rollouts, recipes.dr_grpo()).advantage
    weights = list(policy.model.parameters())
    scatters = Scatter(), Scatter()
    for group in rollouts.groups.unique():
        for scatter, advantage in zip(scatters, (ledger.advantage, by_answer), strict=True):
            loss = torch.zeros(())
            for n in (rollouts.groups == group).nonzero().flatten():
                row = slice(int(n), int(n) + 1)
                columns = rollouts.tokens[row], rollouts.valid_mask[row], rollouts.action_mask[row]
                logprobs, _ = policy.logprobs(*columns, temperature=crediting.config.temperature)
                loss = loss - (advantage[row] * logprobs).sum() / 4
            scatter.add(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)]))
    assert found["gradient_variance"] == pytest.approx(scatters[0].variance, rel=1e-3)
    assert found["gradient_variance_ratio"] == pytest.approx(scatters[0].variance / scatters[1].variance, rel=1e-3)


def test_the_variance_of_credit_by_answer_is_the_sequence_levels_own(tmp_path):
    rows = train(tmp_path / "run", steps=3, gradient_variance_every=2).rows("metrics.jsonl")
    assert [row["gradient_variance_ratio"] for row in rows] == [1.0, None, 1.0]
    plain = train(tmp_path / "plain", steps=3).rows("metrics.jsonl")
    assert [row["loss"] for row in rows] == [row["loss"] for row in plain], "looking changes nothing"
    assert set(NAMES) <= set(rows[1])


def test_ledgers_of_a_blend_can_be_read(tmp_path):
    settings = {"recipe": "vineppo", "values": "exact", "steps": 2, "step_credit_full": 1.0}
    run = train(tmp_path / "run", **settings)
    assert len(files.load(run.ledgers / "step-000001.jsonl")) == 16
