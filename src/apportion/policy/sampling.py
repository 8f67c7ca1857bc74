"""Sampling many answers at once, with the log-probability of every sampled token.

All chance is in one number a token, uniform between 0 and 1, that is drawn beforehand. So what an answer is drawn as
does not hang on which others are sampled beside it, nor on how many processes share the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.policy.prefill import read


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn: from softmax(logits / temperature), cut to its `top_p` most probable mass.

    max_rows: answers sampled side by side; more are done one lot after another.
    """

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    max_rows: int = 512

    def left(self, sampled: int) -> int:
        """Most tokens that an answer may still have of which so many were sampled."""
        return max(1, self.max_new_tokens - sampled)


@dataclass(frozen=True)
class Sample:
    """One sampled continuation.

    logprobs: of the sampled tokens, in nats, at the sampling temperature over the whole vocabulary (before the cut to
    `top_p`), in float32: what a trainer's forward pass gives for the same tokens.
    ended: the last token is an end-of-text token, as against cut off at `max_new_tokens`.
    read: tokens of the prompt that the model was run over for it; the others were read for another sample of its lot.
    """

    tokens: list[int]
    logprobs: list[float]
    ended: bool
    read: int


def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    ends: frozenset[int],
    chance: Float[Tensor, "N T"],
    limits: Sequence[int],
) -> list[Sample]:
    """Continue every prompt once, by at most its entry of `limits` (1 or more) tokens.

    ends: the token ids that end an answer; they are kept in it. chance: a number in [0, 1) for every token.
    """
    samples: list[Sample] = []
    for first in range(0, len(prompts), sampling.max_rows):
        lot = slice(first, first + sampling.max_rows)
        samples += _sample_lot(model, prompts[lot], sampling, ends, chance[lot], limits[lot])
    return samples


@torch.no_grad()
def _sample_lot(
    model: Any,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    ends: frozenset[int],
    chance: Float[Tensor, "N T"],
    limits: Sequence[int],
) -> list[Sample]:
    from apportion.policy.roomy import roomy

    device = model.device
    reading = read(model, prompts)
    logits, cache, attention = reading.logits, roomy(reading.cache), reading.attention
    positions = attention.sum(1, keepdim=True)
    end_ids = torch.tensor(sorted(ends), device=device)
    rows = torch.arange(len(prompts), device=device)  # the prompt that each running row continues
    longest = torch.tensor(limits, device=device)
    shape = (len(prompts), max(limits))
    tokens = torch.zeros(shape, dtype=torch.int64, device=device)
    logprobs = torch.zeros(shape, dtype=torch.float32, device=device)
    lengths = torch.zeros(len(prompts), dtype=torch.int64, device=device)
    ended = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    running = torch.ones_like(rows, dtype=torch.bool)  # of the rows still in the cache, those not yet ended

    for t in range(max(limits)):
        drawn, drawn_logprobs = draw(logits, sampling, chance[rows, t])
        tokens[rows[running], t] = drawn[running]
        logprobs[rows[running], t] = drawn_logprobs[running]
        lengths[rows[running]] = t + 1
        stops = running & torch.isin(drawn, end_ids)
        ended[rows[stops]] = True
        running = running & ~stops & (longest[rows] > t + 1)
        if not bool(running.any()):
            break
        if int(running.sum()) <= 0.75 * len(running):  # drop ended rows once they are many
            kept = running.nonzero().squeeze(1)
            cache.reorder_cache(kept)
            rows, drawn, attention, positions = rows[kept], drawn[kept], attention[kept], positions[kept]
            running = torch.ones_like(kept, dtype=torch.bool)
        ids = drawn.unsqueeze(1)
        attention = torch.cat([attention, torch.ones_like(ids)], dim=1)
        out = model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits, cache, positions = out.logits[:, -1], out.cache, positions + 1

    columns = zip(tokens.tolist(), logprobs.tolist(), lengths.tolist(), ended.tolist(), reading.fresh, strict=True)
    return [Sample(ids[:n], probs[:n], end, fresh) for ids, probs, n, end, fresh in columns]


def draw(
    logits: Float[Tensor, "B V"], sampling: Sampling, chance: Float[Tensor, " B"]
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """Draw a token a row: the first at which the probabilities, added up, pass `chance`.

    Its log-probability is that before the cut to `top_p`.
    """
    logprobs = (logits.float() / sampling.temperature).log_softmax(dim=-1)
    probs = logprobs.exp()
    if sampling.top_p < 1:
        probs = _nucleus(probs, sampling.top_p)
    mass = probs.double().cumsum(1)
    if bool(mass[:, -1].isnan().any()):
        raise InputError(
            "the policy gives probabilities that are not numbers, so nothing can be sampled; it has diverged "
            "(a lower learning_rate keeps it from that), or the temperature is out of all reason"
        )
    drawn = torch.searchsorted(mass, chance.double().unsqueeze(1) * mass[:, -1:], right=True)
    return drawn.squeeze(1), logprobs.gather(1, drawn).squeeze(1)


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most probable tokens whose mass reaches `top_p`."""
    ordered, places = probs.sort(dim=-1, descending=True)
    mass_before = ordered.cumsum(-1) - ordered
    ordered = torch.where(mass_before < top_p, ordered, 0)
    return torch.zeros_like(probs).scatter(-1, places, ordered)
