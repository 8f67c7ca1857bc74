"""Inside verl itself, on a CPU: its own functions, batches, trainer and reward loop, up to where it wants a GPU.

make test-verl
"""

from __future__ import annotations

import asyncio
import re
import runpy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl names every engine that is not installed
    pytest.importorskip("verl", reason="verl is not installed: make test-verl runs these in an environment of its own")
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo import core_algos
    from verl.trainer.ppo.ray_trainer import compute_advantage
    from verl.workers.config import ActorConfig

from apportion import credit, losses, recipes
from apportion.adapters.verl import register
from apportion.losses import ppo_clip
from apportion.steps import splitters
from verl_queue import Spelling, config_of, critic_batch, on_actions, output, run_trainer

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "verl.md"
EXAMPLE = ROOT / "examples" / "verl_in_process.py"


def batch(seed=0, *, width=None):
    """Random rewards of eight answers to four prompts: with tool tokens and padding, or all of one length."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 13, (8,), generator=generator) if width is None else torch.full((8,), width)
    mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    if width is None:
        mask &= ~((torch.rand(mask.shape, generator=generator) < 0.3) & (torch.arange(mask.shape[1]) > 0))
        mask[torch.arange(8), lengths - 1] = True
    rewards = torch.zeros(mask.shape)
    rewards[torch.arange(8), lengths - 1] = torch.randn(8, generator=generator)
    return rewards, mask.long()


def advantages_of(name, rewards, mask, **config):
    data = DataProto.from_dict(
        {"token_level_rewards": rewards.clone(), "response_mask": mask},
        non_tensors={"uid": numpy.array(list("aabbccdd"), dtype=object)},
    )
    settings = AlgoConfig(adv_estimator=name, **config)
    norm = settings.norm_adv_by_std_in_grpo
    return compute_advantage(data, name, config=settings, norm_adv_by_std_in_grpo=norm).batch["advantages"]


# --- the same numbers as verl's own -----------------------------------------------------------------------------------


def test_installing_apportion_registers_every_recipe():
    names = {f"apportion_{name}" for name in recipes.BY_NAME if name != "tree"}
    assert names <= set(core_algos.ADV_ESTIMATOR_REGISTRY)


@pytest.mark.parametrize("seed", range(3), ids=str)
@pytest.mark.parametrize(
    ("ours", "theirs", "config"),
    [("grpo", "grpo", {}), ("rloo", "rloo", {}), ("dr_grpo", "grpo", {"norm_adv_by_std_in_grpo": False})],
    ids=["grpo", "rloo", "dr_grpo"],
)
def test_credit_of_whole_answers_is_verls_over_tool_tokens_and_padding(seed, ours, theirs, config):
    rewards, mask = batch(seed)
    found, expected = advantages_of(f"apportion_{ours}", rewards, mask), advantages_of(theirs, rewards, mask, **config)
    assert torch.allclose(found, expected, atol=1e-6, rtol=0)


def test_an_answer_alone_in_its_group_gets_nothing_here_and_its_raw_score_there():
    rewards, mask = torch.tensor([[0.0, 1.0]]), torch.ones(1, 2, dtype=torch.int64)
    data = {"token_level_rewards": rewards, "response_mask": mask, "index": ["p"], "config": AlgoConfig()}
    assert core_algos.get_adv_estimator_fn("rloo")(**data)[0].tolist() == [[1.0, 1.0]]
    assert core_algos.get_adv_estimator_fn("apportion_rloo")(**data)[0].tolist() == [[0.0, 0.0]]


def test_reinforce_plus_plus_is_verls_up_to_a_factor_where_answers_are_of_one_length():
    rewards, mask = batch(width=6)
    found = advantages_of("apportion_reinforce_plus_plus", rewards, mask)
    expected = advantages_of("reinforce_plus_plus", rewards, mask)
    # both have mean 0 and spread 1: ours over 8 answers, verl's over their 48 tokens
    assert torch.allclose(found * (47 / 48 * 8 / 7) ** 0.5, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("gamma", [1.0, 0.9], ids=str)
def test_with_every_token_a_step_reinforce_plus_plus_is_verls_on_any_lengths(gamma, monkeypatch):
    monkeypatch.setattr(core_algos, "ADV_ESTIMATOR_REGISTRY", dict(core_algos.ADV_ESTIMATOR_REGISTRY))
    by_token = replace(
        recipes.reinforce_plus_plus(), split=splitters.every_token, credit=credit.gae_with(gamma=gamma, lam=1.0)
    )
    register("by_token", lambda config: by_token)
    rewards, mask = batch()
    found, expected = (advantages_of(n, rewards, mask, gamma=gamma) for n in ("by_token", "reinforce_plus_plus"))
    assert torch.allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.97, 0.9)], ids=["sum", "discounted"])
def test_ppo_under_the_trainer_is_verls_gae_over_tool_tokens(monkeypatch, gamma, lam):
    settings = [f"algorithm.gamma={gamma}", f"algorithm.lam={lam}", "critic.enable=True"]
    ours = run_trainer(monkeypatch, "apportion", critic_batch(), "algorithm.adv_estimator=apportion_ppo", *settings)
    theirs = run_trainer(monkeypatch, "sync", critic_batch(), "algorithm.adv_estimator=gae", *settings)
    for name in ("advantages", "returns"):
        assert torch.allclose(on_actions(ours, name), on_actions(theirs, name), atol=1e-6, rtol=0)
    assert ours.rows["p_0_0"]["advantages"][2:4].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("reduction", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_verls_loss_of_token_advantages_is_ours(reduction):
    rewards, mask = batch()
    found = advantages_of("apportion_rloo", rewards, mask) * torch.linspace(0.5, 1.5, mask.shape[1])
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(mask.shape, generator=generator)
    new = (old + 0.5 * torch.randn(mask.shape, generator=generator)).requires_grad_()
    actor = ActorConfig(strategy="fsdp", rollout_n=2, ppo_micro_batch_size_per_gpu=2, clip_ratio_c=1e6)
    loss, _ = core_algos.compute_policy_loss_vanilla(old, new, found, mask, reduction, actor)
    by_token = ppo_clip(new, old, found, mask.bool())
    rows = torch.arange(8).unsqueeze(1).expand_as(mask)
    weights = {
        "token-mean": losses.token_mean(mask.bool(), rows),
        "token-sum": mask.float(),
        "seq-mean-token-sum": losses.sequence_sum(mask.bool(), rows),
        "seq-mean-token-mean": losses.sequence_mean(mask.bool(), rows),
    }
    expected = losses.total(by_token, weights[reduction])
    assert torch.allclose(loss, expected, rtol=1e-5)
    assert torch.allclose(
        *(torch.autograd.grad(each, new, retain_graph=True)[0] for each in (loss, expected)), atol=1e-6
    )


@pytest.mark.parametrize(
    "reduction",
    ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"],
)
def test_in_all_five_of_verls_reductions_our_credit_has_the_loss_of_verls(reduction):
    rewards, mask = batch(2)
    ours, theirs = advantages_of("apportion_rloo", rewards, mask), advantages_of("rloo", rewards, mask)
    push = torch.linspace(-1.5, -0.5, mask.shape[1])  # a loss that differs along an answer: balanced groups add up to 0
    found = [core_algos.agg_loss(grid * push, mask, reduction) for grid in (ours, theirs)]
    assert torch.allclose(*found, atol=1e-6)
    assert float(found[0].abs()) > 1e-3


# --- rewards ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "total", "steps"),
    [(0.5, 0.5, ""), ([0.25, 0.5], 0.75, "[0.25, 0.5]"), ({"score": 1.0, "step_rewards": [0.5]}, 1.5, "[0.5]")],
    ids=["number", "list", "dict"],
)
def test_a_reward_function_may_return_step_rewards(returned, total, steps):
    texts = []

    def compute_score(solution_str, **_):
        texts.append(solution_str)
        return returned

    data = DataProto.from_dict(
        {"responses": torch.tensor([[0, 8, 1, 9]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0]])},
        non_tensors={
            "data_source": numpy.array(["task"], dtype=object),
            "reward_model": numpy.array([{"ground_truth": "b"}], dtype=object),
        },
    )

    async def scored():
        manager = get_reward_manager_cls("apportion")(None, Spelling(), compute_score)
        return await manager.run_single(data)

    came = asyncio.run(scored())
    assert texts == ["a\nb"]
    assert came["reward_score"] == total
    assert came["reward_extra_info"]["apportion_step_rewards"] == steps


# --- what is shown is run ---------------------------------------------------------------------------------------------


def test_the_example_runs_as_written(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["[[1.0, 1.0, 0.0, 1.0], [-1.0, 0.0, -1.0, 0.0]] -0.2", "['holds', 'not checkable']"]


def test_every_option_of_the_run_on_a_gpu_is_one_of_verls_or_ours():
    script = (ROOT / "examples" / "verl_gpu_run.sh").read_text()
    options = [line.strip(' \\"') for line in re.findall(r"^  (\+?[\w.]+=.*?)(?: \\| \|.*)$", script, re.M)]
    names = {option.partition("=")[0].lstrip("+") for option in options}
    assert {"trainer.v1.trainer_mode", "apportion.capture_every", "trainer.total_training_steps"} <= names
    settings = [option.replace('"', "").replace("${ESTIMATOR[$ARM]}", "apportion_grpo") for option in options]
    config = config_of(*(setting.replace("$STEPS", "20").replace("$", "") for setting in settings))
    assert config.trainer.total_training_steps == 20
    assert config.algorithm.rollout_correction.rollout_rs_threshold == "0.5_2.0"
    for estimator in re.findall(r"\]=(\w+)", script):
        assert estimator in core_algos.ADV_ESTIMATOR_REGISTRY


def test_the_recipe_of_ones_own_on_the_page_is_registered(monkeypatch):
    monkeypatch.setattr(core_algos, "ADV_ESTIMATOR_REGISTRY", dict(core_algos.ADV_ESTIMATOR_REGISTRY))
    (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    exec(block, {})
    rows = [output("p_0_0", "abc", mask=[1, 0, 1], score=1.0, info={"apportion_step_values": "[0.5, 0.75]"})]
    found = run_trainer(monkeypatch, "apportion", rows, "algorithm.adv_estimator=by_turn")
    assert found.column("advantages") == [[0.25, 0.0, 0.25]]


@pytest.mark.parametrize("line", re.findall(r"^(?:python|reward).*$", PAGE.read_text(), re.M))
def test_every_option_on_the_page_is_one_of_verls_or_ours(line):
    config_of(*(word for word in line.split() if "=" in word))
