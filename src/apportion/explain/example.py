"""The numbers of the worked example, each by the library's own function where there is one.

One state, three next tokens, ten sampled answers with a score each. The inputs are in `open_example.json`; nothing that
can be computed is written down there. Everything is float64, and all discounts are 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources

import torch
from torch import Tensor

from apportion import credit, losses, recipes
from apportion.ledger import Ledger, Recipe, apportion
from apportion.rollouts import Rollout, collate

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class ClipInputs:
    """A token whose probability is pushed up, and the range allowed to the ratio: 1 - epsilon to 1 + epsilon."""

    token: str
    epsilon: float


@dataclass(frozen=True)
class KlInputs:
    """Two ways to end the answer: p_ref and p_new are probabilities of flattery, before and after training."""

    beta: float
    p_ref: float
    p_new: float
    score_plain: float
    score_flattery: float


@dataclass(frozen=True)
class Inputs:
    """What is given: the policy in one state, scores of sampled answers by their next token, one answer in full."""

    prompt: str
    state: str
    policy: dict[str, float]
    sampled_scores: dict[str, Numbers]
    answer_tokens: tuple[str, ...]
    chosen: str
    final_reward: float
    usual_lam: float
    step_size: float
    updates: int
    clip: ClipInputs
    kl: KlInputs

    @classmethod
    def load(cls) -> Inputs:
        """Read the example that comes with the package."""
        raw = json.loads(resources.files("apportion.explain").joinpath("open_example.json").read_text("utf-8"))
        lists = {
            "sampled_scores": {token: tuple(scores) for token, scores in raw["sampled_scores"].items()},
            "answer_tokens": tuple(raw["answer_tokens"]),
        }
        return cls(**{**raw, **lists, "clip": ClipInputs(**raw["clip"]), "kl": KlInputs(**raw["kl"])})

    @property
    def probabilities(self) -> Numbers:
        return tuple(self.policy.values())

    @property
    def decision(self) -> int:
        """Where in the answer the token was chosen."""
        return self.answer_tokens.index(self.chosen)


@dataclass(frozen=True)
class Decision:
    """One state: Q and the advantage of each next token, V of the state, and the mean advantage under the policy."""

    q: Numbers
    value: float
    advantage: Numbers
    weighted_sum: float


@dataclass(frozen=True)
class Answer:
    """The sampled answer, one number a token."""

    values: Numbers
    rewards: Numbers
    returns: Numbers
    td_errors: Numbers
    gae_0: Numbers
    gae_usual: Numbers
    gae_1: Numbers
    shared: Numbers


@dataclass(frozen=True)
class Baseline:
    """Updates of the logits by single answers: their mean, and their variance summed over the logits."""

    mean_without: Numbers
    mean_with: Numbers
    variance_without: float
    variance_with: float

    @property
    def ratio(self) -> float:
        return self.variance_with / self.variance_without


@dataclass(frozen=True)
class Greedy:
    """Answers that all start with the likeliest token."""

    token: str
    mean_score: float
    mean_advantage: float
    mean_update: Numbers


@dataclass(frozen=True)
class Clip:
    """The gradient of the objective with respect to a token's log-probability, as its probability moves up."""

    pi_old: float
    probabilities: Numbers
    gradients: Numbers
    highest_pi_with_gradient: float


@dataclass(frozen=True)
class Penalty:
    """Score and KL before and after the policy turned to flattery; objective = score - beta * KL."""

    score_before: float
    score_after: float
    kl_before: float
    kl_after: float
    objective_before: float
    objective_after: float


@dataclass(frozen=True)
class Example:
    """The whole example, worked out."""

    inputs: Inputs
    decision: Decision
    answer: Answer
    baseline: Baseline
    trajectory: tuple[tuple[Numbers, float], ...]
    greedy: Greedy
    clip: Clip
    penalty: Penalty

    @classmethod
    def compute(cls, inputs: Inputs | None = None) -> Example:
        """Work everything out from the inputs; by default those that come with the package."""
        inputs = inputs or Inputs.load()
        decision = _decision(inputs)
        advantage = dict(zip(inputs.policy, decision.advantage, strict=True))[inputs.clip.token]
        return cls(
            inputs=inputs,
            decision=decision,
            answer=_answer(inputs, decision),
            baseline=_baseline(inputs),
            trajectory=_climb(inputs, decision.q),
            greedy=_greedy(inputs),
            clip=_clip(inputs, advantage),
            penalty=_penalty(inputs.kl),
        )


