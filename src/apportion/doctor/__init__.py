"""Doctor: what a training run suffers from, whoever trained it. One page a check in `docs/doctor`."""

from apportion.doctor.check import Check
from apportion.doctor.checks import CHECKS
from apportion.doctor.finding import Finding
from apportion.doctor.history import History
from apportion.doctor.run import Diagnosis, diagnose, examine

__all__ = ["CHECKS", "Check", "Diagnosis", "Finding", "History", "diagnose", "examine"]
