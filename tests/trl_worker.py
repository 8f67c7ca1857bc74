"""One process of several that train under TRL together; `torchrun` starts it.

    trl_worker.py FOLDER

Three runs, each into a folder of its own there: `stock`, which is TRL's own trainer, `grpo` and `vineppo`. Of each it
writes what TRL logged to `logged.json`, and the batches into `watch`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

import torch
import trl

from apportion.adapters.trl import Continuations, GRPOTrainer, LedgerCallback
from trl_runs import said, trainer

warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)


def main(folder: Path, what: str) -> None:
    folder.mkdir(exist_ok=True)
    more = {"recipe": "vineppo", "values": Continuations(samples=1)} if what == "vineppo" else {}
    made_by = trl.GRPOTrainer if what == "stock" else GRPOTrainer
    host = trainer(
        folder,
        made_by=made_by,
        callbacks=[LedgerCallback(folder / "watch", every=1)],
        per_device_train_batch_size=3,  # six answers a process, so the second group of four lies on both
        **more,
    )
    host.train()
    if host.is_world_process_zero():
        (folder / "logged.json").write_text(json.dumps(said(host)))
    host.accelerator.wait_for_everyone()


if __name__ == "__main__":
    for what in ("stock", "grpo", "vineppo"):
        main(Path(sys.argv[1]) / what, what)
    sys.stdout.flush()
    os._exit(0)  # a gloo thread may abort the interpreter's own way out