def _decision(inputs: Inputs) -> Decision:
    """Q: mean score of the answers that go on with a token. V: mean score of all. A: what the token changed."""
    policy = _tensor(inputs.probabilities)
    by_token = _ledger(inputs, recipes.dr_grpo(), group_of=lambda token: token)
    means = {token: by_token.value[n, 0] for n, (token, _) in enumerate(_answers(inputs))}
    q = torch.stack([means[token] for token in inputs.policy])
    value = _ledger(inputs, recipes.dr_grpo()).value[0, 0]
    rewards = torch.stack([torch.zeros_like(q), q], dim=1)
    advantage = credit.telescoping(rewards, torch.stack([value.expand_as(q), q], dim=1))[:, 0]
    return Decision(_floats(q), float(value), _floats(advantage), float(policy @ advantage))


def _answer(inputs: Inputs, decision: Decision) -> Answer:
    """V is that of the state until the token is chosen, and Q of the token from then on."""
    q = dict(zip(inputs.policy, decision.q, strict=True))[inputs.chosen]
    before = inputs.decision + 1
    values = _tensor([decision.value] * before + [q] * (len(inputs.answer_tokens) - before)).unsqueeze(0)
    rewards = torch.zeros_like(values)
    rewards[0, -1] = inputs.final_reward
    return Answer(
        values=_floats(values[0]),
        rewards=_floats(rewards[0]),
        returns=_floats(credit.to_go(rewards, torch.zeros_like(values))[0]),
        td_errors=_floats(credit.td_errors(rewards, values, gamma=1.0)[0]),
        gae_0=_floats(credit.gae(rewards, values, gamma=1.0, lam=0.0)[0]),
        gae_usual=_floats(credit.gae(rewards, values, gamma=1.0, lam=inputs.usual_lam)[0]),
        gae_1=_floats(credit.gae(rewards, values, gamma=1.0, lam=1.0)[0]),
        shared=_shared(inputs),
    )


def _shared(inputs: Inputs) -> Numbers:
    """What every token of the shown answer gets where only whole answers are compared."""
    ledger = _ledger(inputs, recipes.dr_grpo())
    shown = _answers(inputs).index((inputs.chosen, inputs.final_reward))
    return _floats(ledger.advantage[ledger.rollouts.rollout_of == shown])


def _baseline(inputs: Inputs) -> Baseline:
    """The sampled answers stand for the policy exactly: each token's share of them is its probability."""
    without = _updates(inputs, _ledger(inputs, recipes.reinforce()).credit)
    with_value = _updates(inputs, _ledger(inputs, recipes.dr_grpo()).credit)
    return Baseline(
        mean_without=_floats(without.mean(0)),
        mean_with=_floats(with_value.mean(0)),
        variance_without=float(without.var(0, correction=0).sum()),
        variance_with=float(with_value.var(0, correction=0).sum()),
    )


def _updates(inputs: Inputs, advantages: Tensor) -> Tensor:
    """What each sampled answer alone adds to the logits [N, tokens]: minus the gradient of its loss."""
    tokens = list(inputs.policy)
    chosen = [tokens.index(token) for token, _ in _answers(inputs)]
    logits = _tensor(inputs.probabilities).log().repeat(len(chosen), 1).requires_grad_()
    logprobs = logits.log_softmax(1).gather(1, torch.tensor(chosen).unsqueeze(1))
    loss = losses.policy_gradient(logprobs, advantages, _everywhere(advantages)).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    return -gradient


