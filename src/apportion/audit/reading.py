"""How likely references are behind the prefixes of an answer, each token of which is read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from apportion.policy.causal import CausalPolicy

Ids = Sequence[int]


@torch.inference_mode()
def log_likelihoods(
    policy: CausalPolicy, asked: Sequence[tuple[Ids, Ids, Ids]], told: Callable[[int], None] = lambda count: None
) -> list[float]:
    """log p(reference | prefix, lead), summed over the reference's tokens, of each (prefix, lead, reference).

    What a prefix begins alike with the one before it is not read again. A model that keeps anything but the keys and
    values of every token reads each by itself (`CausalPolicy.log_likelihood`). told: how many there are, after each.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache: Any = DynamicCache(config=policy.model.config)
    by_itself = not all(type(layer) is DynamicLayer for layer in cache.layers)
    held: list[int] = []
    found: list[float] = []
    for prefix, lead, reference in asked:
        if by_itself:
            found += policy.log_likelihood([([*prefix, *lead], reference)])
        else:
            found.append(_next(policy, cache, held, (prefix, lead, reference)))
            held = list(prefix)
        told(len(found))
    return found


def _next(policy: CausalPolicy, cache: Any, held: Ids, asked: tuple[Ids, Ids, Ids]) -> float:
    """Of one more, where the cache has the tokens `held`; afterwards it has those of the prefix."""
    prefix, lead, reference = asked
    policy.refuse_long(len(prefix), len(lead) + len(reference))
    shared = min(_shared(held, prefix), len(prefix) - 1)  # the last token is read again: it foretells the next
    _keep(cache, shared)
    ids = torch.tensor([[*prefix[shared:], *lead, *reference][:-1]], device=policy.model.device)
    out = policy.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=len(reference))
    wanted = torch.tensor(list(reference), device=ids.device).unsqueeze(1)
    likely = out.logits[0].float().log_softmax(1).gather(1, wanted).double().sum()
    _keep(cache, len(prefix))
    return float(likely)


def _keep(cache: Any, tokens: int) -> None:
    """Forget all but the first tokens."""
    beyond = cache.get_seq_length() - tokens
    if beyond > 0:
        cache.crop(-beyond)


def _shared(first: Ids, second: Ids) -> int:
    """How many tokens both begin with."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
