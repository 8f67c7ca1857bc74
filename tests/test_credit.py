"""Credit: what each step changed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from apportion import compiled, credit
from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts, collate, pack
from apportion.steps import splitters
from apportion.steps.spread import repeat
from batches import INF, NAN, batch_of, random_rows, recut

DISCOUNTS = st.sampled_from([0.0, 0.25, 0.9, 0.95, 1.0])


@st.composite
def grids(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Rewards and values [N, K] in float64."""
    rows, steps = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = st.lists(st.floats(-10, 10), min_size=rows * steps, max_size=rows * steps)
    rewards, values = (torch.tensor(draw(numbers), dtype=torch.float64).view(rows, steps) for _ in range(2))
    return rewards, values


def by_a_loop(rewards: Tensor, values: Tensor, *, gamma: float, lam: float) -> Tensor:
    """The recursion as it is written, step by step from the end: what the blocks must come to."""
    columns: list[Tensor] = []
    later = value_after = torch.zeros_like(rewards[:, 0])
    for k in reversed(range(rewards.shape[1])):
        later = rewards[:, k] + gamma * value_after - values[:, k] + gamma * lam * later
        value_after = values[:, k]
        columns.append(later)
    return torch.stack(columns[::-1], dim=1)


def close(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        # delta = 1 + .5*1 - .5, 0 + .5*.25 - 1, 2 - .25
        pytest.param(lambda r, v: credit.td_errors(r, v, gamma=0.5), [[1.0, -0.875, 1.75]], id="td errors"),
        # 1.75; -.875 + .25*1.75; 1 + .25*-.4375
        pytest.param(credit.gae_with(gamma=0.5, lam=0.5), [[0.890625, -0.4375, 1.75]], id="gae"),
        pytest.param(credit.telescoping, [[1.5, -0.75, 1.75]], id="telescoping"),
        pytest.param(credit.to_go, [[2.5, 1.0, 1.75]], id="to go"),
    ],
)
def test_credit_of_three_steps_by_hand(function: credit.Credit, expected: list[list[float]]) -> None:
    rewards, values = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[0.5, 1.0, 0.25]])

    assert function(rewards, values).tolist() == expected


@given(grids(), DISCOUNTS, DISCOUNTS)
def test_gae_is_the_discounted_sum_of_td_errors(grid: tuple[Tensor, Tensor], gamma: float, lam: float) -> None:
    rewards, values = grid
    padded = torch.nn.functional.pad(values, (0, 1))
    steps = rewards.shape[1]
    expected = torch.zeros_like(rewards)
    for k in range(steps):
        for j in range(k, steps):
            expected[:, k] += (gamma * lam) ** (j - k) * (rewards[:, j] + gamma * padded[:, j + 1] - padded[:, j])

    close(credit.gae(rewards, values, gamma=gamma, lam=lam), expected)


@given(grids(), DISCOUNTS)
def test_the_credit_functions_are_corners_of_gae(grid: tuple[Tensor, Tensor], gamma: float) -> None:
    rewards, values = grid

    close(credit.telescoping(rewards, values), credit.gae(rewards, values, gamma=1.0, lam=0.0))
    close(credit.to_go(rewards, values), credit.gae(rewards, values, gamma=1.0, lam=1.0))
    close(credit.td_errors(rewards, values, gamma=gamma), credit.gae(rewards, values, gamma=gamma, lam=0.0))
    close(credit.gae_with(gamma=gamma, lam=0.5)(rewards, values), credit.gae(rewards, values, gamma=gamma, lam=0.5))


@given(grids(), DISCOUNTS, DISCOUNTS)
def test_credit_peeled_of_later_credit_sums_to_return_minus_start(
    grid: tuple[Tensor, Tensor], gamma: float, lam: float
) -> None:
    rewards, values = grid
    found = credit.gae(rewards, values, gamma=gamma, lam=lam)
    steps = rewards.shape[1]
    for n in range(len(rewards)):
        peeled = sum(
            gamma**k * (float(found[n, k]) - (gamma * lam * float(found[n, k + 1]) if k + 1 < steps else 0))
            for k in range(steps)
        )
        start = sum(gamma**k * float(rewards[n, k]) for k in range(steps)) - float(values[n, 0])
        assert abs(peeled - start) < 1e-11


@given(grids())
def test_telescoping_credit_of_a_step_cut_in_two_is_the_sum_of_its_parts(grid: tuple[Tensor, Tensor]) -> None:
    rewards, values = grid
    joined_rewards = torch.cat([rewards[:, :1], rewards], dim=1)  # a first step earning twice as much, in two halves
    joined_values = torch.cat([values[:, :1], values], dim=1)
    fine = credit.telescoping(joined_rewards, joined_values)
    merged = torch.cat([2 * rewards[:, :1], rewards[:, 1:]], dim=1)

    close(credit.telescoping(merged, values)[:, 0], fine[:, 0] + fine[:, 1])
    close(credit.telescoping(merged, values)[:, 1:], fine[:, 2:])


