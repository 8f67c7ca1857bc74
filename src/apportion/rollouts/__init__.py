"""Rollouts: what was sampled, by whom, and how it ended. Nothing here is computed credit."""

from apportion.rollouts.batch import ROUNDING, Rollouts
from apportion.rollouts.collate import collate, pack
from apportion.rollouts.row import Rollout
from apportion.rollouts.runs import Runs
from apportion.rollouts.scores import Scores

__all__ = ["ROUNDING", "Rollout", "Rollouts", "Runs", "Scores", "collate", "pack"]
