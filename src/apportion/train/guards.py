"""Guards of a run: what they see amiss they answer, and say so as an event in the metrics.

Source of the entropy floor: SPEC 8.4. Adaptive KL: Ziegler et al., arXiv:1909.08593, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from apportion.train.config import TrainConfig
from apportion.train.tally import Figures
from apportion.train.update import Terms

Event = dict[str, Any]
"""guard: which one. seen: the figure that made it act. done: what it did, in words."""

CLIP = 0.2
"""The most by which one step's KL may count as off its target, as a share of it."""


@dataclass
class Guards:
    """Weights of the loss's terms, step by step, and why they are what they are.

    kl_beta: the weight of the KL, which moves where there is a target. low: the entropy was under its floor.
    """

    config: TrainConfig
    kl_beta: float
    low: bool = False

    @classmethod
    def of(cls, config: TrainConfig) -> Guards:
        return cls(config, config.kl_beta)

    @property
    def terms(self) -> Terms:
        """What the next update is to weigh by."""
        return Terms(policy=0.5 if self.low else 1.0, kl_beta=self.kl_beta if self.config.kl_in == "loss" else 0.0)

    def begun(self) -> list[Event]:
        """What is to be said of the settings themselves."""
        asked, own = self.config.deployment_temperature, self.config.temperature
        if asked is None or asked == own:
            return []
        return [
            {
                "guard": "temperature",
                "seen": own,
                "done": f"nothing; the policy is to be deployed at temperature {asked}",
            }
        ]

    def judge(self, complaints: list[str]) -> list[Event]:
        """What is to be said of answers that could not be judged."""
        if not complaints:
            return []
        done = f"left these answers unscored; the first: {complaints[0]}"
        return [{"guard": "judge", "seen": len(complaints), "done": done}]

    def after(self, figures: Figures) -> list[Event]:
        """Look at the figures of an update, and set the terms of the next one. What is no number tells nothing."""
        figures = {name: value if value is None or isfinite(value) else None for name, value in figures.items()}
        return [*self._skipped(figures), *self._entropy(figures), *self._kl(figures)]

    def _skipped(self, figures: Figures) -> list[Event]:
        skipped = (figures["skipped_updates"] or 0) + (figures.get("critic_skipped_updates") or 0)
        if not skipped:
            return []
        return [
            {"guard": "not_finite", "seen": skipped, "done": "left out updates whose loss or gradient is no number"}
        ]

    def _entropy(self, figures: Figures) -> list[Event]:
        """Halve the policy term while the entropy is under `entropy_floor` of the reference's on the same answers."""
        share = figures["entropy_share_of_reference"]
        if share is None or self.config.entropy_floor == 0:
            return []
        low, self.low = self.low, share < self.config.entropy_floor
        if self.low == low:
            return []
        done = "halved the policy term of the loss" if self.low else "gave the policy term of the loss its weight again"
        return [{"guard": "entropy", "seen": share, "done": done}]

    def _kl(self, figures: Figures) -> list[Event]:
        """kl_beta *= 1 + clip(kl / kl_target - 1, +-0.2) * answers / kl_horizon; told where the clip holds it back."""
        config, kl = self.config, figures["kl"]
        if config.kl_target is None or kl is None:
            return []
        off = min(max(kl / config.kl_target - 1, -CLIP), CLIP)
        self.kl_beta *= 1 + off * config.prompts * config.group / config.kl_horizon
        if abs(off) < CLIP:
            return []
        return [{"guard": "kl", "seen": kl, "done": f"kl_beta is {self.kl_beta:.6g} from now on"}]

    def state(self) -> dict[str, Any]:
        return {"kl_beta": self.kl_beta, "low": self.low}

    def load(self, state: dict[str, Any]) -> None:
        self.kl_beta, self.low = state["kl_beta"], state["low"]