def _climb(inputs: Inputs, q: Numbers) -> tuple[tuple[Numbers, float], ...]:
    """The policy and V after each update by the exact gradient, in which each token weighs its probability."""
    logits, scores = _tensor(inputs.probabilities).log(), _tensor(q)
    trajectory = []
    for _ in range(inputs.updates + 1):
        logits = logits.detach().requires_grad_()
        logprobs = logits.log_softmax(0).unsqueeze(0)
        policy = logprobs.exp().detach()
        value = (policy * scores).sum()
        trajectory.append((_floats(policy[0]), float(value)))
        token_loss = losses.policy_gradient(logprobs, (scores - value).unsqueeze(0), _everywhere(policy))
        (gradient,) = torch.autograd.grad(losses.total(token_loss, policy), logits)
        logits = logits - inputs.step_size * gradient
    return tuple(trajectory)


def _greedy(inputs: Inputs) -> Greedy:
    """The same training step as with a baseline, on the answers that greedy decoding would give."""
    token = max(inputs.policy, key=lambda name: inputs.policy[name])
    only = replace(inputs, sampled_scores={token: inputs.sampled_scores[token]})
    ledger = _ledger(only, recipes.dr_grpo())
    return Greedy(
        token=token,
        mean_score=float(ledger.value[0, 0]),
        mean_advantage=float(ledger.credit.mean()),
        mean_update=_floats(_updates(only, ledger.credit).mean(0)),
    )


def _clip(inputs: Inputs, advantage: float) -> Clip:
    old, epsilon = inputs.policy[inputs.clip.token], inputs.clip.epsilon

    def gradient(probability: float) -> float:
        now = _tensor([[probability]]).log().requires_grad_()
        loss = losses.ppo_clip(
            now,
            _tensor([[old]]).log(),
            _tensor([[advantage]]),
            _everywhere(now),
            clip_low=epsilon,
            clip_high=epsilon,
        )
        return -float(torch.autograd.grad(loss.sum(), now)[0])

    shown = tuple(old * (1 + epsilon * move) for move in (0, 0.5, 0.95, 1.05, 1.5))
    return Clip(old, shown, tuple(gradient(p) for p in shown), _last_with(gradient, old, 1.0))


def _last_with(gradient: Callable[[float], float], low: float, high: float) -> float:
    """The largest probability whose gradient is not 0, by halving."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gradient(middle) != 0 else (low, middle)
    return low


def _penalty(given: KlInputs) -> Penalty:
    scores = _tensor([given.score_plain, given.score_flattery])
    reference = _tensor([[1 - given.p_ref, given.p_ref]])

    def after(flattery: float) -> tuple[float, float]:
        policy = _tensor([[1 - flattery, flattery]])
        sampled = losses.kl_k1(policy.log(), reference.log(), _everywhere(policy))
        return float((policy[0] * scores).sum()), float(losses.total(sampled, policy))

    (score_before, kl_before), (score_after, kl_after) = after(given.p_ref), after(given.p_new)
    return Penalty(
        score_before=score_before,
        score_after=score_after,
        kl_before=kl_before,
        kl_after=kl_after,
        objective_before=score_before - given.beta * kl_before,
        objective_after=score_after - given.beta * kl_after,
    )


def _answers(inputs: Inputs) -> list[tuple[str, float]]:
    """The sampled answers: next token and score."""
    return [(token, score) for token, scores in inputs.sampled_scores.items() for score in scores]


def _ledger(inputs: Inputs, recipe: Recipe, group_of: Callable[[str], str] | None = None) -> Ledger:
    """Apportion the sampled answers, as one group or by their next token; the shown answer has all its tokens."""
    rows = []
    for token, score in _answers(inputs):
        shown = (token, score) == (inputs.chosen, inputs.final_reward)
        length = len(inputs.answer_tokens) if shown else inputs.decision + 1
        group = group_of(token) if group_of else inputs.prompt
        rows.append(Rollout(tokens=range(length), action_mask=[True] * length, group=group, outcome=score))
    return apportion(collate(rows, dtype=torch.float64), recipe).require_laws()


def _everywhere(like: Tensor) -> Tensor:
    return torch.ones_like(like, dtype=torch.bool)


def _tensor(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _floats(numbers: Tensor) -> Numbers:
    return tuple(numbers.tolist())
