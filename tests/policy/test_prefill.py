from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    GPTNeoConfig,
    Lfm2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MptConfig,
)

from apportion.errors import InputError
from apportion.policy import prefill
from apportion.policy.causal import CausalPolicy
from apportion.policy.prefill import branches, read

TOKENS = 50
SIZES = {"vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
MARKS = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}

WHOLE = {
    "llama": LlamaConfig(**SIZES, **HEADS),
    "absolute-positions": GPT2Config(vocab_size=TOKENS, n_embd=32, n_layer=2, n_head=4, n_positions=25, **MARKS),
    "window-by-column": GPTNeoConfig(
        vocab_size=TOKENS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=5,
        **MARKS,
    ),
    "distance-by-column": MptConfig(vocab_size=TOKENS, d_model=32, n_layers=2, n_heads=4, max_seq_len=64),
}
PARTIAL = {
    "sliding-window": MistralConfig(**SIZES, **HEADS, sliding_window=6),
    "some-layers-with-a-window": Gemma2Config(**SIZES, **HEADS, head_dim=8, sliding_window=6, **MARKS),
    "some-layers-with-a-state": Lfm2Config(**SIZES, **HEADS, layer_types=["conv", "full_attention"], **MARKS),
}


def tiny(config):
    """A model of random weights, large enough that its logits differ from place to place."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.mul_(8)
    return model


@pytest.fixture(scope="module")
def models():
    made = {name: tiny(config) for name, config in (WHOLE | PARTIAL).items()}
    return {"embedded": CausalPolicy.load("embedded").model, **made}


PATH = [2 + 11 * n % 47 for n in range(24)]
BOUGH = [*PATH[:8], 1, *PATH[:11]]
PROMPTS = [PATH[:10], PATH, PATH[:3], BOUGH, PATH, BOUGH[:12], [*BOUGH[:14], 1, 1], [1], [1, 7, 9], [*PATH[:20], 1]]
"""Repeated and nested ones, some that leave another one here or there, and two that share nothing with the others."""
FRESH = [0, 24, 0, 12, 0, 0, 2, 0, 3, 1]


def prefixes(asked: Sequence[Sequence[int]]) -> set[tuple[int, ...]]:
    return {tuple(prompt[: n + 1]) for prompt in asked for n in range(len(prompt))}


class Watch:
    """Counts the calls of a model, the cells of their batches, and the tokens among these."""

    def __init__(self, model):
        self.calls = self.cells = self.tokens = 0
        self._handle = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, model, arguments, named):
        width = named["input_ids"].shape[1]
        self.calls += 1
        self.cells += named["input_ids"].numel()
        self.tokens += int(named["attention_mask"][:, -width:].sum())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._handle.remove()


@torch.no_grad()
def alone(model, prompt):
    return model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]


@pytest.mark.parametrize("name", ["embedded", *WHOLE, *PARTIAL])
def test_logits_are_those_of_every_prompt_alone(models, name):
    expected = torch.stack([alone(models[name], prompt) for prompt in PROMPTS])
    atol = 1e-5 * float(expected.abs().max())
    assert (expected[1:] - expected[:-1]).abs().amax(1).min() > 1000 * atol
    assert torch.allclose(read(models[name], PROMPTS).logits, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["embedded", *WHOLE, *PARTIAL])
@torch.no_grad()
def test_the_model_goes_on_from_the_cache_as_from_every_prompt_alone(models, name):
    reading = read(models[name], PROMPTS)
    following = torch.arange(2, 2 + len(PROMPTS)).unsqueeze(1)
    logits = models[name](
        input_ids=following,
        attention_mask=torch.cat([reading.attention, torch.ones_like(following)], dim=1),
        position_ids=reading.attention.sum(1, keepdim=True),
        cache=reading.cache,
        use_cache=True,
    ).logits[:, -1]
    expected = torch.stack([alone(models[name], [*prompt, 2 + row]) for row, prompt in enumerate(PROMPTS)])
    assert torch.allclose(logits, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["embedded", *WHOLE])
def test_every_distinct_token_goes_through_the_model_once(models, name):
    with Watch(models[name]) as seen:
        reading = read(models[name], PROMPTS)
    assert reading.fresh == FRESH
    assert seen.tokens == sum(FRESH) == len(prefixes(PROMPTS))


@pytest.mark.parametrize("name", PARTIAL)
def test_a_model_that_does_not_remember_every_token_reads_every_prompt(models, name):
    with Watch(models[name]) as seen:
        reading = read(models[name], PROMPTS)
    assert seen.tokens == sum(reading.fresh) == sum(map(len, PROMPTS))


def test_absolute_positions_are_a_prompts_own_where_every_prompt_is_a_row(models, monkeypatch):
    monkeypatch.setattr(prefill, "_keeps_every_token", lambda model: False)
    model = models["absolute-positions"]
    expected = torch.stack([alone(model, prompt) for prompt in PROMPTS])
    assert torch.allclose(read(model, PROMPTS).logits, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_the_cache_is_as_wide_as_the_longest_prompt(models):
    reading = read(models["llama"], PROMPTS)
    assert [layer.keys.shape for layer in reading.cache.layers] == [(len(PROMPTS), 2, len(PATH), 8)] * 2
    assert reading.attention.shape == (len(PROMPTS), len(PATH))
    assert reading.attention.sum(1).tolist() == list(map(len, PROMPTS))


def test_nested_prompts_are_read_in_one_go(models):
    with Watch(models["llama"]) as seen:
        read(models["llama"], [PATH[: n + 1] for n in range(len(PATH))])
    assert seen.calls == 1
    assert seen.cells == len(PATH)


def test_answers_that_part_at_one_place_are_read_side_by_side():
    assert [len(level) for level in branches([(1, 1, 1), (1, 2), (1, 3), (1, 4)])] == [1, 3]


def test_the_head_is_left_as_it_was(models):
    read(models["llama"], PROMPTS)
    assert not models["llama"].lm_head._forward_pre_hooks


def test_a_model_of_states_alone_is_refused():
    model = tiny(MambaConfig(vocab_size=TOKENS, hidden_size=32, num_hidden_layers=2, state_size=8, **MARKS))
    with pytest.raises(InputError, match="MambaForCausalLM has no attention"):
        read(model, PROMPTS)


def test_a_prompt_without_tokens_is_refused(models):
    with pytest.raises(InputError, match="prompt 1 has no tokens"):
        read(models["llama"], [PATH, [], PATH])


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple), min_size=1, max_size=12)


@given(SEQUENCES)
def test_branches_hold_every_prefix_once_and_in_one_place(asked):
    held = {}
    for branch in (branch for level in branches(asked) for branch in level):
        assert len(branch.places) == len(branch.tokens)
        for n in range(branch.start):
            assert held[branch.tokens[: n + 1]] == branch.places[n]
        for n in range(branch.start, len(branch.tokens)):
            assert branch.tokens[: n + 1] not in held
            held[branch.tokens[: n + 1]] = branch.places[n]
    assert held.keys() == prefixes(asked)
    assert list(held.values()) == list(range(len(held)))


@given(SEQUENCES)
def test_every_distinct_prompt_ends_in_what_one_branch_reads(asked):
    found = [branch.tokens[:end] for level in branches(asked) for branch in level for end in branch.ends]
    assert sorted(found) == sorted(set(asked))
    assert all(end > branch.start for level in branches(asked) for branch in level for end in branch.ends)


@given(SEQUENCES)
def test_a_branch_leaves_one_of_a_level_before(asked):
    before = {()}
    for level in branches(asked):
        assert all(branch.tokens[: branch.start] in before for branch in level)
        before |= prefixes([branch.tokens for branch in level])


@given(SEQUENCES)
def test_no_more_is_run_with_padding_than_a_row_for_every_distinct_prompt(asked):
    padded = sum(len(level) * max(len(branch.fresh) for branch in level) for level in branches(asked))
    assert padded <= len(set(asked)) * max(map(len, asked))
