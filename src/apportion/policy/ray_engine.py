"""Actors of Ray as an engine that continues prefixes, lot by lot (`policy.continuing`), on any number of machines."""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from apportion.errors import InputError
from apportion.policy.causal import EMBEDDED, CausalPolicy
from apportion.policy.continuing import Lot, Lots, lots_of
from apportion.policy.sampling import Sampling
from apportion.values.engine import Drawn, Prefix, Wanted

ATTEMPTS = 3
"""Actors that may die over one lot before it is given up."""


class RayActors:
    """Lots drawn by actors of Ray, each with the policy from `source`, on as many machines as Ray has.

    Joins the cluster that the environment names (RAY_ADDRESS) or that runs on this machine, else starts Ray here until
    `close`. What it draws is what `Lots` draws. An actor that dies is replaced and its lot drawn again.
    """

    def __init__(self, source: str, sampling: Sampling, seed: int, actors: int | None = None) -> None:
        """actors: None = one for every GPU, or where there is none, for every machine.

        Raises InputError without Ray, and where an actor cannot load the policy.
        """
        if actors is not None and actors < 1:
            raise InputError(f"at least 1 actor of Ray is needed, {actors} were asked for")
        self._ray = _ray()
        self.sampling = sampling
        self._started = not self._ray.is_initialized()
        if self._started:
            _start(self._ray)
        try:
            self._options, count, threads = _shares(self._ray.nodes(), actors)
            self._arguments = (_everywhere(source), sampling, seed, threads)
            self._actors = [self._new_actor() for _ in range(count)]
            self.fingerprint = str(self._got(self._actors[0].fingerprint.remote()))
        except BaseException as error:
            died = isinstance(error, self._ray.exceptions.RayActorError)
            self.close()
            if died:
                raise InputError(f"model {source}: an actor of Ray died as it loaded it; is memory enough?") from error
            raise

    def close(self) -> None:
        """Let the actors go; stop Ray if it was started here."""
        for actor in getattr(self, "_actors", []):
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()

    def limit(self, prefix: Prefix) -> int:
        return self.sampling.left(prefix.sampled)

    def draw(self, wanted: Sequence[Wanted]) -> Iterator[Drawn]:
        return chain.from_iterable(self.lots(wanted))

    def lots(self, wanted: Sequence[Wanted]) -> Iterator[list[Drawn]]:
        """Yield lots as they come.

        Raises InputError where an actor cannot go on, or several die over one lot.
        """
        waiting = deque((lot, 1) for lot in lots_of(wanted, self.sampling.max_rows))
        running: dict[Any, tuple[int, Lot, int]] = {}
        idle = list(range(len(self._actors)))
        while waiting or running:
            while waiting and idle:
                place, (lot, attempt) = idle.pop(), waiting.popleft()
                running[self._actors[place].continued.remote(lot, self.fingerprint)] = place, lot, attempt
            (done, *_), _ = self._ray.wait(list(running), num_returns=1)
            place, lot, attempt = running.pop(done)
            idle.append(place)
            try:
                drawn: list[Drawn] = self._got(done)
            except self._ray.exceptions.RayActorError as error:
                self._replace(place)
                if attempt == ATTEMPTS:
                    raise InputError(
                        f"{ATTEMPTS} actors of Ray died over the same {sum(part.count for _, part in lot)} "
                        "continuations; where memory ran out, fewer at once need less"
                    ) from error
                warnings.warn("an actor of Ray died; another takes its place and its continuations", stacklevel=2)
                waiting.appendleft((lot, attempt + 1))
            else:
                yield drawn

    def _new_actor(self) -> Any:
        return self._ray.remote(_Actor).options(**self._options).remote(*self._arguments)

    def _replace(self, place: int) -> None:
        self._ray.kill(self._actors[place])
        self._actors[place] = self._new_actor()

    def _got(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(f"an actor of Ray: {error.cause}") from error
            raise


class _Actor:
    """The policy in an actor, loaded when it is first asked for."""

    def __init__(self, source: str, sampling: Sampling, seed: int, threads: int) -> None:
        self.source, self.sampling, self.seed = source, sampling, seed
        torch.set_num_threads(threads)

    @cached_property
    def _lots(self) -> Lots:
        return Lots(CausalPolicy.load(self.source), self.sampling, self.seed)

    def fingerprint(self) -> str:
        return self._lots.fingerprint

    def continued(self, lot: Lot, fingerprint: str) -> list[Drawn]:
        if self._lots.fingerprint != fingerprint:
            raise InputError(f"model {self.source}: is not the same on all machines")
        return self._lots.continued(lot)


def _shares(nodes: list[dict[str, Any]], actors: int | None) -> tuple[dict[str, Any], int, int]:
    """What Ray is to give an actor, how many actors there are, and how many threads each may use."""
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    graphics = sum(int(machine.get("GPU", 0)) for machine in machines)
    count = actors or graphics or len(machines)
    options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
    if graphics:
        options["num_gpus"] = 1 / -(-count // graphics)
    threads = min(int(machine.get("CPU", 1)) for machine in machines) // -(-count // len(machines))
    return options, count, max(1, threads)


def _everywhere(source: str) -> str:
    """The name of a policy in actors, which may run in another folder."""
    return source if source == EMBEDDED else str(Path(source).resolve())


def _start(ray: Any) -> None:
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"Ray could be neither joined nor started: {reason}") from error


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        return import_module("ray")
    except ImportError as error:
        raise InputError("actors of Ray need Ray: pip install 'apportion[ray]'") from error
