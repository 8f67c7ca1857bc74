"""Train wrongly on purpose and see what `apportion doctor` says: `python benchmarks/illnesses.py --out runs/ill`.

    python benchmarks/illnesses.py --out runs/ill                     # train what is not there yet, then judge
    python benchmarks/illnesses.py --out runs/ill --only critic-frozen
    python benchmarks/illnesses.py --out runs/ill --well runs/well    # and every run in that folder, as well ones

Each illness is a setting, or a piece of the trainer that is replaced by a wrong one while it trains. Runs take about a
minute each. Prints the confusion matrix in Markdown: illness × finding, with the finding's place in the report.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from apportion import doctor, losses, recipes
from apportion.doctor import Finding
from apportion.policy.sampling import Sample
from apportion.rewards.mixing import AS_GIVEN, at_end
from apportion.rollouts import Rollout, collate
from apportion.tasks.chain import Chain
from apportion.train.collect import Collector
from apportion.train.config import resolve
from apportion.train.loop import Trainer
from apportion.train.run_folder import RunFolder
from apportion.train.update import Updater

COMMON = {"prompts": 16, "held_out": 32, "steps": 30, "ledger_every": 20, "checkpoint_every": 1000}
TOOL = 6
"""Tokens that the pretended tool writes."""


@dataclass(frozen=True)
class Illness:
    """expected: the code that must come first; None = nothing of level error may be found."""

    expected: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    planted: Callable[[], AbstractContextManager[Any]] = nullcontext


def scored_by(score: Callable[[float, str], float]) -> Callable[[], AbstractContextManager[Any]]:
    """The judge gives another score for what he would have given and the answer."""
    right = Chain.score
    return lambda: patch.object(Chain, "score", lambda self, problem, said: score(right(self, problem, said), said))


@contextmanager
def paid_by_length() -> Iterator[None]:
    """Every sampled token is worth something, whatever it says."""

    class PaidByLength:
        def __call__(self, rollouts, steps):
            tokens = rollouts.action_counts.to(rollouts.outcome.dtype)
            return AS_GIVEN(rollouts, steps) | {"process": at_end(tokens / 2, steps)}

        def total(self, rollout, steps):
            return AS_GIVEN.total(rollout, steps) + sum(rollout.action_mask) / 2

    with patch.dict(recipes.BY_NAME, grpo=lambda right=recipes.grpo: replace(right(), reward=PaidByLength())):
        yield


def sharpened() -> AbstractContextManager[Any]:
    """The entropy is pressed down instead of held up."""
    right = losses.entropy_bonus
    return patch.object(losses, "entropy_bonus", lambda entropy, mask: -right(entropy, mask))


def at_another_temperature() -> AbstractContextManager[Any]:
    """Log-probabilities of the update are at temperature 1.5, and sampling is not."""
    right = Updater.__init__

    def wrong(self, policy, config, wrap):
        right(self, policy, config, wrap)
        self.config = config.model_copy(update={"temperature": 1.5})

    return patch.object(Updater, "__init__", wrong)


def with_tool(masked: bool) -> Callable[[], AbstractContextManager[Any]]:
    """A tool writes into every answer behind its first line, and the policy goes on; masked: its tokens are known."""
    right = Collector._ask

    def with_a_tool(self, problems, answers, generator):
        rows = [up_to_the_tool(row, masked) for row in right(self, problems, answers, generator).rows()]
        most = self.config.max_new_tokens
        limits = [most - sum(row.action_mask) + (0 if masked else TOOL) for row in rows]
        samples = self.policy.sample([list(row.tokens) for row in rows], self.sampling(), generator, limits)
        return collate([gone_on(self, *pair) for pair in zip(rows, samples, strict=True)])

    return lambda: patch.object(Collector, "_ask", with_a_tool)


def up_to_the_tool(row: Rollout, masked: bool) -> Rollout:
    """The first line of an answer, and what the tool says to it: tokens of the prompt, here and there."""
    first = row.action_mask.index(True)
    ends = (n + 1 for n, (start, end) in enumerate(row.offsets) if n >= first and "\n" in row.text[start:end])
    at = next(ends, first + 1)
    seed = zlib.crc32(repr(row.tokens).encode())
    said = [row.tokens[(seed + 3 * n) % first] for n in range(TOOL)]
    return replace(
        row,
        tokens=[*row.tokens[:at], *said],
        action_mask=[*row.action_mask[:at], *[not masked] * TOOL],
        logprobs=[*row.logprobs[:at], *[float("nan") if masked else 0.0] * TOOL],
        turns=[0] * first + [1] * (at - first) + [2] * TOOL,
        text=None,
        offsets=None,
    )


def gone_on(collector: Collector, row: Rollout, sample: Sample) -> Rollout:
    """The same with what the policy sampled behind the tool's words."""
    more = len(sample.tokens)
    tokens = [*row.tokens, *sample.tokens]
    text, offsets = collector.policy.spell(tokens)
    return replace(
        row,
        tokens=tokens,
        action_mask=[*row.action_mask, *[True] * more],
        logprobs=[*row.logprobs, *sample.logprobs],
        turns=[*row.turns, *[3] * more],
        ended=sample.ended,
        text=text,
        offsets=offsets,
    )


