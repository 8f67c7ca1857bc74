"""Reduction: which weight each token has in the loss, told from the losses of the tokens and that of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from apportion import losses
from apportion.lint.batch import Batch
from apportion.lint.check import Case, Check, of_actions
from apportion.lint.finding import Finding, broken, holds
from apportion.lint.runs import begins


@dataclass(frozen=True, eq=False)
class Weighing:
    """A weight for every token. meant: the reduction that it is, or that it was meant to be where `fault` says how."""

    meant: str
    weights: Tensor
    fault: str = ""


def reduction(case: Case) -> Finding:
    """Broken where the loss is not the reduction that is named, or, where none is named, none that is known.

    The average of micro-batch means may be the sequence mean of the batch by chance; where micro-batches are given and
    no reduction is named, it is taken for what it is.
    """
    batch, wanted = case.batch, case.batch.settings.reduction
    fits = [known.meant for known in _honest(batch) if _is_loss(batch, known.weights)]
    right = wanted in fits if wanted else bool(fits)
    suspicious = not wanted and batch.micro_batch is not None and "token_mean" not in fits
    wrong = next((one for one in _wrong(batch) if _is_loss(batch, one.weights)), None)
    if right and not (suspicious and wrong is not None):
        return holds(f"the loss is {wanted or ' and '.join(fits)}")
    meant = wanted or (wrong.meant if wrong else "token_mean")
    expected = next(_loss(batch, known.weights) for known in _honest(batch) if known.meant == meant)
    came = f"loss is {batch.settings.loss:.6g}, expected {expected:.6g} ({meant})"
    also = f"; it is {' and '.join(fits)}" if fits else ""
    return broken(came + also, pattern=wrong.fault if wrong else "")


def _honest(batch: Batch) -> Iterator[Weighing]:
    """The reductions of the whole batch."""
    mask, owner = batch.counted, batch.rollout_of
    for name, weigh in losses.REDUCTIONS.items():
        yield Weighing(name, weigh(mask, owner).double())
    if batch.settings.divisor is not None:
        yield Weighing("fixed_divisor", losses.fixed_divisor(batch.settings.divisor)(mask, owner).double())


def _wrong(batch: Batch) -> Iterator[Weighing]:
    """Weights that come of a known mistake: the wrong tokens in the count, or counts of micro-batches."""
    mask, owner = batch.counted, batch.rollout_of
    if batch.micro_batch is not None:
        yield from _by_micro_batch(batch, batch.micro_batch)
    more = {"of rollouts without a score": batch.sampled, "that were not sampled": batch.valid}
    for name, weigh in losses.REDUCTIONS.items():
        for called, tokens in more.items():
            if torch.equal(tokens, mask):
                continue
            weights = weigh(tokens, owner).double()
            yield Weighing(name, torch.where(mask, weights, 0), f"tokens {called} are in the denominator")
            yield Weighing(name, weights, f"tokens {called} are in the loss")
    rows = mask.any(1).sum() / mask.shape[0]
    yield Weighing("sequence_mean", losses.sequence_mean(mask, owner).double() * rows, "rows without a token count")
    everywhere = torch.full(mask.shape, 1 / mask.numel(), dtype=torch.float64)
    yield Weighing("token_mean", torch.where(mask, everywhere, 0), "every place is in the denominator, padding too")
    yield Weighing("token_mean", everywhere, "every place is in the loss, padding too")


def _by_micro_batch(batch: Batch, ids: Tensor) -> Iterator[Weighing]:
    """Each reduction within a micro-batch, and then the mean over these."""
    count = int(ids.max()) + 1
    within = ids.unsqueeze(1).expand_as(batch.counted)
    fault = "the means of micro-batches are averaged, so a token's weight depends on the cut"
    tokens = torch.bincount(within[batch.counted], minlength=count).double()
    yield Weighing("token_mean", _shared(batch, tokens[within] * count), fault)
    first = begins(batch.rollout_of[batch.counted])
    rollouts = torch.bincount(within[batch.counted][first], minlength=count).double()[within] * count
    lengths = batch.of_tokens(torch.bincount(batch.rollout_of[batch.counted], minlength=len(batch)).double())
    yield Weighing("sequence_mean", _shared(batch, rollouts * lengths), fault)
    yield Weighing("sequence_sum", _shared(batch, rollouts), fault)


def _shared(batch: Batch, divisor: Tensor) -> Tensor:
    return torch.where(batch.counted, 1 / divisor, 0)


def _loss(batch: Batch, weights: Tensor) -> float:
    return float(losses.total(batch.grids["token_loss"], weights))


def _is_loss(batch: Batch, weights: Tensor) -> bool:
    """Does the loss that came equal the losses of the tokens so weighed?"""
    scale = float(losses.total(batch.grids["token_loss"].abs(), weights))
    allowed = batch.allowed("token_loss", scale=scale, terms=int(batch.counted.sum()))
    return batch.settings.loss is not None and abs(_loss(batch, weights) - batch.settings.loss) <= allowed


def _columns(batch: Batch) -> tuple[str, ...]:
    divisor = ("divisor",) if batch.settings.reduction == "fixed_divisor" else ()
    return batch.lacking("action_mask", "token_loss", "loss", *divisor)


REDUCTION = Check(
    "reduction-differs",
    "the loss is one reduction over the whole batch",
    "Count tokens over all micro-batches and ranks first, and divide each micro-batch's sum by that count.",
    _columns,
    reduction,
    of_actions,
)
