"""The worked example in words: a list of sections, for a terminal or a file; `page` makes a page of them.

Plain ASCII and at most 80 columns, so that it reads the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from apportion.explain.example import Example

WIDTH = 80


@dataclass(frozen=True)
class Section:
    """A heading, the functions that worked out its numbers, and what it says: prose is a string."""

    title: str
    source: str
    body: tuple[RenderableType, ...]


def explain_example(console: Console) -> None:
    """Print the worked example, every number worked out while it is printed."""
    width = min(WIDTH, console.width)
    for number, section in enumerate(sections(Example.compute())):
        heading = Text(f"{number}. {section.title}" if number else section.title, style="bold")
        if section.source:
            heading.append(f"  [{section.source}]", style="not bold dim")
        console.print(heading, width=width)
        for part in section.body:
            console.print()
            shown = Text.from_markup(part) if isinstance(part, str) else part
            console.print(Padding(shown, (0, 0, 0, 3)), width=width, highlight=False)
        console.print()


def sections(example: Example) -> tuple[Section, ...]:
    """The walk, step by step; the first section is the preface."""
    return (
        _preface(),
        _policy(example),
        _reward(example),
        _q(example),
        _value(example),
        _advantage(example),
        _baseline(example),
        _td_errors(example),
        _gae(example),
        _shared(example),
        _policy_gradient(example),
        _exploration(example),
        _clipping(example),
        _penalty(example),
        _summary(),
    )


def _preface() -> Section:
    return Section(
        "One answer, one score: which token earned it?",
        "",
        (
            "In supervised training every token has a target. In reinforcement learning (RL) nobody wrote the right "
            "answer down. The model writes one, a judge reads it to the end and gives it a single score. Training "
            "still has to raise the probability of some tokens and lower that of others. The terms below are what it "
            "takes to get from the one to the other.",
            "Every number is worked out as this is printed; the function that did it stands in brackets.",
        ),
    )


def _policy(example: Example) -> Section:
    inputs = example.inputs
    table = _table("next token", "probability")
    for token, probability in inputs.policy.items():
        table.add_row(token, _plain(probability))
    return Section(
        "Policy, state, action",
        "",
        (
            f"The prompt is '[bold]{inputs.prompt}[/bold]', and the model has written '[bold]{inputs.state}[/bold]'. "
            "All that it has read and written is the [bold]state[/bold]; the next token is the [bold]action[/bold]; "
            "the probabilities from which that token is drawn are the [bold]policy[/bold].",
            table,
            "A whole sampled answer is a [bold]rollout[/bold]. Training changes the weights, and with them the policy.",
        ),
    )


def _reward(example: Example) -> Section:
    inputs, answer = example.inputs, example.answer
    last = len(inputs.answer_tokens)
    return Section(
        "Reward and return",
        "credit.to_go",
        (
            f"Suppose the model draws '[bold]{inputs.chosen}[/bold]' and ends up with these {last} tokens:",
            Text("  ".join(inputs.answer_tokens), style="bold"),
            f"The judge gives {_short(inputs.final_reward)} out of 10. The [bold]reward[/bold] of a token is what is "
            f"earned at it: {_short(answer.rewards[0])} at every token but the last, {_short(answer.rewards[-1])} "
            "there. The [bold]return[/bold] of a token is the sum of the rewards from it to the end "
            "(undiscounted: gamma is 1 for answers that end):",
            _formula("return  =  " + "  ".join(_short(number) for number in answer.returns)),
            "The same number everywhere. Returns alone cannot tell a good token from a bad one.",
        ),
    )


def _q(example: Example) -> Section:
    inputs = example.inputs
    table = _table("next token", "sampled scores", "Q")
    for (token, scores), q in zip(inputs.sampled_scores.items(), example.decision.q, strict=True):
        table.add_row(token, "  ".join(_short(score) for score in scores), _plain(q))
    count = sum(len(scores) for scores in inputs.sampled_scores.values())
    return Section(
        "Q: how good is it to write this token?",
        "apportion, one group a token",
        (
            f"Let the model finish {count} answers from this state and have each judged. The mean score of the answers "
            "that go on with a token is the [bold]Q[/bold] of that token.",
            table,
        ),
    )


def _value(example: Example) -> Section:
    decision = example.decision
    terms = " + ".join(
        f"{_plain(p)} * {_plain(q)}" for p, q in zip(example.inputs.probabilities, decision.q, strict=True)
    )
    return Section(
        "V: how good is the state?",
        "apportion, all in one group",
        (
            "The mean score of all of them, whatever token came next, is the [bold]value[/bold] V of the state: what "
            f"this model scores from here on, on average. Here V = [bold]{_plain(decision.value)}[/bold]. It is also "
            "the mean of the Qs, weighted by the policy:",
            _formula(f"V = {terms} = {_plain(decision.value)}"),
        ),
    )


def _advantage(example: Example) -> Section:
    inputs, decision = example.inputs, example.decision
    table = _table("next token", "Q", "V", "advantage", "so its probability goes")
    for token, q, advantage in zip(inputs.policy, decision.q, decision.advantage, strict=True):
        direction = "up" if advantage > 0 else "down"
        table.add_row(token, _plain(q), _plain(decision.value), _signed(advantage), direction)
    terms = " ".join(
        f"{_joined(p * a, first=n == 0)}"
        for n, (p, a) in enumerate(zip(inputs.probabilities, decision.advantage, strict=True))
    )
    middle = list(inputs.policy)[1]
    return Section(
        "Advantage: better or worse than usual?",
        "credit.telescoping",
        (
            f"Is {_short(decision.q[0])} a good score? That depends on what the model scores anyway. The "
            "[bold]advantage[/bold] is A = Q - V. Its sign is the direction of the update, its size the strength.",
            table,
            "Weighted by the policy, advantages always sum to 0: probability can only be moved from some tokens to "
            "others.",
            _formula(f"sum of policy * A = {terms} = {_plain(decision.weighted_sum)}"),
            f"The yardstick is the model itself: '{middle}' is not the best token, but it beats the present average.",
        ),
    )


def _baseline(example: Example) -> Section:
    found, tokens = example.baseline, example.inputs.policy
    table = _table("update uses", *(f"mean for {token}" for token in tokens), "variance")
    table.add_row("score", *(_signed(m, 2) for m in found.mean_without), _plain(found.variance_without, 2))
    table.add_row("score - V", *(_signed(m, 2) for m in found.mean_with), _plain(found.variance_with, 2))
    return Section(
        "Baseline: the same update with less noise",
        "recipes.reinforce, dr_grpo",
        (
            "In training there is no Q, only single answers with their scores, and scores here are all positive: used "
            "bare, each pushes its own token up, and the right direction shows only after many have cancelled. So a "
            "[bold]baseline[/bold], usually V, is subtracted first. Below, what one answer adds to the three logits:",
            table,
            "The mean update is the same, for the baseline does not depend on which token was drawn. The variance is "
            f"{_plain(found.ratio, 2)} of what it was, about one fifth.",
        ),
    )


def _td_errors(example: Example) -> Section:
    inputs, answer = example.inputs, example.answer
    table = _table("token", "V before it", "reward", "TD error")
    columns = zip(inputs.answer_tokens, answer.values, answer.rewards, answer.td_errors, strict=True)
    for n, (token, value, reward, error) in enumerate(columns):
        table.add_row(
            token, _plain(value), _plain(reward), _signed(error), style="bold" if n == inputs.decision else ""
        )
    return Section(
        "TD error: where did the expected score change?",
        "credit.td_errors",
        (
            "That was one decision. Along the whole answer, look at V before each token. Until the decision it is "
            f"that of the state, {_plain(example.decision.value)}; once '{inputs.chosen}' is written it is "
            f"{_plain(answer.values[-1])}, and the rest of the answer changes nothing. The [bold]TD error[/bold] "
            "(temporal difference) of a token is its reward plus V after it minus V before it; after the end V is 0.",
            table,
            f"All the blame is at '[bold]{inputs.chosen}[/bold]'. And nothing was lost on the way: the TD errors sum "
            "to the reward minus the value at the start,",
            _formula(f"{_signed(sum(answer.td_errors))} = {_plain(inputs.final_reward)} - {_plain(answer.values[0])}"),
        ),
    )


def _gae(example: Example) -> Section:
    inputs, answer = example.inputs, example.answer
    table = _table("token", "lambda 0", f"lambda {inputs.usual_lam:g}", "lambda 1")
    columns = zip(inputs.answer_tokens, answer.gae_0, answer.gae_usual, answer.gae_1, strict=True)
    for n, (token, *credits) in enumerate(columns):
        table.add_row(token, *(_signed(c, 2) for c in credits), style="bold" if n == inputs.decision else "")
    return Section(
        "GAE: how far to trust V",
        "credit.gae",
        (
            "V is an estimate in practice. Generalised advantage estimation adds later TD errors to a token's own, "
            "each step further counting lambda times as much: A = TD error + lambda * (A of the next token).",
            table,
            "With lambda 0 a token answers for what it changed itself; all rests on V. With lambda 1 it gets the final "
            "score minus V: the two tokens before the decision are blamed as well, though every answer starts with "
            f"them. That is noise, and it averages out over many answers. PPO often takes {inputs.usual_lam:g}.",
        ),
    )


def _shared(example: Example) -> Section:
    answer = example.answer
    return Section(
        "One advantage for the whole answer",
        "recipes.dr_grpo",
        (
            "PPO trains a second network, the critic, to predict V. GRPO does without one: it samples a group of "
            "answers to one prompt, and every token of an answer gets that answer's score minus the group's mean. In "
            "our example the ten tokens get",
            _formula("  ".join(_signed(number) for number in answer.shared)),
            "The harmless tokens at the end are blamed as much as the one that decided. (GRPO also divides by the "
            "group's standard deviation; Dr. GRPO, used here, does not.) How to do better than this, step by step and "
            "token by token, is what this library is for.",
        ),
    )


def _policy_gradient(example: Example) -> Section:
    table = _table("updates", *example.inputs.policy, "V")
    for n, (policy, value) in enumerate(example.trajectory):
        table.add_row(str(n), *(_plain(p, 2) for p in policy), _plain(value, 1))
    middle = list(example.inputs.policy)[1]
    return Section(
        "Policy gradient: the update",
        "losses.policy_gradient",
        (
            "The loss of a token is -A * log(its probability): cross-entropy, weighted by the advantage. In our state, "
            "on average, each logit moves by policy * A times the step size. Two such updates:",
            table,
            f"'{middle}' gains first and loses next: once V has passed its Q of "
            f"{_plain(example.decision.q[1])}, it is below average. As the model improves, so does the yardstick.",
        ),
    )


def _exploration(example: Example) -> Section:
    greedy, inputs = example.greedy, example.inputs
    best = max(zip(example.decision.q, inputs.policy, strict=True))
    return Section(
        "Exploration: why answers are sampled",
        "recipes.dr_grpo",
        (
            f"Greedy decoding would always write '[bold]{greedy.token}[/bold]'. Its answers score "
            f"{_plain(greedy.mean_score)} on average, so V is {_plain(greedy.mean_score)} as well, the mean advantage "
            f"is {_plain(greedy.mean_advantage)}, and the mean update of the three logits is",
            _formula("  ".join(_plain(number) for number in greedy.mean_update)),
            f"Nothing is learnt; that '{best[1]}' would score {_plain(best[0])} never shows. Sampling at temperature 1 "
            "finds it now and then, and that is enough to learn from.",
        ),
    )


def _clipping(example: Example) -> Section:
    inputs, clip = example.inputs, example.clip
    table = _table(f"probability of '{inputs.clip.token}'", "ratio", "gradient")
    for probability, gradient in zip(clip.probabilities, clip.gradients, strict=True):
        table.add_row(_plain(probability, 3), _plain(probability / clip.pi_old, 2), _plain(gradient, 2))
    return Section(
        "Clipping: not too far on one batch",
        "losses.ppo_clip",
        (
            "Sampling is dear, so a batch of answers is used for several updates, and the policy moves away from the "
            "one that wrote them. The [bold]ratio[/bold] is a token's probability now over its probability then. Once "
            f"it leaves the range {1 - inputs.clip.epsilon:g} to {1 + inputs.clip.epsilon:g}, on the side to which the "
            "advantage pushes, the gradient stops:",
            table,
            f"From {_plain(clip.pi_old)} this batch can push '{inputs.clip.token}' to "
            f"[bold]{_plain(clip.highest_pi_with_gradient, 2)}[/bold] and no further. For more, sample anew.",
        ),
    )


def _penalty(example: Example) -> Section:
    given, found = example.inputs.kl, example.penalty
    table = _table("flattering answers", "mean score", "KL", "score - beta * KL")
    for share, score, kl, objective in (
        (given.p_ref, found.score_before, found.kl_before, found.objective_before),
        (given.p_new, found.score_after, found.kl_after, found.objective_after),
    ):
        table.add_row(f"{share:.0%}", _plain(score, 2), _plain(kl, 2), _plain(objective, 2))
    return Section(
        "KL penalty: stay where the judge can be trusted",
        "losses.kl_k1",
        (
            f"Judges have weak spots. Say this one gives {_plain(given.score_plain)} to a plain good answer and "
            f"{_plain(given.score_flattery)} to the same with flattery. The model before RL, the [bold]reference[/bold]"
            f", flatters in {given.p_ref:.0%} of its answers; training on the score alone would take that to "
            f"{given.p_new:.0%} and beyond. The KL divergence measures how far the policy has moved from the "
            f"reference, and beta times it (here beta = {given.beta:g}) is taken off the score:",
            table,
            "The score rises a little, the objective falls: flattery, a small case of [bold]reward "
            "hacking[/bold], no longer pays. Real runs count KL token by "
            "token, with a far smaller beta.",
        ),
    )


def _summary() -> Section:
    return Section(
        "In short",
        "",
        (
            "The model is the policy; the next token is the action. The judge scores finished answers only. V is the "
            "mean score from a state on, Q after a token, and the advantage Q - V says whether the token was better "
            "than usual. TD errors and GAE put credit where the expected score changed. The policy gradient follows "
            "the credit; sampling gives it something to learn from; clipping and KL keep it close to home.",
            "Next: apportion credit FILE --recipe grpo --out FILE works out the credit of your own answers, and "
            "apportion train trains a small model.",
        ),
    )


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for n, column in enumerate(columns):
        table.add_column(column, justify="left" if n == 0 else "right")
    return table


def _formula(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 3))


def _short(number: float) -> str:
    return f"{number:g}"


def _plain(number: float, digits: int = 1) -> str:
    """Fixed digits, and never a minus sign before zero."""
    return f"{round(number, digits) + 0.0:.{digits}f}"


def _signed(number: float, digits: int = 1) -> str:
    text = _plain(number, digits)
    return f"+{text}" if round(number, digits) > 0 else text


def _joined(number: float, *, first: bool) -> str:
    """A term of a sum: `-1.15`, then ` + 0.21`."""
    text = _plain(abs(number), 2)
    sign = "-" if number < 0 else "+"
    return (f"-{text}" if number < 0 else text) if first else f"{sign} {text}"
