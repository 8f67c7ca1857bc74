import pytest
import torch
from transformers import AutoModelForCausalLM, Lfm2Config

from apportion.errors import InputError
from apportion.policy import prefill, sampling
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling, draw
from apportion.tasks.chain import Chain


@pytest.fixture(scope="module")
def policy():
    return CausalPolicy.load("embedded")


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def numbers(*shape):
    return torch.rand(*shape, generator=chance())


def prompts(policy, count=6):
    short, long = Chain(steps=2).held_out(count), Chain(steps=5).held_out(count)
    return [policy.encode(problem.prompt) for pair in zip(short, long, strict=True) for problem in pair]


@torch.no_grad()
def plain_logprobs(model, prompt, tokens, *, temperature):
    logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0].float()
    logprobs = (logits / temperature).log_softmax(-1)
    return [float(logprobs[len(prompt) + t - 1, token]) for t, token in enumerate(tokens)]


def nested(policy):
    """Three beginnings of each prompt, each of them twice."""
    whole = prompts(policy, count=3)
    return [prompt[:end] for prompt in whole for end in (4, 7, len(prompt)) for _ in range(2)]


@pytest.mark.parametrize(
    "made", [pytest.param(prompts, id="several-prompts"), pytest.param(nested, id="nested-and-repeated")]
)
def test_sampled_logprobs_are_those_of_a_plain_forward_pass(policy, made):
    asked = made(policy)
    for prompt, sample in zip(asked, policy.sample(asked, Sampling(48, temperature=0.8), chance()), strict=True):
        plain = plain_logprobs(policy.model, prompt, sample.tokens, temperature=0.8)
        assert sample.logprobs == pytest.approx(plain, abs=1e-4)


def test_a_model_with_states_goes_on_rightly_when_answers_end_one_after_another():
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    config = Lfm2Config(**sizes, num_attention_heads=4, num_key_value_heads=2, layer_types=["conv", "full_attention"])
    model = AutoModelForCausalLM.from_config(config).eval()
    asked = [[5 + n, 9, 3] for n in range(8)]
    samples = sampling.sample(model, asked, Sampling(8), frozenset(), numbers(8, 8), range(1, 9))
    for prompt, sample in zip(asked, samples, strict=True):
        assert sample.logprobs == pytest.approx(plain_logprobs(model, prompt, sample.tokens, temperature=1), abs=1e-5)


def test_a_sample_ends_with_the_first_end_token_or_at_the_limit(policy):
    for sample in policy.sample(prompts(policy), Sampling(20), chance()):
        ends = [token in policy.ends for token in sample.tokens]
        assert sample.ended == ends[-1]
        assert not any(ends[:-1])
        assert sample.ended or len(sample.tokens) == 20


def test_generated_tokens_are_counted(policy):
    before = policy.generated
    samples = policy.sample(prompts(policy), Sampling(20), chance())
    assert policy.generated - before == sum(len(sample.tokens) for sample in samples)


def test_what_is_drawn_does_not_hang_on_how_prompts_are_read(policy, monkeypatch):
    asked = nested(policy)
    samples = policy.sample(asked, Sampling(48), chance())
    monkeypatch.setattr(prefill, "_keeps_every_token", lambda model: False)
    rows = policy.sample(asked, Sampling(48), chance())
    assert [(one.tokens, one.ended) for one in samples] == [(one.tokens, one.ended) for one in rows]
    assert [one.read for one in rows] == list(map(len, asked))


def test_a_cache_with_room_holds_what_one_without_holds(policy, monkeypatch):
    asked = prompts(policy)
    samples = policy.sample(asked, Sampling(48), chance())
    monkeypatch.setattr("apportion.policy.roomy.roomy", lambda cache: cache)
    plain = policy.sample(asked, Sampling(48), chance())
    assert [(one.tokens, one.logprobs) for one in samples] == [(one.tokens, one.logprobs) for one in plain]


def test_a_lot_reads_each_distinct_token_of_its_prompts_once(policy):
    asked = nested(policy)
    samples = policy.sample(asked, Sampling(4, max_rows=18), chance())
    for lot in (slice(0, 18), slice(18, 36)):
        distinct = {tuple(prompt[: n + 1]) for prompt in asked[lot] for n in range(len(prompt))}
        assert sum(one.read for one in samples[lot]) == len(distinct) < sum(map(len, asked[lot])) / 3


def test_tokens_are_drawn_as_often_as_they_are_probable():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(20_000, 1)
    drawn, logprobs = draw(logits, Sampling(1), numbers(len(logits)))
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert shares.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.015)
    assert torch.equal(logprobs.unique(), torch.tensor([0.5, 0.3, 0.2]).log().log_softmax(0).unique())


def test_a_token_is_drawn_where_the_probabilities_added_up_pass_the_number():
    logits = torch.tensor([0.5, 0.0, 0.25, 0.25]).log().repeat(5, 1)
    chance = torch.tensor([0.0, 0.499, 0.5, 0.75, 1 - 2**-24])
    drawn, _ = draw(logits, Sampling(1), chance)
    assert drawn.tolist() == [0, 0, 2, 3, 3], "never the one of probability 0"


def test_what_an_answer_is_drawn_as_does_not_hang_on_the_others(policy):
    asked = prompts(policy)
    together = policy.sample(asked, Sampling(24), chance())
    given = torch.rand(len(asked), 24, generator=chance())
    for n in (0, 5, 11):
        alone = sampling.sample(policy.model, [asked[n]], Sampling(24), policy.ends, given[[n]], [24])
        assert alone[0].tokens == together[n].tokens


def test_the_nucleus_keeps_the_fewest_tokens_that_reach_the_mass():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(2000, 1)
    drawn, _ = draw(logits, Sampling(1, top_p=0.6), numbers(2000))
    assert set(drawn.tolist()) == {0, 1}
    drawn, _ = draw(logits, Sampling(1, top_p=0.4), numbers(2000))
    assert set(drawn.tolist()) == {0}


def test_temperature_sharpens_and_its_logprobs_say_so():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    drawn, logprobs = draw(logits.repeat(200, 1), Sampling(1, temperature=0.5), numbers(200))
    first = logprobs[drawn == 0][0]
    assert float(first) == pytest.approx(-0.142932, abs=1e-6)


def test_more_prompts_than_rows_side_by_side_are_done_in_lots(policy):
    asked = prompts(policy)
    samples = policy.sample(asked, Sampling(48, max_rows=5), chance())
    assert len(samples) == len(asked)
    assert all(sample.tokens for sample in samples)


def test_every_prompt_keeps_to_its_own_limit(policy):
    asked = prompts(policy)
    limits = [1 + n % 5 for n in range(len(asked))]
    for sample, limit in zip(policy.sample(asked, Sampling(48), chance(), limits), limits, strict=True):
        assert len(sample.tokens) == limit
        assert not sample.ended


def test_no_prompts_give_no_samples(policy):
    assert policy.sample([], Sampling(4), chance()) == []


def test_a_policy_that_has_diverged_says_so():
    with pytest.raises(InputError, match="has diverged"):
        draw(torch.full((1, 3), float("nan")), Sampling(1), numbers(1))
