"""Known faults of token credit: each a wrong view of the batch, with the checks that it breaks.

The peers were read at the versions named; another version may have mended it. A fault is told by its numbers alone, so
two that give the same numbers on a batch cannot be told apart there, and the one that stands first is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from apportion.lint import fault_views as views
from apportion.lint.batch import Batch
from apportion.lint.view import View

GAP, SEGMENT, PADDING, END, REWARD = "gap-leak", "segment-leak", "padding-leak", "end-bootstrap", "reward-lost"
DENSE, UNSAMPLED, DIFFERS = "dense-summed", "reward-unsampled", "credit-differs"


@dataclass(frozen=True)
class Fault:
    """A wrong view, in a few words, and the codes of the checks that it breaks, the gravest first."""

    codes: tuple[str, ...]
    name: str
    view: Callable[[Batch], View]
    seen_in: str = ""

    def __str__(self) -> str:
        return f"{self.name} (as in {self.seen_in})" if self.seen_in else self.name

    def breaks(self, batch: Batch) -> tuple[str, ...]:
        """The codes, less those of leaks that this batch has nowhere to show."""
        absent = {f"{kind}-leak" for kind in batch.cannot_leak}
        return tuple(code for code in self.codes if code not in absent)


def possible(batch: Batch) -> Iterator[Fault]:
    """The faults that can show on this batch."""
    return (fault for fault in FAULTS if fault.breaks(batch))


FAULTS = (
    Fault(
        (UNSAMPLED,),
        "rewards at tokens that were not sampled count at the sampled token before",
        views.rewards_moved_to_sampled_tokens,
    ),
    Fault((GAP,), "gamma and lam decay at every token of a tool gap", views.decay_through_gaps),
    Fault(
        (GAP,),
        "the value at tool tokens is read as 0, and gamma and lam decay through the gap",
        views.gaps_worth_nothing,
        "OpenRLHF 0.11",
    ),
    Fault(
        (GAP,),
        "tool tokens are steps: their values bootstrap, and gamma and lam decay through the gap",
        views.every_token_of_rollouts,
        "SkyRL 0.4, slime",
    ),
    Fault((GAP,), "the value at the first tool token is taken for that of the next turn", views.first_gap_value),
    Fault((GAP,), "the value after a turn is read as 0", views.nothing_after_a_turn),
    Fault(
        (GAP,),
        "every turn is an episode of its own: credit and value stop at the gap",
        views.turns_alone,
        "open-instruct, verl before 0.9.1",
    ),
    Fault(
        (GAP,), "credit stops at the gap: nothing of a later turn reaches an earlier one but its value", views.turns_cut
    ),
    Fault(
        (PADDING,),
        "padding is walked through: its values bootstrap and gamma and lam decay",
        views.padding_walked,
        "ROLL",
    ),
    Fault((PADDING,), "the value in the padding after the last token bootstraps", views.first_padding_value),
    Fault((SEGMENT,), "packed rows are one rollout: value and credit of the neighbour leak in", views.rows_as_one),
    Fault((SEGMENT,), "the neighbour's first value bootstraps the last token", views.neighbour_value),
    Fault((SEGMENT,), "the neighbour's credit runs on into the last token", views.neighbour_credit),
    Fault(
        (SEGMENT, GAP, PADDING),
        "every place of the row is a step: values of unsampled tokens and padding bootstrap",
        views.every_place,
        "ROLL, slime",
    ),
    Fault(
        (SEGMENT, GAP, PADDING),
        "every place of the row is a step, its reward too: values of unsampled tokens and padding bootstrap",
        views.every_place_with_its_reward,
        "slime",
    ),
    Fault(
        (END,),
        "the longest row counts as cut off, and its last value bootstraps",
        views.longest_row_cut_off,
        "AReaL 1.0",
    ),
    Fault((END,), "every rollout counts as cut off: its last value bootstraps itself", views.all_cut_off),
    Fault(
        (REWARD,),
        "only the reward at the last token of a turn counts",
        views.rewards_of_turn_ends,
        "ROLL's agentic_reinforce",
    ),
    Fault((REWARD,), "only the reward at the last token of a rollout counts", views.rewards_of_last_tokens),
    Fault((REWARD,), "no reward counts at all", views.no_rewards, "verl 0.9 where the last token was masked out"),
    Fault(
        (DENSE,),
        "dense rewards were summed and stand on the last token",
        views.rewards_summed_at_the_end,
        "OpenRLHF 0.11",
    ),
    Fault((DIFFERS,), "values are read one token late", views.values_one_late),
    Fault((DIFFERS,), "these are the numbers of gamma = 1 and lam = 1", views.undiscounted),
)
