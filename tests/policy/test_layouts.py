"""Whatever layout rollouts are given to a model in, log-probabilities, entropies and gradients are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from apportion.errors import InputError
from apportion.policy import layouts, scorer
from apportion.policy.layouts import BY_NAME, Layout, padded
from apportion.policy.scorer import Scorer
from policy_models import model_of

# two answers to one prompt, one to another, a tool's tokens in the middle of one, a row in which nothing was sampled
ROWS = [
    ([5, 9, 14, 30, 22], [0, 0, 1, 1, 1]),
    ([5, 9, 14], [0, 0, 1]),
    ([5, 9, 31, 7, 8, 6], [0, 0, 1, 0, 0, 1]),
    ([40, 41, 42, 43], [0, 0, 0, 1]),
    ([12, 13], [0, 0]),
    ([3, 4], [0, 1]),
]


def grids(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
    width = max(len(tokens) for tokens, _ in rows)
    tokens = torch.tensor([row + [0] * (width - len(row)) for row, _ in rows])
    action = torch.tensor([mask + [0] * (width - len(mask)) for _, mask in rows]).bool()
    valid = torch.arange(width) < torch.tensor([[len(row)] for row, _ in rows])
    return tokens, valid, action


def scored(model: Any, layout: Layout, rows: list[tuple[list[int], list[int]]] = ROWS) -> list[Tensor]:
    found = Scorer(model)(*grids(rows), temperature=0.7, layout=layout)
    loss = (found[0] + 0.3 * found[1]).square().sum()
    return [*found, *torch.autograd.grad(loss, list(model.parameters()))]


FAMILIES = [
    pytest.param("Llama", {}, id="Llama"),
    pytest.param("Qwen2", {}, id="Qwen2"),
    pytest.param("GPT2", {}, id="GPT-2"),
    pytest.param("Gemma2", {"head_dim": 8}, id="Gemma2 with a window"),
    pytest.param("Mistral", {"sliding_window": 3}, id="Mistral with a window"),
    pytest.param("Llama", {"attn_implementation": "eager"}, id="plain attention"),
]


@pytest.mark.parametrize("whole_logits", [0, 2**22], ids=["through-the-head", "logits"])
@pytest.mark.parametrize(("family", "more"), FAMILIES)
@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "padded"])
def test_a_layout_changes_no_number_and_no_gradient(
    name: str, family: str, more: dict[str, Any], whole_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer, "WHOLE_LOGITS", whole_logits)
    model = model_of(family, **more).double()

    torch.testing.assert_close(scored(model, BY_NAME[name]), scored(model, padded), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_a_row_says_is_what_it_says_alone(name: str) -> None:
    model = model_of("Llama").double()
    together = Scorer(model)(*grids(ROWS), temperature=1.0, layout=BY_NAME[name])
    for n, row in enumerate(ROWS):
        alone = Scorer(model)(*grids([row]), temperature=1.0)
        for grid, own in zip(together, alone, strict=True):
            torch.testing.assert_close(grid[n, : own.shape[1]], own[0], rtol=1e-6, atol=1e-7)
            assert not grid[n, own.shape[1] :].any()


def test_a_model_with_a_state_reads_rollouts_one_a_row_and_not_packed() -> None:
    model = model_of("Lfm2", num_hidden_layers=2, layer_types=["conv", "full_attention"]).double()
    once, rows = scored(model, layouts.prompts_once), scored(model, padded)
    torch.testing.assert_close(once, rows, rtol=1e-6, atol=1e-7)
    with pytest.raises(InputError, match="Lfm2ForCausalLM keeps a state from token to token"):
        scored(model, layouts.packed)


def tokens_run(layout: Layout, rows: list[tuple[list[int], list[int]]]) -> list[tuple[int, ...]]:
    model, seen = model_of("Llama"), []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    Scorer(model)(*grids(rows), temperature=1.0, layout=layout)
    return seen[-2:] if layout is layouts.prompts_once else seen[-1:]


def test_several_rollouts_stand_in_one_row_where_there_is_room() -> None:
    # of lengths 5, 3, 6, 4, 2 with something sampled: 6 | 5 | 4 + 2 | 3
    assert tokens_run(layouts.packed, ROWS) == [(4, 6)]


def test_a_prompt_is_read_once_for_all_its_answers() -> None:
    six_answers = [([5, 9, 14, 15, 20 + n, 21], [0, 0, 0, 0, 1, 1]) for n in range(6)]
    # the last token of the prompt foretells the answer, and so starts every row
    assert tokens_run(layouts.prompts_once, six_answers) == [(1, 3), (6, 3)]


def test_prompts_that_nobody_shares_are_no_pass_of_their_own() -> None:
    model = model_of("Llama")
    calls: list[int] = []
    model.model.register_forward_pre_hook(lambda *arguments: calls.append(1))
    layout_of = Scorer(model)
    calls.clear()
    layout_of(*grids(ROWS[2:4]), temperature=1.0, layout=layouts.prompts_once)
    assert len(calls) == 1


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_bins_hold_everything_once_and_no_more_than_fits(lengths: list[int]) -> None:
    bins, starts = layouts._bins(lengths, max(lengths))
    taken = {(b, s + i) for b, s, n in zip(bins, starts, lengths, strict=True) for i in range(n)}
    assert len(taken) == sum(lengths)
    assert all(place < max(lengths) for _, place in taken)
    assert max(bins) + 1 <= 1.7 * -(-sum(lengths) // max(lengths)) + 1, "first fit, longest first, wastes little"
