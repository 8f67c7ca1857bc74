"""What is said once for a whole batch: gamma, lam, the recipe, the loss, how many digits to trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apportion.errors import InputError
from apportion.lint import names
from apportion.lint.tensors import column_of
from apportion.lint.tolerance import LARGEST


@dataclass(frozen=True)
class Settings:
    """Numbers and names that belong to the whole batch. None = did not come, which is not 0."""

    gamma: float | None = None
    lam: float | None = None
    recipe: str | None = None
    loss: float | None = None
    reduction: str | None = None
    divisor: float | None = None
    tolerance: float | None = None


def settings_of(came: Mapping[str, Any]) -> Settings:
    """Read the settings among the columns; a file of rows repeats them in every row.

    Raises InputError for a value that varies, is out of range, or is a name that nobody knows.
    """
    given: dict[str, Any] = {name: _figure(name, came[name]) for name in names.FIGURES if name in came}
    for name, known in (("recipe", names.recipe_called), ("reduction", names.reduction_called)):
        if name in came:
            given[name] = known(str(_once(name, came[name])))
    for name, most in (("gamma", 1.0), ("lam", 1.0), ("tolerance", LARGEST)):
        if name in given and not 0 <= given[name] <= most:
            raise InputError(f"{name} must lie between 0 and {most:g}, got {given[name]:g}")
    if "divisor" in given and not 0 < given["divisor"] <= LARGEST:
        raise InputError(f"divisor must be more than 0, got {given['divisor']:g}")
    return Settings(**given)


def _figure(name: str, value: Any) -> float:
    once = _once(name, value)
    if isinstance(once, str):
        try:
            return float(once)
        except ValueError as error:
            raise InputError(f"{name} must be a number, got {once!r}") from error
    return float(column_of(name, [once]).numbers)


def _once(name: str, value: Any) -> Any:
    """The one value of a setting."""
    entries = value.tolist() if hasattr(value, "tolist") else value
    while isinstance(entries, (list, tuple)):
        if not entries or any(entry != entries[0] for entry in entries):
            raise InputError(f"{name} must be one value for the whole batch, got {str(entries)[:60]}")
        entries = entries[0]
    return entries
