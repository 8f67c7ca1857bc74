"""Log-probabilities of chosen tokens and the entropy they were drawn with, in little memory.

`S` counts places where a token was chosen, `V` the vocabulary, `D` the width of the last hidden layer. Logits are
divided by the sampling temperature; both results are in nats. All arithmetic is in float32 (float64 for float64),
whatever the logits' dtype, a piece at a time: no [S, V] in float32 is made for a result or kept for the gradient.

A log-probability is never above 0 and an entropy never below. A logit of -inf (a token that was forbidden) has
probability 0 and a gradient of 0; gradients are of first order only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from apportion.errors import InputError

SCRATCH = 2**23
"""Numbers of scratch that are worked in at a time, unless `chunk` says otherwise."""

LOWEST = -1e4
"""Stands for a log-probability of -inf where it is multiplied by its probability, 0."""

Both = tuple[Float[Tensor, " S"], Float[Tensor, " S"]]


def selected_logprobs(
    logits: Float[Tensor, "S V"], ids: Int[Tensor, " S"], *, temperature: float = 1.0, chunk: int | None = None
) -> Both:
    """Compute log p[s, ids[s]] and -sum_v p[s, v] log p[s, v], with p = softmax(logits / temperature).

    chunk: rows of scratch. Beyond the logits and their gradient, no more memory is taken than chunk * V numbers.
    Identity: `log_softmax`, `gather` and the entropy of the whole in float32, forwards and backwards.

    Raises InputError for a temperature or chunk that is not above 0, and for ids outside the vocabulary.

    >>> selected_logprobs(torch.tensor([[0.0, 0.0, -torch.inf]]), torch.tensor([1]))
    (tensor([-0.6931]), tensor([0.6931]))
    """
    size = logits.shape[1]
    _refuse(ids, size, temperature, chunk)
    rows = _half(SCRATCH // max(1, size) if chunk is None else chunk)
    found: Both = _Selected.apply(logits, ids, temperature, rows)  # type: ignore[no-untyped-call]
    return found


def head_logprobs(
    hidden: Float[Tensor, "S D"],
    weight: Float[Tensor, "V D"],
    ids: Int[Tensor, " S"],
    *,
    bias: Float[Tensor, " V"] | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
) -> Both:
    """Compute `selected_logprobs` of the logits hidden @ weight.T + bias, which are never made as a whole.

    They are made a part of the vocabulary at a time, and once more for the gradient. In low precision they are not
    rounded on the way: products of the numbers as they are, added up in float32.

    chunk: entries of the vocabulary in scratch, S numbers each.

    Raises InputError as `selected_logprobs`.

    >>> head_logprobs(torch.tensor([[1.0]]), torch.tensor([[2.0], [2.0]]), torch.tensor([0]))
    (tensor([-0.6931]), tensor([0.6931]))
    """
    _refuse(ids, len(weight), temperature, chunk)
    columns = _half(SCRATCH // max(1, len(hidden)) if chunk is None else chunk)
    with _float32_stays(hidden):
        found: Both = _Head.apply(hidden, weight, bias, ids, temperature, columns)  # type: ignore[no-untyped-call]
    return found


class _Selected(torch.autograd.Function):
    """Row by row: each piece holds the whole vocabulary."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, temperature: float, rows: int) -> tuple[Tensor, Tensor]:
        scratch = _scratch(logits, min(rows, len(logits)), logits.shape[1])
        top, mass, mean, logprobs = scratch.new_empty(4, len(logits))
        for piece in _pieces(len(logits), rows):
            shifted, powers = scratch[:, : piece.stop - piece.start]
            shifted.copy_(logits[piece]).div_(temperature)
            top[piece] = shifted.amax(1)
            shifted.sub_(top[piece].unsqueeze(1))
            chosen = shifted.gather(1, ids[piece].unsqueeze(1)).squeeze(1)
            mass[piece], moment = _mass_and_moment_(shifted, powers)
            mean[piece] = moment / mass[piece]
            logprobs[piece] = chosen - mass[piece].log()
        ctx.save_for_backward(logits, ids, top, mass, mean)
        ctx.temperature, ctx.rows = temperature, rows
        return logprobs, mass.log() - mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprobs: Tensor, by_entropy: Tensor) -> tuple[Tensor, None, None, None]:
        logits, ids, top, mass, mean = ctx.saved_tensors
        by_logprobs, by_entropy = by_logprobs / ctx.temperature, by_entropy / ctx.temperature
        constant, slope = _line(mass, mean, by_logprobs, by_entropy)
        scratch = _scratch(logits, min(ctx.rows, len(logits)), logits.shape[1])
        gradient = torch.empty_like(logits)
        for piece in _pieces(len(logits), ctx.rows):
            part, powers = scratch[:, : piece.stop - piece.start]
            part.copy_(logits[piece]).div_(ctx.temperature)
            _to_gradient_(part.sub_(top[piece].unsqueeze(1)), powers, constant[piece], slope[piece])
            part.scatter_add_(1, ids[piece].unsqueeze(1), by_logprobs[piece].unsqueeze(1))
            gradient[piece] = part
        return gradient, None, None, None


