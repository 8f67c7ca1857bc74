"""What the user asked for, by the names of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from apportion.errors import InputError, did_you_mean
from apportion.values import belief, boundaries, rules
from apportion.values.belief import Mean
from apportion.values.rules import Rule

SAMPLES = 6
"""Continuations of a prefix unless something else is asked for."""


@dataclass(frozen=True)
class Settings:
    """What labels a file of rollouts.

    policy: whose chances of success the values are; with a server or with Ray, its folder gives this process the
    tokenizer. checker, data, task: the judge, by reference answers or by the rule of a task.
    at_once: continuations sampled side by side. same_policy: the file's own answers were sampled by this policy in
    just this way, so they count as samples too.
    """

    policy: str
    server: str | None = None
    server_model: str | None = None
    engine: str = "process"
    split: str | None = None
    most_step_tokens: int | None = None
    format: str | None = None
    checker: str | None = None
    task: str | None = None
    data: Path | None = None
    samples: int | None = None
    error: float | None = None
    boundaries: str = "every"
    budget: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int | None = None
    at_once: int = 64
    same_policy: bool = False
    seed: int = 0
    store: Path | None = None

    def __post_init__(self) -> None:
        if self.samples is not None and self.error is not None:
            raise InputError("--samples is a number for every prefix and --error lets it follow; give one of them")
        if self.server is not None and self.engine != "process":
            raise InputError(f"--server and --engine {self.engine} both say who samples; give one of them")
        if (self.server is None) != (self.server_model is None):
            raise InputError("--server and --server-model go together: a URL, and the name of the model there")
        if self.task is not None and (self.data is not None or self.checker is not None):
            raise InputError("--task judges by its own rule, and --data and --checker by answers; give one of them")
        counts = {"at-once": self.at_once, "budget": self.budget, "max-new-tokens": self.max_new_tokens}
        for name, given in counts.items():
            if given is not None and given < 1:
                raise InputError(f"--{name} is {given}; expected at least 1")
        if not self.temperature > 0 or not 0 < self.top_p <= 1:
            raise InputError(
                f"--temperature is {self.temperature} and --top-p {self.top_p}; expected above 0, and above 0 to 1"
            )
        self.rule()
        boundaries.by_name(self.boundaries)
        self.actors()

    def rule(self) -> Rule:
        """How many continuations a prefix gets."""
        return rules.uniform(self.most_samples()) if self.error is None else rules.adaptive(self.error)

    def most_samples(self) -> int:
        """The most continuations that the rule gives any prefix."""
        if self.error is not None:
            return belief.most_for(self.error)
        return SAMPLES if self.samples is None else self.samples

    def mean(self) -> Mean:
        """What a value is, of its samples: what they let us believe where they are few by choice, else their mean."""
        return belief.sample_mean if self.error is None else belief.mean

    def actors(self) -> int | None:
        """How many actors of Ray are asked for; None = as many as fit, or none where this process samples."""
        kind, _, argument = self.engine.partition(":")
        if kind == "ray" and argument.isdecimal():
            return int(argument)
        if self.engine not in ("process", "ray"):
            known = ["process", "ray", "ray:ACTORS"]
            raise InputError(f"there is no engine {self.engine!r}{did_you_mean(self.engine, known)}")
        return None

    def store_beside(self, target: Path) -> Path:
        """Where the continuations are kept: beside the target unless somewhere else is named."""
        return self.store or target.with_name(f"{target.name}.store")
