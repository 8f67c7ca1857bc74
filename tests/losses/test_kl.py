"""Estimates of the KL, and where each of them may stand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from apportion import losses
from apportion.errors import InputError
from grids import ON, gradient, grid, marks

LOG2 = math.log(2)


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        # d = 0.5, -1: k3 = exp(-d) - 1 + d, its slope 1 - exp(-d)
        pytest.param("k1", [0.5, -1.0], [1, 1], id="k1"),
        pytest.param("k2", [0.125, 0.5], [0.5, -1.0], id="k2"),
        pytest.param("k3", [math.exp(-0.5) - 0.5, math.e - 2], [1 - math.exp(-0.5), 1 - math.e], id="k3"),
    ],
)
def test_kl_estimates_of_two_tokens_by_hand(name: str, values: list[float], slopes: list[float]) -> None:
    estimate = losses.KL_BY_NAME[name]
    logprobs, reference = grid(-1, -2), grid(-1.5, -1)

    assert estimate(logprobs, reference, ON)[0].tolist() == pytest.approx(values, abs=1e-12)
    assert gradient(lambda new: estimate(new, reference, ON), logprobs) == pytest.approx(slopes, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "values", "slopes"),
    [
        pytest.param("k1", [0.2, -0.5, 0], [1, 1, 0], id="k1"),
        pytest.param("k2", [0.02, 0.125, 0], [0.2, -0.5, 0], id="k2"),
        pytest.param("k3", [0.018731, 0.148721, 0], [0.181269, -0.648721, 0], id="k3"),
    ],
)
def test_kl_estimates_next_to_a_token_that_does_not_count(name: str, values: list[float], slopes: list[float]) -> None:
    estimate, mask = losses.KL_BY_NAME[name], torch.tensor([[True, True, False]])
    logprobs, reference = grid(-1.0, -2.0, -9.0), grid(-1.2, -1.5, -1.0)

    assert estimate(logprobs, reference, mask)[0].tolist() == pytest.approx(values, abs=1e-6)
    assert gradient(lambda new: estimate(new, reference, mask), logprobs) == pytest.approx(slopes, abs=1e-6)


def two_actions(theta: float, requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probabilities [1, 2] of a policy whose first action has this logit, and the logit."""
    logit = torch.tensor(theta, dtype=torch.float64, requires_grad=requires_grad)
    return torch.stack([logit, torch.zeros_like(logit)]).log_softmax(0).unsqueeze(0), logit


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_kl_estimates_over_two_actions_have_these_means_and_these_gradients(theta: float, other: float) -> None:
    reference, _ = two_actions(other)
    exact, exact_logit = two_actions(theta, requires_grad=True)
    reverse = (exact.exp() * (exact - reference)).sum()
    (reverse_slope,) = torch.autograd.grad(reverse, exact_logit, retain_graph=True)
    (forward_slope,) = torch.autograd.grad((reference.exp() * (reference - exact)).sum(), exact_logit)

    def sampled(name: str) -> tuple[float, float]:
        logprobs, logit = two_actions(theta, requires_grad=True)
        mean = (logprobs.exp().detach() * losses.KL_BY_NAME[name](logprobs, reference, ON)).sum()
        (slope,) = torch.autograd.grad(mean, logit)
        return mean.item(), slope.item()

    assert sampled("k1") == pytest.approx((reverse.item(), 0), abs=1e-9)
    assert sampled("k2")[1] == pytest.approx(reverse_slope.item(), abs=1e-9)
    assert sampled("k3") == pytest.approx((reverse.item(), forward_slope.item()), abs=1e-9)


def test_kl_of_four_fifths_against_a_half_in_numbers() -> None:
    logprobs, logit = two_actions(math.log(4), requires_grad=True)
    reference = torch.full((1, 2), -LOG2, dtype=torch.float64)
    found = {}
    for name, estimate in losses.KL_BY_NAME.items():
        mean = (logprobs.exp().detach() * estimate(logprobs, reference, ON)).sum()
        found[name] = mean.item(), torch.autograd.grad(mean, logit, retain_graph=True)[0].item()

    assert found["k1"] == pytest.approx((0.192745, 0), abs=1e-6)
    assert found["k2"][1] == pytest.approx(0.221807, abs=1e-6)
    assert found["k3"] == pytest.approx((0.192745, 0.3), abs=1e-6)


def test_k3_of_a_token_that_the_policy_all_but_gave_up_is_a_number() -> None:
    logprobs = torch.tensor([[-100.0]], requires_grad=True)
    found = losses.kl_k3(logprobs, torch.tensor([[-0.1]]), marks(1))
    found.sum().backward()

    assert found.item() == pytest.approx(math.exp(20) - 21, rel=1e-6)
    assert logprobs.grad is not None
    assert logprobs.grad.item() == 0


