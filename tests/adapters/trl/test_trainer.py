"""TRL's trainer with credit of apportion: its own numbers where the recipe is its own, and ours where it is not."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

import trl

from apportion import InputError, recipes
from apportion.adapters.trl import Continuations, GRPOTrainer
from apportion.adapters.trl.recipes import recipe_called, refuse_values
from apportion.policy.server_connection import Endpoint
from apportion.steps import splitters
from trl_runs import DATA, MARKS, answering, correct, said, scored, trainer

pytestmark = MARKS

LINES = replace(recipes.reinforce(), split=splitters.lines)
TWO_LINES = [("A1\nB2\n", True)]
SAME = [
    pytest.param({}, {}, id="as TRL does by default"),
    pytest.param({"recipe": "dr_grpo"}, {"scale_rewards": "none", "loss_type": "dr_grpo"}, id="Dr. GRPO"),
    pytest.param({}, {"loss_type": "grpo", "mask_truncated_completions": True, "beta": 0.04}, id="truncated, with KL"),
    pytest.param({}, {"loss_type": "bnpo", "steps_per_generation": 4, "num_iterations": 2}, id="off-policy"),
    pytest.param({}, {"importance_sampling_level": "sequence", "loss_type": "luspo"}, id="ratios of whole answers"),
    pytest.param({}, {"loss_type": "cispo", "top_entropy_quantile": 0.5}, id="cispo at uncertain tokens"),
]


def trained(folder: Path, **more: Any) -> list[dict[str, float]]:
    host = trainer(folder, **more)
    host.train()
    return said(host)


def compare(stock: list[dict[str, float]], ours: list[dict[str, float]]) -> None:
    assert len(stock) == 2
    for theirs, found in zip(stock, ours, strict=True):
        assert theirs["grad_norm"] > 0
        if "reward" in theirs:  # answers were generated, of several lengths
            assert theirs["completions/min_length"] < theirs["completions/max_length"]
            assert found["reward"] == theirs["reward"]
        for name in ("loss", "grad_norm", "entropy"):
            assert found[name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name


@pytest.mark.parametrize(("ours", "settings"), SAME)
def test_with_a_recipe_of_its_own_the_losses_are_those_of_trl(
    ours: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    stock = trained(tmp_path, made_by=trl.GRPOTrainer, **settings)
    compare(stock, trained(tmp_path, **ours | settings))


def test_an_adapter_of_peft_is_trained_as_trl_trains_it(tmp_path: Path) -> None:
    from peft import LoraConfig

    lora = {"peft_config": LoraConfig(r=4, target_modules="all-linear")}
    stock = trained(tmp_path, made_by=trl.GRPOTrainer, **lora)
    compare(stock, trained(tmp_path, **lora))


def test_advantages_are_one_a_token_before_trl_shuffles(tmp_path: Path) -> None:
    output = scored(trainer(tmp_path), 8)
    assert output["advantages"].shape == output["completion_ids"].shape
    whole = output["advantages"][:, 0]
    mask = output["completion_mask"].bool()
    assert torch.equal(output["advantages"], torch.where(mask, whole.unsqueeze(1), 0))


def per_line(completions: list[str], step_texts: list[list[str]], **more: Any) -> list[list[float]]:
    assert step_texts == [["A1\n", "B2\n"]] * len(completions)
    return [[0.25, -1.0]] * len(completions)


def per_token(completion_ids: list[list[int]], **more: Any) -> list[list[float]]:
    return [[0.0] * (len(ids) - 1) + [2.0] for ids in completion_ids]


def test_a_list_with_a_number_a_step_pays_the_steps(tmp_path: Path) -> None:
    host = trainer(tmp_path, per_line, recipe=LINES, rollout_func=answering(TWO_LINES))
    # A, 1, newline, then B, 2, newline and the end of the text
    assert scored(host, 4)["advantages"].tolist() == [[0.25] * 3 + [-1.0] * 4] * 4


def test_a_list_with_a_number_a_token_pays_the_steps_that_the_tokens_are_in(tmp_path: Path) -> None:
    host = trainer(tmp_path, per_token, recipe=LINES, rollout_func=answering(TWO_LINES))
    assert scored(host, 4)["advantages"].tolist() == [[0.0] * 3 + [2.0] * 4] * 4


def test_numbers_and_lists_are_added_by_their_weights(tmp_path: Path) -> None:
    def whole(completions: list[str], **more: Any) -> list[float]:
        return [1.0] * len(completions)

    functions = [whole, per_line, per_token]
    host = trainer(tmp_path, functions[:2], recipe=LINES, rollout_func=answering(TWO_LINES), reward_weights=[0.5, 2.0])
    assert scored(host, 4)["advantages"].tolist() == [[0.5] * 3 + [-2.0 + 0.5] * 4] * 4
    logged = host._metrics["train"]
    assert logged["reward"] == [0.5 + 2.0 * (0.25 - 1.0)]  # TRL is told the sums


async def later(completions: list[str], **more: Any) -> list[list[float]]:
    return [[0.5, 0.25]] * len(completions)


class Judge:
    """A reward function that is an object."""

    __name__ = "judge"

    async def __call__(self, completions: list[str], **more: Any) -> list[list[float]]:
        return [[0.5, 0.25]] * len(completions)


AWAITED = [
    pytest.param(later, id="function"),
    pytest.param(Judge(), id="object"),
    pytest.param(partial(later, scale=1.0), id="partial"),
]


@pytest.mark.parametrize("function", AWAITED)
def test_a_reward_function_may_be_awaited(function: Any, tmp_path: Path) -> None:
    host = trainer(tmp_path, function, recipe=LINES, rollout_func=answering(TWO_LINES))
    assert scored(host, 4)["advantages"].tolist() == [[0.5] * 3 + [0.25] * 4] * 4


def test_an_answer_that_nobody_could_score_gets_nothing_and_counts_for_nothing(tmp_path: Path) -> None:
    def some(completions: list[str], **more: Any) -> list[float | None]:
        return [1.0, None, 0.0, 0.5]

    host = trainer(tmp_path, some, recipe="dr_grpo", rollout_func=answering([("A1", True)]))
    assert scored(host, 4)["advantages"][:, 0].tolist() == [0.5, 0.0, -0.5, 0.0]


def test_what_one_function_could_not_score_another_did(tmp_path: Path) -> None:
    def known(completions: list[str], **more: Any) -> list[float]:
        return [0.25, 0.25, 0.25, 0.25]

    def some(completions: list[str], **more: Any) -> list[float | None]:
        return [1.0, None, 0.0, 0.5]

    host = trainer(tmp_path, [known, some], recipe="reinforce", rollout_func=answering([("A1", True)]))
    assert scored(host, 4)["advantages"][:, 0].tolist() == [1.25, 0.25, 0.25, 0.75]


def test_what_tools_wrote_gets_no_credit_and_parts_two_turns(tmp_path: Path) -> None:
    def per_turn(completions: list[str], **more: Any) -> list[list[float]]:
        return [[1.0, 3.0]] * len(completions)

    recipe = replace(recipes.reinforce(), split=splitters.turns)
    answers = answering([("A1", True), ("=22", False), ("B", True)])
    output = scored(trainer(tmp_path, per_turn, recipe=recipe, rollout_func=answers), 4)
    assert output["advantages"].tolist() == [[1.0, 1.0, 0.0, 0.0, 3.0, 3.0]] * 4
    assert output["tool_mask"].tolist() == [[1, 1, 0, 0, 1, 1]] * 4


def test_a_list_for_a_whole_completion_may_pay_nothing_on_what_tools_wrote(tmp_path: Path) -> None:
    paid = [0.5, 0.0, 0.0, 0.0, 2.0, 0.0]

    def per_token(completions: list[str], **more: Any) -> list[list[float]]:
        return [paid] * len(completions)

    recipe = replace(recipes.reinforce(), split=splitters.turns)
    answers = answering([("A1", True), ("=22", False), ("B", True)])
    host = trainer(tmp_path, per_token, recipe=recipe, rollout_func=answers)
    assert scored(host, 4)["advantages"].tolist() == [[0.5, 0.5, 0.0, 0.0, 2.0, 2.0]] * 4
    paid[3] = 1.0
    with pytest.raises(InputError, match="answer 0: a reward of 1 stands on token 3 of the completion, which a tool"):
        scored(host, 4)


def test_a_function_may_give_values(tmp_path: Path) -> None:
    def values(prompts: list[str], answer: list[str], step_texts: list[list[str]], **more: Any) -> list[list[float]]:
        assert answer == [DATA[0]["answer"]] * 4
        return [[0.5, 0.25] for _ in step_texts]

    def right(completions: list[str], **more: Any) -> list[float]:
        return [1.0] * len(completions)

    host = trainer(tmp_path, right, recipe="vineppo", values=values, rollout_func=answering(TWO_LINES))
    assert scored(host, 4)["advantages"].tolist() == [[-0.25] * 3 + [0.75] * 4] * 4


def test_an_answer_that_was_cut_off_bootstraps_from_one_value_more(tmp_path: Path) -> None:
    def values(completion_ids: list[list[int]], **more: Any) -> list[list[float]]:
        return [[0.0] * len(ids) + [0.5] for ids in completion_ids]

    def nothing(completions: list[str], **more: Any) -> list[float]:
        return [0.0] * len(completions)

    recipe = replace(recipes.ppo(lam=1.0), normalise=LINES.normalise)
    cut = answering([("A1", True)], ended=False)
    host = trainer(tmp_path, nothing, recipe=recipe, values=values, rollout_func=cut)
    assert scored(host, 4)["advantages"].tolist() == [[0.5, 0.5]] * 4


def test_in_evaluation_the_advantages_of_trl_stand(tmp_path: Path) -> None:
    host = trainer(tmp_path, recipe="vineppo", values=Continuations(1))
    host.model.eval()
    rows = [DATA[0]] * 4
    assert host._generate_and_score_completions(rows)["advantages"].shape == (4,)


def test_the_logs_of_trl_tell_the_advantages_that_it_trained_on(tmp_path: Path) -> None:
    host = trainer(tmp_path, per_line, recipe=LINES, rollout_func=answering(TWO_LINES))
    scored(host, 4)
    assert list(host._logs["advantages"]) == pytest.approx([(3 * 0.25 - 4 * 1.0) / 7] * 4)
    logged = {name: entries for name, entries in host._metrics["train"].items() if name.startswith("credit/")}
    assert logged == {
        "credit/mean_abs": [pytest.approx((3 * 0.25 + 4) / 7)],
        "credit/zero_share": [0.0],
        "credit/steps": [2.0],
    }


def test_what_is_no_recipe_and_no_source_of_values_is_refused() -> None:
    with pytest.raises(InputError, match="recipe must be a name, a Recipe or None, got function"):
        recipe_called(recipes.rloo)
    with pytest.raises(InputError, match=r"values must be Continuations\(\.\.\.\) or a function, got int"):
        refuse_values(recipes.vineppo(), 4)


class Tenfold(GRPOTrainer):
    """A trainer of a user's own."""

    def _calculate_rewards(self, *asked: Any) -> torch.Tensor:
        return 10 * super()._calculate_rewards(*asked)


