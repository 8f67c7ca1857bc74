"""Who samples the continuations: a model in this process, a server, or actors of Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from apportion.policy.causal import SMALL, CausalPolicy
from apportion.policy.continuing import Lots
from apportion.policy.ray_engine import RayActors
from apportion.policy.sampling import Sampling
from apportion.value_file.settings import Settings
from apportion.value_file.tokenizer import Tokenizer
from apportion.values.engine import Engine


def policy_of(settings: Settings) -> CausalPolicy | None:
    """The policy, where it is this process that samples."""
    if settings.server is not None or settings.engine != "process":
        return None
    policy = CausalPolicy.load(settings.policy)
    if policy.parameters < SMALL:
        torch.set_num_threads(1)
    return policy


@contextmanager
def engine_of(
    settings: Settings, policy: CausalPolicy | None, tokenizer: Tokenizer, max_new_tokens: int
) -> Iterator[Engine]:
    """The engine, as long as it is needed. max_new_tokens: of an answer as a whole."""
    sampling = Sampling(max_new_tokens, settings.temperature, settings.top_p, settings.at_once)
    if policy is not None:
        yield Lots(policy, sampling, settings.seed)
    elif settings.server is not None and settings.server_model is not None:
        from apportion.policy.server import Server
        from apportion.policy.server_connection import Endpoint

        endpoint = Endpoint(settings.server, settings.server_model, concurrency=settings.at_once)
        yield Server(endpoint, sampling, settings.seed, tokenizer.encoder)
    else:
        with closing(RayActors(settings.policy, sampling, settings.seed, settings.actors())) as engine:
            yield engine
