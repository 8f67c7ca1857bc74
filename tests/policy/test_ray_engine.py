"""Lots of continuations: their chance hangs on what is in them, and so it is all one who draws them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import pytest

from apportion.errors import InputError
from apportion.policy import ray_engine
from apportion.policy.causal import CausalPolicy
from apportion.policy.continuing import Lots, lots_of, seed_of
from apportion.policy.ray_engine import RayActors
from apportion.policy.sampling import Sampling
from apportion.tasks.chain import Chain
from apportion.values.engine import Drawn, Prefix, Wanted
from apportion.values.store import InLots

SAMPLING = Sampling(24, max_rows=4)


@pytest.fixture(scope="module")
def policy() -> CausalPolicy:
    return CausalPolicy.load("embedded")


def wanted(policy: CausalPolicy, count: int = 3) -> list[Wanted]:
    """Three continuations of each of some prompts."""
    prompts = [tuple(policy.encode(problem.prompt)) for problem in Chain().held_out(count)]
    return [Wanted(Prefix(g, prompt, 0), 0, 3) for g, prompt in enumerate(prompts)]


def test_lots_keep_the_order_and_have_every_number_once(policy: CausalPolicy) -> None:
    asked = wanted(policy)
    lots = [[(i, part.first, part.count) for i, part in lot] for lot in lots_of(asked, 4)]
    assert lots == [[(0, 0, 3), (1, 0, 1)], [(1, 1, 2), (2, 0, 2)], [(2, 2, 1)]]
    assert lots_of([], 4) == []


def test_the_rest_of_an_interrupted_run_is_cut_into_the_lots_that_were_left(policy: CausalPolicy) -> None:
    first, *others = lots_of(wanted(policy), 4)
    rest = [part for _, part in chain.from_iterable(others)]
    seeds = [seed_of(lot, 0) for lot in lots_of(rest, 4)]
    assert seeds == [seed_of(lot, 0) for lot in others]
    assert seed_of(first, 0) not in seeds


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Wanted(Prefix("g", (7, 9), 0), 0, 3), id="other tokens"),
        pytest.param(Wanted(Prefix("g", (7, 8), 1), 0, 3), id="another limit"),
        pytest.param(Wanted(Prefix("g", (7, 8), 0), 1, 3), id="other numbers"),
        pytest.param(Wanted(Prefix("g", (7, 8), 0), 0, 2), id="fewer"),
    ],
)
def test_a_lot_of_something_else_has_another_seed(other: Wanted) -> None:
    lot = [(0, Wanted(Prefix("g", (7, 8), 0), 0, 3))]
    assert seed_of(lot, 0) == seed_of([(5, Wanted(Prefix("renamed", (7, 8), 0), 0, 3))], 0)
    assert seed_of(lot, 0) not in (seed_of([(0, other)], 0), seed_of(lot, 1))


def test_a_lot_comes_out_the_same_whatever_was_drawn_before(policy: CausalPolicy) -> None:
    asked = wanted(policy)
    engine = Lots(policy, SAMPLING, 0)
    whole = list(engine.draw(asked))
    rest = [part for _, part in chain.from_iterable(lots_of(asked, 4)[1:])]

    assert [one.tokens for one in engine.draw(rest)] == [one.tokens for one in whole[4:]]
    assert [(one.of, one.number) for one in whole] == [(i, n) for i in range(3) for n in range(3)]
    assert len({one.tokens for one in whole}) > 5
    assert isinstance(engine, InLots)


def test_another_seed_names_other_continuations(policy: CausalPolicy) -> None:
    one, two = Lots(policy, SAMPLING, 0), Lots(policy, SAMPLING, 1)
    assert one.fingerprint != two.fingerprint
    assert [found.tokens for found in one.draw(wanted(policy))] != [found.tokens for found in two.draw(wanted(policy))]
    assert one.fingerprint == Lots(policy, Sampling(24, max_rows=9), 0).fingerprint


def test_a_continuation_may_have_what_its_prefix_left_of_the_answer(policy: CausalPolicy) -> None:
    assert [Lots(policy, SAMPLING, 0).limit(Prefix("g", (7,), sampled)) for sampled in (0, 20, 30)] == [24, 4, 1]


def test_without_ray_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"actors of Ray need Ray: pip install 'apportion\[ray\]'"):
        RayActors("embedded", SAMPLING, 0, 2)


def test_no_actor_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 actor of Ray is needed, 0 were asked for"):
        RayActors("embedded", SAMPLING, 0, 0)


def machine(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


@pytest.mark.parametrize(
    ("machines", "asked", "count", "graphics", "threads"),
    [
        pytest.param([machine(CPU=16), machine(CPU=8)], None, 2, None, 8, id="one for every machine"),
        pytest.param([machine(CPU=16), machine(False, CPU=8)], None, 1, None, 16, id="a machine that is gone"),
        pytest.param([machine(CPU=16), machine(CPU=16)], 3, 3, None, 8, id="more than machines"),
        pytest.param([machine(CPU=2)], 5, 5, None, 1, id="more than processors"),
        pytest.param([machine(CPU=16, GPU=4)], None, 4, 1, 4, id="one for every GPU"),
        pytest.param([machine(CPU=16, GPU=4)], 2, 2, 1, 8, id="fewer than GPUs"),
        pytest.param([machine(CPU=16, GPU=1), machine(CPU=16, GPU=1)], 3, 3, 0.5, 8, id="more than GPUs"),
    ],
)
def test_actors_share_what_the_machines_have(
    machines: list[dict[str, Any]], asked: int | None, count: int, graphics: float | None, threads: int
) -> None:
    options, actors, each = ray_engine._shares(machines, asked)
    assert (actors, options.get("num_gpus"), each) == (count, graphics, threads)


def test_a_cluster_that_is_not_there_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "nowhere at all")
    with pytest.raises(InputError, match=r"Ray could be neither joined nor started: .*nowhere at all") as refused:
        RayActors("embedded", SAMPLING, 0, 2)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray on this machine, so that it need not start for every test."""
    ray = pytest.importorskip("ray")
    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def sorted_tokens(found: list[Drawn]) -> list[tuple[int, int, tuple[int, ...]]]:
    return sorted((one.of, one.number, one.tokens) for one in found)


