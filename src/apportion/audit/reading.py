"""How likely references are behind the prefixes of an answer, each token of which is read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from apportion.policy.causal import CausalPolicy

Ids = Sequence[int]


@torch.inference_mode()
def log_likelihoods(policy: CausalPolicy, asked: Sequence[tuple[Ids, Ids, Ids]]) -> Iterator[float]:
    """log p(reference | prefix, lead), summed over the reference's tokens, of each (prefix, lead, reference).

    What a prefix begins alike with the one before it is not read again. A model that keeps anything but the keys and
    values of every token reads each by itself (`CausalPolicy.log_likelihood`).
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache: Any = DynamicCache(config=policy.model.config)
    if not all(type(layer) is DynamicLayer for layer in cache.layers):
        for prefix, lead, reference in asked:
            yield from policy.log_likelihood([([*prefix, *lead], reference)])
        return
    held: list[int] = []
    for prefix, lead, reference in asked:
        policy.refuse_long(len(prefix), len(lead) + len(reference))
        shared = min(_shared(held, prefix), len(prefix) - 1)  # the last token is read again: it foretells the next
        own = [*prefix[shared:], *lead, *reference]
        _keep(cache, shared)
        ids = torch.tensor([own[:-1]], device=policy.model.device)
        logits = policy.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=len(reference)).logits[0]
        wanted = torch.tensor(list(reference), device=logits.device).unsqueeze(1)
        yield float(logits.float().log_softmax(1).gather(1, wanted).double().sum())
        _keep(cache, len(prefix))
        held = list(prefix)


def _keep(cache: Any, tokens: int) -> None:
    """Forget all but the first tokens."""
    beyond = cache.get_seq_length() - tokens
    if beyond > 0:
        cache.crop(-beyond)


def _shared(first: Ids, second: Ids) -> int:
    """How many tokens both begin with."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