def nearly_alike(right: float, said: str) -> float:
    """Scores of a judge who tells nothing apart: 0.5, and a difference that rounding or a hash could make."""
    return 0.5 + 1e-5 * (zlib.crc32(said.encode()) % 16)


ILLNESSES = {
    "kl-beta-large": Illness("D12", {"kl_beta": 10.0, "updates": 2}),
    "reward-x100": Illness("D04", {"recipe": "dr_grpo"}, scored_by(lambda right, said: 100 * right)),
    "group-std-near-0": Illness("D08", {}, scored_by(nearly_alike)),
    "tool-mask-missing": Illness("D02", {}, with_tool(masked=False)),
    "length-hacking": Illness("D05", {"steps": 40, "temperature": 1.3}, paid_by_length),
    "critic-frozen": Illness("D09", {"recipe": "ppo", "critic_learning_rate": 1e-12}),
    "entropy-collapse": Illness("D14", {"entropy_bonus": 3.0, "entropy_floor": 0.0, "learning_rate": 1e-3}, sharpened),
    "wrong-temperature": Illness("D03", {}, at_another_temperature),
    "cut-off": Illness("D07", {"max_new_tokens": 46}),
    "tools-masked (well)": Illness(None, {}, with_tool(masked=True)),
}


def train(illness: Illness, folder: Path) -> None:
    torch.manual_seed(0)
    config = resolve(COMMON | illness.settings)
    with illness.planted():
        Trainer(RunFolder.new(folder), config, Silent()).train()


class Silent:
    def evaluated(self, when: str, rate: object) -> None: ...

    def stepped(self, metrics: object, timings: object) -> None: ...


def row(name: str, found: list[Finding], expected: str | None) -> str:
    """A line of the matrix: where each finding stands, in bold the one that was expected there."""
    cells = []
    for check in doctor.CHECKS:
        place = next((n for n, finding in enumerate(found, 1) if finding.code == check.code), None)
        said = "" if place is None else f"{place} {found[place - 1].level}"
        cells.append(f"**{said}**" if said and check.code == expected else said)
    return f"| {name} | {expected or 'no error'} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(ILLNESSES))
    parser.add_argument("--well", type=Path, nargs="*", default=[], help="folders of runs that are well")
    options = parser.parse_args()
    print("| run | expected first | " + " | ".join(check.code for check in doctor.CHECKS) + " |")
    print("|---|---|" + "---|" * len(doctor.CHECKS))
    failed = []
    for name in options.only:
        folder = options.out / re.sub(r"\W+", "-", name).strip("-")
        if not (folder / "model").exists():
            train(ILLNESSES[name], folder)
        found = doctor.diagnose(folder)
        print(row(name, found, ILLNESSES[name].expected), flush=True)
        failed += [] if as_expected(found, ILLNESSES[name].expected) else [name]
    for folder in sorted(path.parent for well in options.well for path in well.glob("*/metrics.jsonl")):
        found = doctor.diagnose(folder)
        print(row(f"{folder.parent.name}/{folder.name}", found, None), flush=True)
        failed += [] if as_expected(found, None) else [folder.name]
    print(f"\nnot as expected: {', '.join(failed) or 'none'}")


def as_expected(found: list[Finding], expected: str | None) -> bool:
    if expected is None:
        return all(finding.level != "error" for finding in found)
    return bool(found) and found[0].code == expected


if __name__ == "__main__":
    main()