@pytest.mark.slow
def test_an_actor_that_is_killed_is_replaced_and_every_number_comes_once(ray: Any, policy: CausalPolicy) -> None:
    asked = wanted(policy, 12)
    with closing(RayActors("embedded", SAMPLING, 0, 2)) as engine:
        pid = ray.get(engine._actors[0].__ray_call__.remote(lambda actor: os.getpid()))
        drawn = engine.draw(asked)
        first = next(drawn)
        os.kill(pid, signal.SIGKILL)
        with pytest.warns(UserWarning, match="an actor of Ray died; another takes its place"):
            found = [first, *drawn]
        fingerprint = engine.fingerprint

    local = Lots(policy, SAMPLING, 0)
    assert sorted_tokens(found) == sorted_tokens(list(local.draw(asked)))
    assert len(found) == 36
    assert fingerprint == local.fingerprint
    assert ray.is_initialized(), "what was running before goes on"


@pytest.mark.slow
def test_a_lot_over_which_actors_die_again_and_again_is_given_up(
    ray: Any, policy: CausalPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dying:
        def __init__(self, *about: Any) -> None: ...

        def fingerprint(self) -> str:
            return "dying"

        def continued(self, lot: Any, fingerprint: str) -> None:
            os._exit(1)

    monkeypatch.setattr(ray_engine, "_Actor", Dying)
    with (
        closing(RayActors("embedded", SAMPLING, 0, 1)) as engine,
        pytest.warns(UserWarning, match="an actor of Ray died") as warned,
        pytest.raises(InputError, match="3 actors of Ray died over the same 4 continuations"),
    ):
        list(engine.draw(wanted(policy)))
    assert len(warned) == 2


@pytest.mark.slow
def test_what_an_actor_refuses_is_said_in_one_line(ray: Any) -> None:
    with pytest.raises(InputError, match=r"an actor of Ray: model /.*gone: no such folder or file") as refused:
        RayActors("gone", SAMPLING, 0, 1)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_an_actor_with_other_weights_is_refused(ray: Any, policy: CausalPolicy) -> None:
    with closing(RayActors("embedded", SAMPLING, 0, 1)) as engine:
        engine.fingerprint = "other weights"
        with pytest.raises(InputError, match="model embedded: is not the same on all machines"):
            list(engine.draw(wanted(policy)))
