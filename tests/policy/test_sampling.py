import pytest
import torch

from apportion.errors import InputError
from apportion.policy.causal import CausalPolicy
from apportion.policy.sampling import Sampling, draw
from apportion.tasks.chain import Chain


@pytest.fixture(scope="module")
def policy():
    return CausalPolicy.load("embedded")


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def prompts(policy, count=6):
    short, long = Chain(steps=2).held_out(count), Chain(steps=5).held_out(count)
    return [policy.encode(problem.prompt) for pair in zip(short, long, strict=True) for problem in pair]


def test_sampled_logprobs_are_those_of_a_plain_forward_pass(policy):
    asked = prompts(policy)
    for prompt, sample in zip(asked, policy.sample(asked, Sampling(48, temperature=0.8), chance()), strict=True):
        ids = torch.tensor([[*prompt, *sample.tokens]])
        with torch.no_grad():
            logprobs = (policy.model(input_ids=ids).logits[0].float() / 0.8).log_softmax(-1)
        plain = [float(logprobs[len(prompt) + t - 1, token]) for t, token in enumerate(sample.tokens)]
        assert sample.logprobs == pytest.approx(plain, abs=1e-4)


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


def test_tokens_are_drawn_as_often_as_they_are_probable():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(20_000, 1)
    drawn, logprobs = draw(logits, Sampling(1), chance())
    shares = torch.bincount(drawn, minlength=3) / len(drawn)
    assert shares.tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.015)
    assert torch.equal(logprobs.unique(), torch.tensor([0.5, 0.3, 0.2]).log().log_softmax(0).unique())


def test_the_nucleus_keeps_the_fewest_tokens_that_reach_the_mass():
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(2000, 1)
    drawn, _ = draw(logits, Sampling(1, top_p=0.6), chance())
    assert set(drawn.tolist()) == {0, 1}
    drawn, _ = draw(logits, Sampling(1, top_p=0.4), chance())
    assert set(drawn.tolist()) == {0}


def test_temperature_sharpens_and_its_logprobs_say_so():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    drawn, logprobs = draw(logits.repeat(200, 1), Sampling(1, temperature=0.5), chance())
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
        draw(torch.full((1, 3), float("nan")), Sampling(1), chance())
