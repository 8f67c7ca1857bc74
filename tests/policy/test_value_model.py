"""A critic's network: what it reads, and what moves with it."""

from __future__ import annotations

import pytest
import torch

from apportion.policy import layouts
from apportion.policy.value_model import BY_NAME, head_on, own_model, trunk_of
from policy_models import model_of

TOKENS = torch.tensor([[5, 9, 14, 30, 22], [5, 9, 31, 0, 0]])
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
CELLS = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 0, 0, 0]]).bool()


def stirred(network: torch.nn.Module) -> torch.nn.Module:
    """With a head that is no longer nothing."""
    torch.manual_seed(1)
    for weights in network.head.parameters():
        torch.nn.init.normal_(weights)
    return network


@pytest.mark.parametrize("name", BY_NAME)
def test_a_critic_starts_by_expecting_nothing(name: str) -> None:
    assert not BY_NAME[name](model_of("Llama"))(TOKENS, VALID, CELLS).any()


@pytest.mark.parametrize("layout", layouts.BY_NAME)
@pytest.mark.parametrize("name", BY_NAME)
def test_a_value_is_the_heads_word_on_the_state_after_its_token(name: str, layout: str) -> None:
    model = model_of("Llama")
    network = stirred(BY_NAME[name](model))
    states = model.model(input_ids=TOKENS, attention_mask=VALID.long()).last_hidden_state
    expected = torch.where(CELLS, network.head(states).squeeze(2), 0)
    found = network(TOKENS, VALID, CELLS, layout=layouts.BY_NAME[layout])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_model_of_its_own_is_a_copy_that_learns_as_a_whole() -> None:
    model = model_of("Llama").requires_grad_(False)
    network = stirred(own_model(model))
    network(TOKENS, VALID, CELLS).sum().backward()
    assert all(weights.grad is not None for weights in network.parameters())
    own, of_policy = network.trunk.embed_tokens.weight, model.model.embed_tokens.weight
    assert own is not of_policy
    assert torch.equal(own, of_policy)


def test_a_head_on_the_policy_learns_alone_and_does_not_move_the_policy() -> None:
    model = model_of("Llama")
    network = stirred(head_on(model))
    network(TOKENS, VALID, CELLS).sum().backward()
    assert {name for name, _ in network.named_parameters()} == {
        "head.0.weight",
        "head.0.bias",
        "head.2.weight",
        "head.2.bias",
    }
    assert all(weights.grad is not None for weights in network.parameters())
    assert all(weights.grad is None for weights in model.parameters())


def test_nothing_asked_is_nothing_said() -> None:
    assert not stirred(own_model(model_of("Llama")))(TOKENS, VALID, torch.zeros_like(CELLS)).any()


def test_the_trunk_is_the_model_without_its_head() -> None:
    llama, gpt2 = model_of("Llama"), model_of("GPT2")
    assert trunk_of(llama) is llama.model
    assert trunk_of(gpt2) is gpt2.transformer
