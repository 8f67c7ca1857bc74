"""Values against continuations at a few places."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence

import pytest
import torch

from apportion.errors import InputError
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters
from apportion.steps.grid import StepMap
from apportion.values.engine import Drawn, Prefix, Wanted
from apportion.values.spot_check import Alarm, Gap, spot_check


class Coins:
    """Continues a prefix by 1 with the chance of its last token in percent, else by 0."""

    fingerprint = "coins"

    def __init__(self, seed: int = 0) -> None:
        self.chance, self.asked = random.Random(seed), 0

    def limit(self, prefix: Prefix) -> int:
        return 1

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        for i, want in enumerate(wanted):
            for number in range(want.first, want.first + want.count):
                self.asked += 1
                yield Drawn(i, number, (int(self.chance.random() * 100 < want.prefix.tokens[-1]),), True, 1)


class Laid(Coins):
    """Continues every prefix by 0, 1, 0, 1, ..."""

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        for i, want in enumerate(wanted):
            yield from (Drawn(i, want.first + n, ((want.first + n) % 2,), True, 1) for n in range(want.count))


def score(group: Hashable, tokens: Sequence[int]) -> float:
    return float(tokens[-1])


def batch(count: int = 1) -> tuple[Rollouts, StepMap]:
    rollouts = collate([Rollout([50, 20, 80], [False, True, True], g, 1.0) for g in range(count)])
    return rollouts, splitters.every_token(rollouts)


def check(values: list[float], *, count: int = 1, seed: int = 0, **asked: int) -> Gap:
    grid = torch.tensor([values] * count)
    found = spot_check(grid, batch(count), (Coins(seed), score), chance=random.Random(seed), **asked)
    assert found is not None
    return found


def test_by_hand() -> None:
    # both prefixes give 0 1 0 1: mean 1/2, variance 1/3. Off by 1/4 and -1/2, squared 1/16 and 1/4, less 1/12 each
    found = spot_check(
        torch.tensor([[0.75, 0.0]]), batch(), (Laid(), score), prefixes=2, samples=4, chance=random.Random(0)
    )
    assert found is not None
    assert found.count == 2
    assert found.bias == pytest.approx(-1 / 8)
    assert found.squared == pytest.approx((1 / 16 + 1 / 4) / 2 - 1 / 12)
    assert found.error == pytest.approx((1 / 4 - 1 / 16) / 2)
    assert found.rms == pytest.approx(found.squared**0.5)


def test_a_single_prefix_has_a_gap_of_which_no_error_is_known() -> None:
    # 0 1 0: mean 1/3, variance 1/3. Off by 2/3, squared 4/9, less 1/9
    found = spot_check(torch.ones(1, 2), batch(), (Laid(), score), prefixes=1, samples=3, chance=random.Random(0))
    assert found is not None
    assert found.bias == pytest.approx(2 / 3)
    assert found.squared == pytest.approx(1 / 3)
    assert (found.count, found.error) == (1, 0.0)


def test_right_values_have_no_gap_however_few_the_samples() -> None:
    # the state before the first step is the prompt (50), before the second it ends in 20
    found = check([0.5, 0.2], count=2000, prefixes=4000, samples=2)
    assert abs(found.squared) < 4 * found.error
    assert abs(found.bias) < 0.03


def test_wrong_values_have_the_gap_that_they_are_off_by() -> None:
    found = check([0.8, 0.5], count=2000, prefixes=4000, samples=3)
    assert found.bias == pytest.approx(0.3, abs=0.02)
    assert found.rms == pytest.approx(0.3, abs=0.03)


def test_only_so_many_prefixes_are_paid_for() -> None:
    coins = Coins()
    found = spot_check(torch.zeros(9, 2), batch(9), (coins, score), prefixes=5, samples=3, chance=random.Random(0))
    assert found is not None
    assert found.count == 5
    assert coins.asked == 15


def test_where_nothing_can_be_scored_nothing_is_said() -> None:
    judge = Coins(), lambda group, tokens: None
    assert spot_check(torch.zeros(1, 2), batch(), judge, prefixes=2, samples=2, chance=random.Random(0)) is None


def test_a_prefix_with_a_single_scored_continuation_tells_nothing() -> None:
    judge = Laid(), lambda group, tokens: 1.0 if tokens[-1] else None
    assert spot_check(torch.zeros(1, 2), batch(), judge, prefixes=2, samples=2, chance=random.Random(0)) is None


@pytest.mark.parametrize(("prefixes", "samples"), [(0, 2), (1, 1)])
def test_a_check_of_nothing_is_refused(prefixes: int, samples: int) -> None:
    with pytest.raises(InputError, match="at least 1 prefix and 2 samples"):
        check([0.5, 0.2], prefixes=prefixes, samples=samples)


def test_the_alarm_goes_off_where_a_gap_widens_by_more_than_chance() -> None:
    alarm = Alarm()
    squares = [0.04, 0.05, 0.02, 0.045, 0.06]
    # errors of 0.01: twice that of a difference is 0.028, over the smallest before
    before = [alarm.widened(Gap(9, 0.0, squared, 0.01)) for squared in squares]
    assert before == [None, None, None, None, Gap(9, 0.0, 0.02, 0.01)]


def test_a_gap_that_is_no_wider_is_no_alarm_and_the_first_of_its_size_is_remembered() -> None:
    alarm, one, same, wide = Alarm(), Gap(1, 0.2, 0.02, 0.0), Gap(1, -0.2, 0.02, 0.0), Gap(1, 0.3, 0.08, 0.0)
    assert [alarm.widened(gap) for gap in (one, same, wide)] == [None, None, one]
