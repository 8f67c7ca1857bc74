"""Log-probabilities through the head alone, for the models whose logits it makes alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apportion.errors import InputError
from apportion.policy import scorer
from apportion.policy.causal import CausalPolicy
from apportion.policy.head import hidden_states, plain_head
from policy_models import model_of


class Letters:
    """As much of a tokenizer as a policy needs to be made."""

    eos_token_id = 1


@pytest.fixture
def llama() -> Any:
    return model_of("Llama")


def in_full(model: Any, temperature: float) -> tuple[Tensor, Tensor]:
    every = (model(input_ids=TOKENS, attention_mask=VALID.long()).logits[:, :-1] / temperature).log_softmax(-1)
    found = every.gather(2, TOKENS[:, 1:].unsqueeze(2)).squeeze(2)
    return found, torch.special.entr(every.exp()).sum(-1)


TOKENS = torch.tensor([[5, 9, 14, 30, 22], [5, 9, 14, 0, 0]])
VALID = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
ACTION = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        pytest.param("Llama", {}, id="Llama"),
        pytest.param("Llama", {"tie_word_embeddings": True}, id="tied to the embedding"),
        pytest.param("Phi", {}, id="with a bias"),
        pytest.param("GPT2", {}, id="GPT-2"),
    ],
)
def test_a_head_that_makes_the_logits_alone_is_found(family: str, settings: dict[str, Any]) -> None:
    model = model_of(family, **settings)

    assert plain_head(model) is model.lm_head


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        pytest.param("Gemma2", {"head_dim": 8}, id="logits bent"),
        pytest.param("Cohere", {}, id="logits scaled"),
        pytest.param("Granite", {"logits_scaling": 8.0}, id="logits divided"),
    ],
)
def test_a_model_that_does_more_to_its_logits_has_no_plain_head(family: str, settings: dict[str, Any]) -> None:
    assert plain_head(model_of(family, **settings)) is None


def test_logits_that_are_shifted_or_cut_or_not_made_by_the_head_are_no_plain_heads(llama: Any) -> None:
    forward = llama.forward

    def changed(change: Any) -> Any:
        def run(**inputs: Any) -> Any:
            out = forward(**inputs)
            out.logits = change(out.logits)
            return out

        llama.forward = run
        return plain_head(llama)

    assert changed(lambda logits: logits) is llama.lm_head
    assert changed(lambda logits: logits + 0.01) is None
    assert changed(lambda logits: logits * 1.01) is None
    assert changed(lambda logits: logits[..., :40]) is None
    assert changed(lambda logits: logits.masked_fill(torch.arange(48) > 40, -torch.inf)) is None
    llama.forward = lambda **inputs: forward(**inputs, logits_to_keep=1)
    assert plain_head(llama) is None


def test_a_head_of_another_kind_or_of_no_say_is_not_taken(llama: Any) -> None:
    class Other(nn.Linear):
        pass

    llama.lm_head.weight.data.zero_()
    assert plain_head(llama) is None
    llama.lm_head = Other(16, 48, bias=False)
    assert plain_head(llama) is None
    assert plain_head(llama.model) is None
    assert plain_head(nn.Identity()) is None


def test_looking_for_the_head_leaves_the_model_as_it_was(llama: Any) -> None:
    before = llama(input_ids=TOKENS).logits

    plain_head(llama)
    hidden_states(llama, llama.lm_head, input_ids=TOKENS, attention_mask=VALID.long())

    assert torch.equal(llama(input_ids=TOKENS).logits, before)
    assert all(parameter.grad is None for parameter in llama.parameters())


def test_the_hidden_states_are_those_that_make_the_logits(llama: Any) -> None:
    hidden = hidden_states(llama, llama.lm_head, input_ids=TOKENS, attention_mask=VALID.long())

    expected = llama(input_ids=TOKENS, attention_mask=VALID.long()).logits
    torch.testing.assert_close(llama.lm_head(hidden), expected)


def test_hidden_states_that_are_not_one_a_token_are_not_given(llama: Any) -> None:
    forward = llama.model.forward

    def shorter(**inputs: Any) -> Any:
        out = forward(**inputs)
        out.last_hidden_state = out.last_hidden_state[:, 1:]
        return out

    llama.model.forward = lambda *arguments, **inputs: shorter(**inputs)

    with pytest.raises(InputError, match="one vector a token"):
        hidden_states(llama, llama.lm_head, input_ids=TOKENS, attention_mask=VALID.long())


@pytest.mark.parametrize(
    ("family", "settings", "through_head"),
    [
        pytest.param("Llama", {}, True, id="Llama"),
        pytest.param("Phi", {}, True, id="with a bias"),
        pytest.param("Gemma2", {"head_dim": 8}, False, id="logits bent: asked for as ever"),
    ],
)
def test_large_logits_are_not_made_and_the_numbers_and_gradients_are_the_same(
    monkeypatch: pytest.MonkeyPatch, family: str, settings: dict[str, Any], through_head: bool
) -> None:
    model = model_of(family, **settings).double()
    for parameter in model.parameters():
        parameter.data.mul_(4)  # so that a bend shows
    monkeypatch.setattr(scorer, "WHOLE_LOGITS", 10 * 48 - 1)
    seen: list[tuple[int, ...]] = []
    policy = CausalPolicy(model, Letters())
    assert (policy.scorer.head[0] is not None) == through_head
    model.lm_head.register_forward_hook(lambda module, arguments, logits: seen.append(tuple(logits.shape)))

    found = policy.logprobs(TOKENS, VALID, ACTION, temperature=0.7)
    slopes = torch.autograd.grad((found[0] + 0.5 * found[1]).sum(), list(model.parameters()), allow_unused=True)
    assert seen == [(2, 1, 48) if through_head else (2, 5, 48)]

    expected = [torch.where(ACTION[:, 1:], column, 0) for column in in_full(model, 0.7)]
    expected_slopes = torch.autograd.grad((expected[0] + 0.5 * expected[1]).sum(), list(model.parameters()))
    torch.testing.assert_close([column[:, 1:] for column in found], [column.float() for column in expected])
    torch.testing.assert_close(slopes, expected_slopes, rtol=1e-5, atol=1e-6)
    assert not any(column[~ACTION].any() for column in found)


def test_small_logits_are_made_as_a_whole(llama: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "WHOLE_LOGITS", 10 * 48)
    seen: list[tuple[int, ...]] = []
    policy = CausalPolicy(llama, Letters())
    assert policy.scorer.head[0] is llama.lm_head
    llama.lm_head.register_forward_hook(lambda module, arguments, logits: seen.append(tuple(logits.shape)))

    policy.logprobs(TOKENS, VALID, ACTION, temperature=1.0)

    assert seen == [(2, 5, 48)]
