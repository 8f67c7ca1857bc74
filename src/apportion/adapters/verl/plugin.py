"""What verl loads by itself (entry point `verl.plugins`): estimators, trainer and reward manager are registered.

verl loads plugins while it is itself being imported, in every process, and hides what goes wrong. So this only waits:
each registration follows the import of the verl module that keeps the register, costs nothing before, and is heard if
it fails. A verl that was not tested is refused in one sentence, by every estimator of ours and on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from apportion.adapters.hosts import require
from apportion.adapters.verl import TESTED, estimators
from apportion.errors import InputError

Register = Callable[[Any], None]


def estimators_into(core_algos: Any) -> None:
    """Register every `apportion_RECIPE`; under a verl that was not tested, ones that say so."""
    refused = _refused()
    for name, made in estimators.all_of_them().items():
        core_algos.register_adv_est(name)(made if refused is None else _refusing(refused))
    if refused is not None:
        print(refused, file=sys.stderr)


def trainers_into(trainers: Any) -> None:
    """Register the trainer modes of ours."""
    from apportion.adapters.verl.trainer import MODES, trainer_class

    if _refused() is None:
        for name, mode in MODES.items():
            trainers.register_trainer(name)(trainer_class(trainers.get_trainer_cls(mode), mode))


def reward_manager_into(managers: Any) -> None:
    """Register the reward manager `apportion`."""
    from apportion.adapters.verl.rewards import manager_class

    if _refused() is None:
        managers.register("apportion")(manager_class(managers.get_reward_manager_cls("naive")))


AWAITED: dict[str, Register] = {
    "verl.trainer.ppo.core_algos": estimators_into,
    "verl.trainer.ppo.v1": trainers_into,
    "verl.experimental.reward_loop.reward_manager": reward_manager_into,
}


class _Awaiting(MetaPathFinder):
    """Finds no module itself: it lets the others, and has a registration follow."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in AWAITED or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Followed(spec.loader, AWAITED[name])
        return spec


class _Followed(Loader):
    """A loader after which a registration follows."""

    def __init__(self, loader: Loader, register: Register) -> None:
        self._loader, self._register = loader, register

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._register(module)


def wait() -> None:
    """Register with what verl has loaded already, and with the rest once it is."""
    if any(isinstance(finder, _Awaiting) for finder in sys.meta_path):
        return
    for name, register in AWAITED.items():
        if name in sys.modules:
            register(sys.modules[name])
    sys.meta_path.insert(0, _Awaiting())


def _refused() -> str | None:
    try:
        require("verl", TESTED)
    except InputError as error:
        return str(error)
    return None


def _refusing(sentence: str) -> estimators.Estimator:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InputError(sentence)

    return refuse


wait()
