"""A batch that the trainer handed over as `Rollouts`: one rollout a session, its outputs one after another.

Under verl's trainer v1 a session of an agent may have several outputs, each a row with a prompt of its own and all
with the reward of the last. Here they are one rollout, cut into rows, and the reward counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from apportion.adapters.verl.batch import Laid, Pay, numbered, turns_of
from apportion.adapters.verl.handed import Handed
from apportion.errors import InputError
from apportion.policy.text import Speller
from apportion.rollouts import Rollouts, Scores
from apportion.steps.given import values_of_tokens


@dataclass(frozen=True)
class _Sessions:
    """rows: of verl's grid, a session after another; owner: the session of each; last: the row of its last output."""

    rows: Sequence[int]
    owner: Sequence[int]
    last: Sequence[int]
    names: Sequence[str]
    groups: Sequence[str]


def laid_as_handed(rewards: Float[Tensor, "B R"], handed: Handed, pay: Pay) -> Laid | None:
    """Lay out prompts and responses; None where all rows are padding.

    rewards: as verl has them by now, with a KL penalty where there is one.
    Raises InputError for a key that names no session, or step rewards beside a KL penalty in the reward.
    """
    if rewards.shape != handed.mask.shape:
        raise InputError(f"verl computes advantages of {tuple(rewards.shape)}, handed over {tuple(handed.mask.shape)}")
    sessions = _sessions(handed)
    if not sessions.rows:
        return None
    device, width = rewards.device, handed.prompts.shape[1]
    rows, owner = torch.tensor(sessions.rows, device=device), torch.tensor(sessions.owner, device=device)
    valid = torch.cat([handed.prompt_tokens, handed.response_tokens], 1)[rows]
    mask = functional.pad(handed.mask, (width, 0))[rows]
    rollouts = Rollouts(
        tokens=torch.cat([handed.prompts, handed.responses], 1)[rows],
        rollout_of=torch.where(valid, owner.unsqueeze(1), -1),
        action_mask=mask,
        turns=torch.where(valid, turns_of(mask, owner), -1),
        groups=numbered(sessions.groups).to(device),
        outcome=torch.zeros(len(sessions.names), dtype=rewards.dtype, device=device),
        ended=torch.ones(len(sessions.names), dtype=torch.bool, device=device),
        ids=tuple(sessions.names),
        group_names=tuple(dict.fromkeys(sessions.groups)),
    )
    last = torch.zeros_like(handed.mask[:, :1]).index_fill(0, torch.tensor(sessions.last, device=device), True)
    own = torch.where(last, rewards, rewards - handed.scores)
    paid = _paid_by_step(rollouts, rewards, handed, sessions) or pay(rollouts, functional.pad(own, (width, 0))[rows])
    valued = _with_values(paid, handed, rows, sessions)
    return Laid(_with_text(valued, handed), rows, width, (rewards.shape[0], rewards.shape[1]))


def _sessions(handed: Handed) -> _Sessions:
    """Those of all rows that are no padding, in the order in which they come first."""
    found: dict[tuple[str, str], dict[int, int]] = {}
    for row, (key, padding) in enumerate(zip(handed.keys, handed.padding, strict=True)):
        prompt, _, rest = key.rpartition("_")
        prompt, _, session = prompt.rpartition("_")
        if not prompt or not rest.isdecimal():
            raise InputError(f"row {row}: its key is {key!r}; expected PROMPT_SESSION_OUTPUT")
        if not padding:
            found.setdefault((prompt, session), {})[int(rest)] = row
    ordered = [[outputs[number] for number in sorted(outputs)] for outputs in found.values()]
    return _Sessions(
        rows=[row for outputs in ordered for row in outputs],
        owner=[n for n, outputs in enumerate(ordered) for _ in outputs],
        last=[outputs[-1] for outputs in ordered],
        names=["_".join(key) for key in found],
        groups=[prompt for prompt, _ in found],
    )


def _paid_by_step(rollouts: Rollouts, rewards: Tensor, handed: Handed, sessions: _Sessions) -> Rollouts | None:
    """With the outcome and step rewards that the reward function gave; None where it gave no step rewards."""
    steps = [handed.step_rewards[row] if handed.step_rewards else None for row in sessions.last]
    if all(scores is None for scores in steps):
        return None
    if not torch.equal(rewards, handed.scores):
        raise InputError(
            "step rewards came, and verl put a KL penalty into the rewards beside them "
            "(algorithm.use_kl_in_reward); take it in the loss: actor_rollout_ref.actor.use_kl_loss=True"
        )
    outcome = rewards.sum(1)[torch.tensor(sessions.last, device=rewards.device)]
    said = [
        handed.outcomes[row] if scores is not None else None for row, scores in zip(sessions.last, steps, strict=True)
    ]
    for n, number in enumerate(said):
        if number is not None:
            outcome[n] = number
    return replace(rollouts, outcome=outcome, step_rewards=Scores.of(steps).to(rewards.device))


def _with_values(rollouts: Rollouts, handed: Handed, rows: Int[Tensor, " b"], sessions: _Sessions) -> Rollouts:
    """Step values of the reward function, or else the critic's of every token; and the sampler's log-probabilities."""
    left = (handed.prompts.shape[1], 0)
    steps = [handed.step_values[row] if handed.step_values else None for row in sessions.last]
    values = None
    if any(scores is not None for scores in steps):
        values = Scores.of(steps).to(rollouts.tokens.device)
    elif handed.values is not None:
        values = values_of_tokens(rollouts, functional.pad(handed.values, left)[rows])
    logprobs = None
    if handed.logprobs is not None:
        grid = functional.pad(handed.logprobs.float(), left)[rows]
        logprobs = torch.where(rollouts.action_mask, grid, torch.nan)
    return replace(rollouts, step_values=values, logprobs=logprobs)


def _with_text(rollouts: Rollouts, handed: Handed) -> Rollouts:
    if not handed.wants_text or handed.tokenizer is None:
        return rollouts
    speller = Speller(handed.tokenizer)
    texts = [""] * len(rollouts)
    offsets = torch.zeros(*rollouts.tokens.shape, 2, dtype=torch.int64)
    owner = rollouts.rollout_of.amax(1).tolist()
    for row, (tokens, valid) in enumerate(zip(rollouts.tokens.cpu(), rollouts.valid_mask.cpu(), strict=True)):
        text, spans = speller.spell(tokens[valid].tolist())
        offsets[row][valid] = torch.tensor(spans).view(-1, 2) + len(texts[owner[row]])
        texts[owner[row]] += text
    return replace(rollouts, texts=tuple(texts), offsets=offsets.to(rollouts.tokens.device))