# --- where each may stand


def as_loss(name: str, theta: float, reference: Tensor) -> float:
    """The mean gradient by the logit of an estimate in the loss."""
    logprobs, logit = two_actions(theta, requires_grad=True)
    mean = (logprobs.exp().detach() * losses.KL_BY_NAME[name](logprobs, reference, ON)).sum()
    return torch.autograd.grad(mean, logit)[0].item()


def as_reward(name: str, theta: float, reference: Tensor) -> float:
    """The mean gradient by the logit of log-probabilities, each times its estimate."""
    logprobs, logit = two_actions(theta, requires_grad=True)
    estimate = losses.KL_BY_NAME[name](logprobs, reference, ON).detach()
    mean = (logprobs.exp().detach() * logprobs * estimate).sum()
    return torch.autograd.grad(mean, logit)[0].item()


PLACES = {"loss": as_loss, "reward": as_reward}
RIGHT = {("k2", "loss"), ("k1", "reward")}


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_the_gradient_is_that_of_the_kl_for_the_pairs_called_right_and_for_no_other(theta: float, other: float) -> None:
    assume(abs(theta - other) > 0.1)
    reference, _ = two_actions(other)
    logprobs, logit = two_actions(theta, requires_grad=True)
    (true,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logit)

    for place, slope in PLACES.items():
        for name in losses.KL_BY_NAME:
            right = slope(name, theta, reference) == pytest.approx(true.item(), abs=1e-9)
            assert right == ((name, place) in RIGHT)


def test_every_pair_is_called_right_or_wrong() -> None:
    assert set(losses.WRONG_GRADIENT) | RIGHT == {(name, place) for name in losses.KL_BY_NAME for place in PLACES}
    assert not set(losses.WRONG_GRADIENT) & RIGHT
    assert {("k2", "loss")} == {(name, "loss") for name in losses.KL_IN_LOSS}
    assert {("k1", "reward")} == {(name, "reward") for name in losses.KL_IN_REWARD}
    for name, estimate in (losses.KL_IN_LOSS | losses.KL_IN_REWARD).items():
        assert losses.KL_BY_NAME[name] is estimate


@pytest.mark.parametrize("name", [pytest.param(name, id=name) for name in ("k2", "k3")])
def test_in_the_reward_an_even_estimate_may_push_away_from_the_reference(name: str) -> None:
    reference = torch.full((1, 2), -LOG2, dtype=torch.float64)

    assert as_reward("k1", math.log(4), reference) == pytest.approx(0.221807, abs=1e-6)
    assert as_reward(name, math.log(4), reference) < 0


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_k3_in_the_reward_pushes_by_the_reverse_kl_less_the_forward_one(theta: float, other: float) -> None:
    reference, _ = two_actions(other)

    difference = as_loss("k2", theta, reference) - as_loss("k3", theta, reference)
    assert as_reward("k3", theta, reference) == pytest.approx(difference, abs=1e-9)


@pytest.mark.parametrize("pair", [pytest.param(pair, id=" in the ".join(pair)) for pair in sorted(RIGHT)])
def test_nothing_is_said_of_an_estimator_where_it_is_right(pair: tuple[str, str]) -> None:
    losses.check_kl(*pair)


@pytest.mark.parametrize(
    ("estimator", "place", "why"),
    [
        pytest.param("k3", "loss", "k3 in the loss: .*forward KL.*; k2 has", id="k3 in the loss"),
        pytest.param("k2", "reward", "k2 in the reward: its mean is not the KL.*; k1 has", id="k2 in the reward"),
        pytest.param(
            "k3", "reward", "k3 in the reward: .*reverse KL less the forward.*; k1 has", id="k3 in the reward"
        ),
    ],
)
def test_an_estimator_with_another_gradient_is_warned_of_with_the_right_one(
    estimator: str, place: str, why: str
) -> None:
    with pytest.warns(UserWarning, match=why):
        losses.check_kl(estimator, place)


def test_k1_in_the_loss_is_refused_for_it_teaches_nothing() -> None:
    with pytest.raises(InputError, match=r"k1 in the loss: .*teaches nothing; k2 has the gradient of the KL there"):
        losses.check_kl("k1", "loss")


@pytest.mark.parametrize(
    ("estimator", "place", "why"),
    [
        pytest.param("k4", "loss", "there is no 'k4'.*known: k1, k2, k3", id="estimator"),
        pytest.param("k2", "los", "there is no 'los'; did you mean 'loss'", id="place"),
    ],
)
def test_an_estimator_or_place_that_does_not_exist_is_refused(estimator: str, place: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        losses.check_kl(estimator, place)
