"""One process of several that share a batch: works out every statistic on its shard and writes it down.

    python ranks_worker.py RANK SIZE FOLDER

FOLDER holds `batch.pt`, where `shards` says which rows of the batch each process has; a shard may be empty.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, distributed

from apportion import losses, normalise
from apportion.across import Across, ranks


def statistics(batch: dict[str, Tensor], across: Across) -> dict[str, Tensor]:
    """Everything that takes `across`, on the rows of one process."""
    credit, mask, groups = batch["credit"], batch["mask"], batch["groups"]
    functions = dict(normalise.BY_NAME) | {"block_whiten": normalise.block_whiten(2)}
    found = {
        name: (function if name == "none" else partial(function, across=across))(credit, mask, groups)
        for name, function in functions.items()
    }
    seen = normalise.RunningMoments().updated(credit, mask, across=across).updated(2 * credit, mask, across=across)
    found["running"] = seen.whiten(credit, mask, groups)
    rollout_of = torch.arange(len(groups)).unsqueeze(1).expand(credit.shape)
    for name, reduction in losses.REDUCTIONS.items():
        found[name] = reduction(mask, rollout_of, across=across)
    return found


def main(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    batch = torch.load(folder / "batch.pt")
    rows = batch.pop("shards")[rank]
    torch.save(statistics({name: column[rows] for name, column in batch.items()}, ranks()), folder / f"{rank}.pt")
    distributed.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    sys.stdout.flush()
    os._exit(0)  # a gloo thread may abort the interpreter's own way out