@given(grids())
def test_no_function_writes_into_its_arguments(grid: tuple[Tensor, Tensor]) -> None:
    rewards, values = grid
    before = rewards.clone(), values.clone()

    for function in (credit.telescoping, credit.to_go, credit.gae_with(gamma=0.9, lam=0.9)):
        function(rewards, values)

    assert torch.equal(rewards, before[0])
    assert torch.equal(values, before[1])


@given(grids())
def test_rows_do_not_see_each_other(grid: tuple[Tensor, Tensor]) -> None:
    rewards, values = grid

    for function in (credit.telescoping, credit.to_go, credit.gae_with(gamma=0.9, lam=0.9)):
        alone = [function(rewards[n : n + 1], values[n : n + 1]) for n in range(len(rewards))]
        torch.testing.assert_close(torch.cat(alone), function(rewards, values), rtol=1e-13, atol=1e-13)


@given(grids(), DISCOUNTS, DISCOUNTS, st.integers(1, 4))
def test_blocks_of_any_size_give_the_sums_of_the_plain_loop(
    grid: tuple[Tensor, Tensor], gamma: float, lam: float, times: int
) -> None:
    # up to 720 steps: several blocks of blocks, with and without a rest
    rewards, values = (part.repeat(1, 30 * times) for part in grid)

    close(credit.gae(rewards, values, gamma=gamma, lam=lam), by_a_loop(rewards, values, gamma=gamma, lam=lam))


@pytest.mark.parametrize("steps", [pytest.param(n, id=str(n)) for n in (1, 31, 32, 33, 4096, 4097, 5000)])
def test_long_rows_give_the_sums_of_the_plain_loop(steps: int) -> None:
    rewards, values = torch.randn(2, 2, steps, generator=torch.Generator().manual_seed(steps))
    expected = by_a_loop(rewards.double(), values.double(), gamma=0.99, lam=0.95)

    found = credit.gae(rewards, values, gamma=0.99, lam=0.95)

    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)


def test_a_row_of_128k_tokens_with_gaps_is_float64_rounded() -> None:
    batch = Rollouts(
        tokens=torch.zeros(1, 131072, dtype=torch.int64),
        rollout_of=torch.zeros(1, 131072, dtype=torch.int64),
        action_mask=torch.arange(131072).unsqueeze(0) % 7 != 3,
        turns=torch.zeros(1, 131072, dtype=torch.int64),
        groups=torch.tensor([0]),
        outcome=torch.tensor([1.0]),
        ended=torch.tensor([True]),
    )
    rewards, values = torch.randn(2, 1, 131072, generator=torch.Generator().manual_seed(0)) / 10
    kept = batch.action_mask

    for gamma, lam in ((1.0, 1.0), (0.99, 0.95)):
        found = token_credit(batch, rewards, values, credit.gae_with(gamma=gamma, lam=lam))
        expected, later, after = [], 0.0, 0.0
        for reward, value in zip(rewards[kept].tolist()[::-1], values[kept].tolist()[::-1], strict=True):
            later = reward + gamma * after - value + gamma * lam * later
            after = value
            expected.append(later)
        close_to = torch.tensor(expected[::-1], dtype=torch.float64)
        assert float((found[kept].double() - close_to).abs().max()) < 1e-3
        assert found[~kept].eq(0).all()


