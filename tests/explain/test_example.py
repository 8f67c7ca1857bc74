"""The worked example against its published numbers. All literals here come from the golden file, none from our code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from apportion.explain import Example, Inputs

EXACT = 1e-12
ROUNDED = 5e-5  # the golden file rounds to four digits


@pytest.fixture(scope="module")
def example() -> Example:
    return Example.compute()


def test_the_inputs_are_those_of_the_published_example() -> None:
    inputs = Inputs.load()

    assert inputs.policy == {"open": 0.5, "closed": 0.3, "partly": 0.2}
    assert inputs.sampled_scores == {"open": (3, 1, 2, 1, 3), "closed": (5, 4, 6), "partly": (10, 8)}
    assert inputs.answer_tokens == ("OpenAI", "is", "open", ".", "It", "'s", "in", "the", "name", ".")
    assert inputs.final_reward == 2.0
    assert (inputs.step_size, inputs.clip.epsilon) == (1.0, 0.2)
    assert (inputs.kl.beta, inputs.kl.p_ref, inputs.kl.p_new) == (1.0, 0.05, 0.9)
    assert (inputs.kl.score_plain, inputs.kl.score_flattery) == (9.0, 9.6)


def test_q_value_and_advantage_of_the_decision(example: Example) -> None:
    decision = example.decision

    assert decision.q == pytest.approx((2.0, 5.0, 9.0), abs=EXACT)
    assert decision.value == pytest.approx(4.3, abs=EXACT)
    assert decision.advantage == pytest.approx((-2.3, 0.7, 4.7), abs=EXACT)
    assert decision.weighted_sum == pytest.approx(0.0, abs=EXACT)


@pytest.mark.parametrize(
    ("column", "golden"),
    [
        pytest.param("values", (4.3, 4.3, 4.3, 2, 2, 2, 2, 2, 2, 2), id="values"),
        pytest.param("td_errors", (0, 0, -2.3, 0, 0, 0, 0, 0, 0, 0), id="TD errors"),
        pytest.param("gae_0", (0, 0, -2.3, 0, 0, 0, 0, 0, 0, 0), id="GAE, lam 0"),
        pytest.param("gae_1", (-2.3, -2.3, -2.3, 0, 0, 0, 0, 0, 0, 0), id="GAE, lam 1"),
        pytest.param("returns", (2,) * 10, id="returns"),
        pytest.param("rewards", (0, 0, 0, 0, 0, 0, 0, 0, 0, 2), id="rewards"),
        pytest.param("shared", (-2.3,) * 10, id="one advantage for the whole answer"),
        pytest.param("gae_usual", (-2.07575, -2.185, -2.3, 0, 0, 0, 0, 0, 0, 0), id="GAE, lam 0.95"),
    ],
)
def test_every_token_of_the_answer(example: Example, column: str, golden: tuple[float, ...]) -> None:
    assert getattr(example.answer, column) == pytest.approx(golden, abs=EXACT)


def test_the_exact_policy_gradient_climbs_as_published(example: Example) -> None:
    policies, values = zip(*example.trajectory, strict=True)

    assert policies[0] == pytest.approx((0.5, 0.3, 0.2), abs=EXACT)
    assert policies[1] == pytest.approx((0.1522, 0.3557, 0.4921), abs=ROUNDED)
    assert policies[2] == pytest.approx((0.0391, 0.1061, 0.8548), abs=ROUNDED)
    assert values == pytest.approx((4.3, 6.5119, 8.302), abs=ROUNDED)
    # as the text rounds them; the golden file's own tolerance
    assert policies[1] == pytest.approx((0.15, 0.36, 0.49), abs=0.006)
    assert policies[2] == pytest.approx((0.04, 0.11, 0.86), abs=0.006)


def test_a_baseline_keeps_the_mean_update_and_lowers_the_variance(example: Example) -> None:
    baseline = example.baseline

    assert baseline.mean_without == pytest.approx((-1.15, 0.21, 0.94), abs=EXACT)
    assert baseline.mean_with == pytest.approx((-1.15, 0.21, 0.94), abs=EXACT)
    assert baseline.variance_without == pytest.approx(20.7398, abs=ROUNDED)
    assert baseline.variance_with == pytest.approx(3.7032, abs=ROUNDED)
    assert baseline.ratio == pytest.approx(0.1786, abs=ROUNDED)


def test_greedy_decoding_learns_nothing(example: Example) -> None:
    greedy = example.greedy

    assert greedy.token == "open"
    assert greedy.mean_score == 2.0
    assert greedy.mean_advantage == pytest.approx(0.0, abs=EXACT)
    assert greedy.mean_update == pytest.approx((0.0, 0.0, 0.0), abs=EXACT)


def test_clipping_stops_the_gradient_at_the_published_probability(example: Example) -> None:
    clip = example.clip

    assert clip.pi_old == 0.2
    assert clip.highest_pi_with_gradient == pytest.approx(0.24, abs=1e-9)
    assert clip.gradients[0] == pytest.approx(4.7, abs=EXACT)
    for probability, gradient in zip(clip.probabilities, clip.gradients, strict=True):
        assert (gradient != 0) == (probability < 0.24)


def test_the_kl_penalty_turns_the_objective_round(example: Example) -> None:
    penalty = example.penalty

    assert penalty.score_before == pytest.approx(9.03, abs=EXACT)
    assert penalty.score_after == pytest.approx(9.54, abs=EXACT)
    assert penalty.kl_before == pytest.approx(0.0, abs=EXACT)
    assert penalty.kl_after == pytest.approx(2.3762, abs=ROUNDED)
    assert penalty.objective_before == pytest.approx(9.03, abs=EXACT)
    assert penalty.objective_after == pytest.approx(7.1638, abs=ROUNDED)


def test_the_numbers_follow_from_the_inputs() -> None:
    inputs = replace(
        Inputs.load(),
        policy={"open": 0.25, "closed": 0.75},
        sampled_scores={"open": (0.0,), "closed": (4.0, 4.0, 4.0)},
        final_reward=0.0,
    )
    inputs = replace(inputs, clip=replace(inputs.clip, token="closed", epsilon=0.25))

    example = Example.compute(inputs)

    assert example.decision.q == (0.0, 4.0)
    assert example.decision.advantage == (-3.0, 1.0)
    assert example.answer.td_errors == (0, 0, -3, 0, 0, 0, 0, 0, 0, 0)
    assert example.greedy.token == "closed"
    assert example.clip.highest_pi_with_gradient == pytest.approx(0.9375)