def some(completions: list[str], **more: Any) -> list[float]:
    return [1.0, 0.0, 0.0, 0.0]


def test_rewards_of_a_subclass_are_what_is_credited(tmp_path: Path) -> None:
    host = trainer(tmp_path, some, made_by=Tenfold, recipe="dr_grpo", rollout_func=answering([("A1", True)]))
    assert scored(host, 4)["advantages"][:, 0].tolist() == [7.5, -2.5, -2.5, -2.5]


def test_reward_functions_stay_the_objects_that_they_were(tmp_path: Path) -> None:
    host = trainer(tmp_path, some, recipe="reinforce", rollout_func=answering([("A1", True)]))
    assert host.reward_funcs == [some]
    host.reward_funcs[0] = lambda **more: [0.25] * 4
    assert scored(host, 4)["advantages"][:, 0].tolist() == [0.25] * 4


NUMBERS = [
    pytest.param(lambda **more: iter([1, True, None, float("nan")]), id="any iterable"),
    pytest.param(lambda **more: torch.tensor([1.0, 1.0, math.nan, math.nan]), id="tensor"),
    pytest.param(lambda **more: [torch.tensor(1.0), numpy.float32(1), None, None], id="tensors of one number"),
    pytest.param(lambda **more: [[torch.tensor(1)], numpy.ones(1), None, None], id="lists and arrays"),
]


