"""Statistics over several processes: real ones, that talk through gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from apportion.across import ALONE, group_count
from ranks_worker import statistics

WORKER = Path(__file__).parent / "ranks_worker.py"


def a_batch() -> dict[str, Tensor]:
    """Seven rollouts of groups 0, 1 and 3; NaN and inf where nothing counts; group 1 all alike, group 3 of one."""
    credit = torch.tensor([[1, 2, 9], [5, 5, 5], [-3, 7, 7], [5, 5, 7], [0.5, 7, 7], [2, -1, 4], [7, 7, 7]])
    counts = torch.tensor([2, 3, 1, 2, 1, 3, 0])
    mask = torch.arange(3) < counts.unsqueeze(1)
    garbage = torch.tensor([float("nan"), float("inf"), 1e9]).expand(7, 3)
    return {
        "credit": torch.where(mask, credit, garbage).double(),
        "mask": mask,
        "groups": torch.tensor([0, 1, 0, 1, 3, 0, 0]),
    }


def over_processes(batch: dict[str, Tensor], shards: list[list[int]], folder: Path) -> dict[str, Tensor]:
    """Every statistic as real processes work it out, each on its shard, laid together."""
    torch.save(batch | {"shards": shards}, folder / "batch.pt")
    arguments = [str(len(shards)), str(folder)]
    running = [
        subprocess.Popen([sys.executable, str(WORKER), str(rank), *arguments], stderr=subprocess.PIPE, text=True)
        for rank in range(len(shards))
    ]
    problems = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * len(shards), problems
    found = [torch.load(folder / f"{rank}.pt") for rank in range(len(shards))]
    return {name: torch.cat([shard[name] for shard in found]) for name in found[0]}


@pytest.mark.parametrize(
    "shards",
    [
        pytest.param([[0, 1, 2, 3], [4, 5, 6]], id="two processes"),
        pytest.param([[0, 3], [1, 2, 4, 5, 6], []], id="three processes, one of them without a row"),
    ],
)
def test_every_statistic_over_real_processes_is_that_of_one(shards: list[list[int]], tmp_path: Path) -> None:
    batch = a_batch()
    order = torch.tensor([n for shard in shards for n in shard])

    found = over_processes(batch, shards, tmp_path)

    for name, whole in statistics(batch, ALONE).items():
        torch.testing.assert_close(found[name], whole[order], rtol=1e-12, atol=1e-12, msg=name)
        assert found[name].isfinite().all(), name


def test_whitening_over_three_processes_by_hand(tmp_path: Path) -> None:
    # 1, 2, 3, 5 | -4 | a row in which nothing counts: mean 1.4, squares 45.2 over 4
    credit = torch.tensor([[1, 2, 3, 77], [5, 77, 77, 77], [-4, 77, 77, 77], [77, 77, 77, 77]]).double()
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
    batch = {"credit": credit, "mask": mask, "groups": torch.tensor([0, 0, 1, 2])}

    white = over_processes(batch, [[0, 1], [2], [3]], tmp_path)["whiten"]

    torch.testing.assert_close(white, torch.where(mask, (credit - 1.4) / 11.3**0.5, 0), rtol=1e-14, atol=1e-14)


def test_the_number_of_groups_is_one_more_than_the_last_index_and_nothing_without_rows() -> None:
    assert group_count(torch.tensor([0, 4, 2]), ALONE) == 5
    assert group_count(torch.tensor([], dtype=torch.int64), ALONE) == 0