@pytest.mark.parametrize("dtype", [pytest.param(torch.float32, id="f32"), pytest.param(torch.float64, id="f64")])
def test_the_compiled_loop_gives_what_the_blocks_give(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    rewards, values = torch.randn(2, 9, 77, dtype=dtype, generator=torch.Generator().manual_seed(5))
    blocks = credit.gae(rewards, values, gamma=0.99, lam=0.95)
    monkeypatch.setattr(compiled, "LEAST", 0)
    ran = []
    loop = compiled.credit_to_go
    monkeypatch.setattr(compiled, "credit_to_go", lambda *grids, **how: ran.append(1) or loop(*grids, **how))

    found = credit.gae(rewards, values, gamma=0.99, lam=0.95)

    assert ran == [1]
    torch.testing.assert_close(found, blocks, rtol=0, atol=1e-12 if dtype == torch.float64 else 1e-5)
    credit.gae(rewards.requires_grad_(), values, gamma=0.99, lam=0.95)
    assert ran == [1]


@pytest.mark.parametrize("decay", [0.9, 0.9999, 1.0])
@pytest.mark.parametrize("pieces", [2.7, 3.0, 3.01])
def test_a_long_rollout_is_worked_out_in_pieces_that_join(decay: float, pieces: float) -> None:
    loops = pytest.importorskip("apportion.compiled.loops")
    steps = int(pieces * loops.PIECE)
    rewards, values = torch.randn(2, 3, steps, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    blocks = credit.gae(rewards.clone().requires_grad_(), values, gamma=1.0, lam=decay).detach()

    found = credit.gae(rewards, values, gamma=1.0, lam=decay)

    torch.testing.assert_close(found, blocks, rtol=0, atol=1e-9)


@given(grids(), DISCOUNTS, DISCOUNTS)
def test_the_gradient_is_that_of_the_plain_loop(grid: tuple[Tensor, Tensor], gamma: float, lam: float) -> None:
    gradients = []
    for function in (credit.gae, by_a_loop):
        rewards, values = (part.repeat(1, 12).requires_grad_() for part in grid)
        found = function(rewards, values, gamma=gamma, lam=lam)
        (found * torch.arange(found.shape[1])).sum().backward()
        gradients.append((rewards.grad, values.grad))

    for mine, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-10)


@given(grids(), st.sampled_from([0.25, 1.0, 50.0]))
def test_clipped_credit_is_cut_off_and_small_credit_left_alone(grid: tuple[Tensor, Tensor], most: float) -> None:
    found = credit.clipped(credit.telescoping, most=most)(*grid)
    whole = credit.telescoping(*grid)

    assert float(found.abs().max()) <= most
    assert torch.equal(found[whole.abs() <= most], whole[whole.abs() <= most])
    assert torch.equal(found.sign(), whole.sign())


@pytest.mark.parametrize("most", [pytest.param(m, id=str(m)) for m in (0.0, -1.0, NAN)])
def test_a_clip_that_leaves_nothing_is_refused(most: float) -> None:
    with pytest.raises(InputError, match=f"to a positive size only, got {most}"):
        credit.clipped(credit.telescoping, most=most)


# One action, then a tool that makes success likely (.25 to .75), then an action that ends in success.
SPOKEN, RESUMED = torch.tensor([[0.5, 0.75]]), torch.tensor([[0.5, 0.25]])
EARNED = torch.tensor([[0.0, 1.0]])


def test_what_the_environment_changes_goes_to_the_step_before_the_step_after_or_an_account() -> None:
    kept, account = credit.environment_account(EARNED, SPOKEN, RESUMED)

    assert credit.telescoping(EARNED, SPOKEN).tolist() == [[0.25, 0.25]]
    assert credit.telescoping(EARNED, RESUMED).tolist() == [[-0.25, 0.75]]
    assert kept.tolist() == [[-0.25, 0.25]]
    assert account.tolist() == [[0, 0.5]]


@given(grids(), st.data())
def test_the_books_close_wherever_the_environments_change_goes(
    grid: tuple[Tensor, Tensor], data: st.DataObject
) -> None:
    rewards, values = grid
    changes = data.draw(st.lists(st.floats(-10, 10), min_size=values.numel(), max_size=values.numel()))
    spoken = values + torch.tensor(changes, dtype=torch.float64).view_as(values)
    spoken[:, 0] = values[:, 0]  # nobody speaks before the first step
    kept, account = credit.environment_account(rewards, spoken, values)

    whole = rewards.sum(1) - values[:, 0]
    close((kept + account).sum(1), whole)
    close(credit.telescoping(rewards, spoken).sum(1), whole)
    close(credit.telescoping(rewards, values).sum(1), whole)
    silent, nothing = credit.environment_account(rewards, values, values)
    assert nothing.eq(0).all()
    close(silent, credit.telescoping(rewards, values))


def token_credit(batch: Rollouts, rewards: Tensor, values: Tensor, function: credit.Credit) -> Tensor:
    """Credit of every token, from token rewards and values [B, T]."""
    steps = splitters.every_token(batch)
    return repeat(function(steps.sum(rewards), steps.first(values)), steps)


def test_a_tool_gap_is_stepped_over_without_decay_and_whatever_stands_in_it() -> None:
    rewards = torch.tensor([[0.1, 9, 9, -0.2, 1.0], [0, 0.3, -0.5, 7, 7]], dtype=torch.float64)
    values = torch.tensor([[0.4, NAN, 50, 0.6, 0.5], [0.2, 0.1, 0.3, INF, -40]], dtype=torch.float64)

    found = token_credit(batch_of("attaa", "aaatt"), rewards, values, credit.gae_with(gamma=0.9, lam=0.8))

    close(found, torch.tensor([[0.2472, 0, 0, 0.01, 0.5], [-0.18632, -0.106, -0.8, 0, 0]], dtype=torch.float64))
    returns = torch.where(found != 0, found + values, 0)
    close(returns, torch.tensor([[0.6472, 0, 0, 0.61, 1], [0.01368, -0.006, -0.5, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize(
    "padding",
    [pytest.param([0.0, 0.0], id="clean"), pytest.param([123.0, NAN], id="poisoned")],
)
def test_what_a_critic_says_of_padding_is_no_bootstrap(padding: list[float]) -> None:
    rewards = torch.tensor([[0.0, 0, 1, 0, 0]], dtype=torch.float64)
    values = torch.tensor([[0.3, 0.5, 0.6, *padding]], dtype=torch.float64)
    batch = pack(batch_of("aaa"), 3)
    padded = Rollouts(
        tokens=torch.zeros(1, 5, dtype=torch.int64),
        rollout_of=torch.tensor([[0, 0, 0, -1, -1]]),
        action_mask=torch.tensor([[1, 1, 1, 0, 0]]).bool(),
        turns=torch.tensor([[0, 0, 0, -1, -1]]),
        groups=batch.groups,
        outcome=batch.outcome,
        ended=batch.ended,
    )

    found = token_credit(padded, rewards, values, credit.gae_with(gamma=1.0, lam=0.95))

    close(found, torch.tensor([[0.656, 0.48, 0.4, 0, 0]], dtype=torch.float64))


def test_rollouts_in_one_row_do_not_see_each_other() -> None:
    rewards = torch.tensor([[0, 0, 1.0, 0.5, 0, -1.0]], dtype=torch.float64)
    values = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]], dtype=torch.float64)
    packed = pack(batch_of("aaa", "a", "aa"), 6)

    found = token_credit(packed, rewards, values, credit.gae_with(gamma=0.9, lam=0.8))

    close(found, torch.tensor([[0.49328, 0.574, 0.7, 0.1, -1.112, -1.6]], dtype=torch.float64))


@given(random_rows(), DISCOUNTS, DISCOUNTS, st.integers(1, 7))
def test_taking_the_tool_tokens_out_or_laying_rows_otherwise_changes_no_credit(
    rows: list[Rollout], gamma: float, lam: float, width: int
) -> None:
    gae = credit.gae_with(gamma=gamma, lam=lam)
    batch = collate(rows)
    bare = collate([Rollout([1] * sum(row.action_mask), [True] * sum(row.action_mask), row.group) for row in rows])
    rewards, values = torch.full(batch.tokens.shape, NAN), torch.full(batch.tokens.shape, INF)
    count = int(batch.action_mask.sum())
    rewards[batch.action_mask], values[batch.action_mask] = torch.arange(1.0, count + 1) % 5, torch.arange(count) % 3.0

    def laid_as(other: Rollouts, tokens: Tensor) -> Tensor:
        grid = torch.zeros(other.tokens.shape)
        grid[other.action_mask] = tokens[batch.action_mask]
        return grid

    found = token_credit(batch, rewards, values, gae)
    for other in (bare, recut(batch, width)):
        there = token_credit(other, laid_as(other, rewards), laid_as(other, values), gae)
        assert torch.equal(there[other.action_mask], found[batch.action_mask])
    assert found[~batch.action_mask].eq(0).all()


@pytest.mark.parametrize(
    ("splitter", "gamma", "expected"),
    [
        pytest.param(splitters.every_token, 1.0, [1.5, 1.5, 1.5, 0, 0, 0, 1, 1, 1], id="undiscounted"),
        pytest.param(
            splitters.every_token, 0.9, [0.99549, 1.1061, 1.229, 0, 0, 0, 0.81, 0.9, 1.0], id="discounted by token"
        ),
        pytest.param(splitters.marker(-1), 0.9, [1.4, 1.4, 1.4, 0, 0, 0, 1, 1, 1], id="discounted by turn"),
    ],
)
def test_the_unit_of_discount_is_the_step_whatever_a_step_is(
    splitter: splitters.Splitter, gamma: float, expected: list[float]
) -> None:
    token_rewards = torch.tensor([[0, 0, 0.5, 0, 0, 0, 0, 0, 1]], dtype=torch.float64)
    steps = splitter(batch_of("aaatttaaa"))
    rewards = steps.sum(token_rewards)

    returns = repeat(credit.gae(rewards, torch.zeros_like(rewards), gamma=gamma, lam=1.0), steps)

    close(returns, torch.tensor([expected], dtype=torch.float64))


def test_step_values_make_credit_that_sums_to_outcome_minus_start() -> None:
    batch = batch_of("aaaaaa")
    starts = torch.tensor([[1, 0, 1, 0, 0, 1]]).bool()
    steps = splitters.number_steps(batch, starts)

    found = credit.telescoping(torch.zeros(1, 3), torch.tensor([[0.5, 0.75, 0.25]]))

    assert found.tolist() == [[0.25, -0.5, -0.25]]
    assert repeat(found, steps).tolist() == [[0.25, 0.25, -0.5, -0.5, -0.5, -0.25]]
    assert found.sum().item() == 0.0 - 0.5