@pytest.mark.parametrize("function", NUMBERS)
def test_numbers_may_come_in_many_forms(function: Any, tmp_path: Path) -> None:
    function.__name__ = "function"
    host = trainer(tmp_path, function, recipe="reinforce", rollout_func=answering([("A1", True)]))
    assert scored(host, 4)["advantages"][:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_dataset_cannot_have_the_name_of_what_functions_are_told(tmp_path: Path) -> None:
    host = trainer(tmp_path)
    host.model.train()
    with pytest.raises(InputError, match="the dataset has a column `step_texts`"):
        host._generate_and_score_completions([{**DATA[0], "step_texts": "x"}] * 4)


REFUSED = [
    pytest.param({"recipe": None, "values": Continuations()}, "`values` would do nothing", id="values for TRL's own"),
    pytest.param({"recipe": "ppo", "values": Continuations()}, "bootstraps answers that were cut off", id="ppo"),
    pytest.param(
        {
            "recipe": "vineppo",
            "values": Continuations(server=Endpoint("http://127.0.0.1:1/v1", "m")),
            "top_k": 5,
        },
        "would be another policy's",
        id="a server that samples otherwise",
    ),
    pytest.param(
        {"recipe": "vineppo", "values": Continuations(), "max_completion_length": None},
        "needs max_completion_length",
        id="no end",
    ),
    pytest.param({"recipe": "vinepo"}, "did you mean 'vineppo'", id="unknown recipe"),
    pytest.param({"recipe": "vineppo"}, "pass values=Continuations", id="no values"),
    pytest.param({"values": Continuations()}, "works its values out itself", id="values for nothing"),
    pytest.param({"scale_rewards": "batch"}, "says how credit is normalised", id="scaling by the batch"),
    pytest.param({"scale_rewards": "none"}, "recipe='dr_grpo' does not scale", id="no scaling, with one that scales"),
    pytest.param({"multi_objective_aggregation": "normalize_then_sum"}, "would do nothing", id="each by itself"),
    pytest.param(
        {"recipe": LINES, "importance_sampling_level": "sequence"}, "gives every token of an answer its mean", id="GSPO"
    ),
    pytest.param(
        {"recipe": "vineppo", "values": Continuations(), "rollout_func": answering(TWO_LINES)},
        "does not go with rollout_func",
        id="continuing what nobody can",
    ),
]


@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_settings_that_contradict_each_other_are_refused(asked: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=why):
        trainer(tmp_path, **asked)


BROKEN = [
    pytest.param("no list", "'broken' must return a list", id="text"),
    pytest.param([["good"]] * 4, "'broken', answer 0, entry 0: expected a finite number", id="text in a list"),
    pytest.param([math.inf] * 4, "'broken', answer 0: expected a finite number.*got inf", id="infinite"),
    pytest.param([[0.5, math.nan]] * 4, "'broken', answer 0, entry 1: expected a finite", id="NaN in a list"),
    pytest.param([[0.5] * 3] * 4, "3 step rewards came, which fits neither its 2 steps nor its 7", id="wrong count"),
]


@pytest.mark.parametrize(("returned", "why"), BROKEN)
def test_a_reward_function_that_returns_nonsense_is_named(returned: Any, why: str, tmp_path: Path) -> None:
    def broken(**more: Any) -> Any:
        return returned

    host = trainer(tmp_path, broken, recipe=LINES, rollout_func=answering(TWO_LINES))
    with pytest.raises(InputError, match=why):
        scored(host, 4)


def test_lists_of_two_lengths_cannot_be_added(tmp_path: Path) -> None:
    host = trainer(tmp_path, [per_line, per_token], recipe=LINES, rollout_func=answering(TWO_LINES))
    with pytest.raises(InputError, match="answer 0: reward functions gave it lists of 2, 7 numbers"):
        scored(host, 4)


def test_values_of_another_count_are_refused(tmp_path: Path) -> None:
    host = trainer(tmp_path, recipe="vineppo", values=lambda **more: [[0.5]] * 4, rollout_func=answering(TWO_LINES))
    with pytest.raises(InputError, match="answer 0: expected 2 values, one before each step, or 7, one before each"):
        scored(host, 4)


def test_the_answer_of_a_sampler_that_did_not_know_a_probability_is_data(tmp_path: Path) -> None:
    sample = answering(TWO_LINES)

    def partly(prompts: list[str], host: Any) -> dict[str, Any]:
        found: dict[str, Any] = sample(prompts, host)
        found["logprobs"][1][2] = None
        return found

    host = trainer(tmp_path, correct, recipe="rloo", rollout_func=partly)
    output = scored(host, 4)
    assert math.isnan(float(output["sampling_per_token_logps"][1, 2]))
    assert bool(output["advantages"].isfinite().all())