class _Head(torch.autograd.Function):
    """By parts of the vocabulary: each piece holds all rows, and the sums over it are carried along."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, temperature: float, columns: int
    ) -> tuple[Tensor, Tensor]:
        scratch = _scratch(hidden, len(hidden), min(columns, len(weight)))
        wide = hidden.to(scratch.dtype)
        top = scratch.new_full((len(hidden),), torch.finfo(scratch.dtype).min)
        mass, moment, chosen = scratch.new_zeros(3, len(hidden))
        for piece in _pieces(len(weight), columns):
            logits, powers = scratch[:, :, : piece.stop - piece.start]
            _logits_(logits, wide, weight[piece], None if bias is None else bias[piece], temperature)
            inside, place = _inside(ids, piece)
            chosen = torch.where(inside, logits.gather(1, place).squeeze(1), chosen)
            higher = torch.maximum(top, logits.amax(1))
            more, more_moment = _mass_and_moment_(logits.sub_(higher.unsqueeze(1)), powers)
            # what was summed below the old top, seen from the new one
            shift, top = top - higher, higher
            moment = shift.exp() * (moment + shift * mass) + more_moment
            mass = shift.exp() * mass + more
        mean, log_mass = moment / mass, mass.log()
        ctx.save_for_backward(hidden, weight, bias, ids, top, mass, mean)
        ctx.temperature, ctx.columns = temperature, columns
        return chosen - top - log_mass, log_mass - mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprobs: Tensor, by_entropy: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, ids, top, mass, mean = ctx.saved_tensors
        by_logprobs, by_entropy = by_logprobs / ctx.temperature, by_entropy / ctx.temperature
        constant, slope = _line(mass, mean, by_logprobs, by_entropy)
        scratch = _scratch(hidden, len(hidden), min(ctx.columns, len(weight)))
        wide = hidden.to(scratch.dtype)
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        by_hidden = torch.zeros_like(wide) if for_hidden else None
        by_weight = torch.empty_like(weight) if for_weight else None
        by_bias = torch.empty_like(bias) if for_bias else None
        with _float32_stays(hidden):
            for piece in _pieces(len(weight), ctx.columns):
                part, powers = scratch[:, :, : piece.stop - piece.start]
                _logits_(part, wide, weight[piece], None if bias is None else bias[piece], ctx.temperature)
                _to_gradient_(part.sub_(top.unsqueeze(1)), powers, constant, slope)
                inside, place = _inside(ids, piece)
                part.scatter_add_(1, place, torch.where(inside, by_logprobs, 0).unsqueeze(1))
                if by_hidden is not None:
                    by_hidden.addmm_(part, weight[piece].to(part.dtype))
                if by_weight is not None:
                    _product_(by_weight[piece], part.T, wide)
                if by_bias is not None:
                    by_bias[piece] = part.sum(0)
        return None if by_hidden is None else by_hidden.to(hidden.dtype), by_weight, by_bias, None, None, None


def _refuse(ids: Tensor, size: int, temperature: float, chunk: int | None) -> None:
    if not temperature > 0:
        raise InputError(f"temperature is {temperature}; log-probabilities need one above 0")
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk is {chunk}; it needs to be at least 1")
    outside = (ids < 0) | (ids >= size)
    if bool(outside.any()):
        place = int(outside.nonzero()[0])
        raise InputError(f"place {place}: the token id is {int(ids[place])}, and the vocabulary holds {size}")


def _half(chunk: int) -> int:
    """Scratch is halved: logits in one half, their exponentials in the other."""
    return max(1, chunk // 2)


def _float32_stays(like: Tensor) -> torch.autocast:
    """Keep a caller's autocast from taking products of float32 in less."""
    return torch.autocast(like.device.type, enabled=False)


def _scratch(like: Tensor, rows: int, columns: int) -> Tensor:
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.empty(2, rows, columns, dtype=dtype, device=like.device)


def _pieces(size: int, most: int) -> Iterator[slice]:
    for start in range(0, size, most):
        yield slice(start, min(start + most, size))


def _inside(ids: Tensor, piece: slice) -> tuple[Tensor, Tensor]:
    """Which ids are in this part of the vocabulary, and [S, 1] their place in it (0 for the others)."""
    inside = (ids >= piece.start) & (ids < piece.stop)
    return inside, torch.where(inside, ids - piece.start, 0).unsqueeze(1)


def _logits_(out: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> None:
    """Write the logits of a part of the vocabulary into `out`."""
    out.addmm_(hidden, weight.to(out.dtype).T, beta=0, alpha=1 / temperature)
    if bias is not None:
        out.add_(bias, alpha=1 / temperature)


def _product_(out: Tensor, one: Tensor, other: Tensor) -> None:
    """Write a product into `out`, by way of a tensor of its own only where their dtypes differ."""
    if out.dtype == one.dtype:
        torch.mm(one, other, out=out)
    else:
        out.copy_(one @ other)


def _mass_and_moment_(shifted: Tensor, powers: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over each row exp(x) and x exp(x), where x, all at most 0, is overwritten."""
    mass = torch.exp(shifted, out=powers).sum(1)
    return mass, shifted.clamp_(min=LOWEST).mul_(powers).sum(1)


def _line(mass: Tensor, mean: Tensor, by_logprobs: Tensor, by_entropy: Tensor) -> tuple[Tensor, Tensor]:
    """Constant and slope, by x, of the gradient over exp(x): see `_to_gradient_`."""
    return (by_entropy * mean - by_logprobs) / mass, -by_entropy / mass


def _to_gradient_(shifted: Tensor, powers: Tensor, constant: Tensor, slope: Tensor) -> None:
    """Overwrite x[s, v] by the gradient by its logit, but for that of having been chosen.

    gradient[s, v] = -p[s, v] * (by_logprobs[s] + by_entropy[s] * (x[s, v] - mean[s])), where p = exp(x) / mass and
    mean[s] = sum_v p[s, v] x[s, v].
    """
    torch.exp(shifted, out=powers)
    shifted.clamp_(min=LOWEST)
    torch.addcmul(constant.unsqueeze(1), shifted, slope.unsqueeze(1), out=shifted).mul_(powers)
