"""Other libraries' advantage estimators, each in a process of its own, so that what they need may differ.

The child (`python benchmarks/peers.py torchrl`) reads commands from its standard input, a line of JSON each, and
answers with a line of JSON. It needs torch and the library, nothing of ours.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from measure import burst

Grids = dict[str, Any]
Call = Callable[[], Any]


class Peer:
    """A library in a child process; `version` is None where it is not installed."""

    def __init__(self, name: str, python: str) -> None:
        self.name = name
        self._folder = tempfile.TemporaryDirectory()
        self._complaints = (Path(self._folder.name) / "stderr").open("w+")
        self._child = subprocess.Popen(
            [python, __file__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self.version: str | None = self._answer()

    def load(self, grids: Grids) -> None:
        """Hand over rewards, values, mask and ends, the settings, and how many threads to use."""
        import torch

        path = Path(self._folder.name) / "grids.pt"
        torch.save(grids, path)
        self._ask("load", str(path))

    def result(self) -> Any:
        """Compute the advantages once, unmeasured."""
        import torch

        path = Path(self._folder.name) / "result.pt"
        self._ask("result", str(path))
        return torch.load(path)

    def burst(self) -> list[float]:
        taken: list[float] = self._ask("burst")
        return taken

    def close(self) -> None:
        self._child.communicate()
        self._complaints.close()
        self._folder.cleanup()

    def _ask(self, *command: str) -> Any:
        assert self._child.stdin is not None
        print(json.dumps(command), file=self._child.stdin, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._complaints.seek(0)
            raise SystemExit(f"{self.name} failed:\n{self._complaints.read()[-2000:]}")
        return json.loads(line)


def torchrl(grids: Grids) -> tuple[Call, Call]:
    """Advantages by torchrl, whose convolution needs the values after each step: they are made beforehand."""
    import torch
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate as estimate

    after = torch.nn.functional.pad(grids["values"][:, 1:], (0, 1))
    columns = (grids["values"], after, grids["rewards"], grids["ends"], grids["ends"])
    run = partial(estimate, grids["gamma"], grids["lam"], *(column.unsqueeze(-1) for column in columns))
    return run, lambda: run()[0].squeeze(-1)


def verl(grids: Grids) -> tuple[Call, Call]:
    """Advantages by verl, which whitens them at once; as they were before they are what its returns add to values."""
    from verl.trainer.ppo.core_algos import compute_gae_advantage_return as estimate

    columns = (grids["rewards"], grids["values"], grids["mask"].float())
    run = partial(estimate, *columns, grids["gamma"], grids["lam"])
    return run, lambda: run()[1] - grids["values"]


ESTIMATORS: dict[str, Callable[[Grids], tuple[Call, Call]]] = {"torchrl": torchrl, "verl": verl}
_IMPORTS = {"torchrl": "torchrl.objectives.value.functional", "verl": "verl.trainer.ppo.core_algos"}


def main(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer

    def answer(found: Any) -> None:
        print(json.dumps(found), file=answers, flush=True)

    try:
        importlib.import_module(_IMPORTS[name])
    except ImportError as error:
        print(error, file=sys.stderr)
        return answer(None)
    import torch

    answer(importlib.metadata.version(name))
    run = result = lambda: None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "load":
            grids = torch.load(*arguments)
            torch.set_num_threads(grids["threads"])
            run, result = ESTIMATORS[name](grids)
            answer(None)
        elif command == "result":
            answer(torch.save(result(), *arguments))
        elif command == "burst":
            taken = burst(run)
            time.sleep(0.02)  # until the threads have stopped looking for more work
            answer(taken)


if __name__ == "__main__":
    main(sys.argv[1])
