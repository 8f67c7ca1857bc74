"""One process of several that train under TRL together; `torchrun` starts it.

    trl_worker.py FOLDER

Runs, each into a folder of its own there: `stock`, which is TRL's own trainer, `grpo`, `vineppo`, and `known`, whose
continuations are told. Of each it writes what TRL logged to `logged.json`, and the batches into `watch`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import trl

from apportion.adapters.trl import Continuations, GRPOTrainer, LedgerCallback
from trl_runs import correct, said, trainer

warnings.filterwarnings("ignore", category=FutureWarning)
torch.set_num_threads(1)


def main(folder: Path, what: str) -> None:
    folder.mkdir(exist_ok=True)
    more = {"recipe": "vineppo", "values": Continuations(samples=2)} if what in ("vineppo", "known") else {}
    made_by = trl.GRPOTrainer if what == "stock" else GRPOTrainer
    host = trainer(
        folder,
        last_digit if what == "known" else correct,
        made_by=made_by,
        callbacks=[LedgerCallback(folder / "watch", every=1)],
        per_device_train_batch_size=3,  # six answers a process, so the second group of four lies on both
        **more,
    )
    if what == "known":
        host._generate_single_turn = told(host)
    host.train()
    if host.is_world_process_zero():
        (folder / "logged.json").write_text(json.dumps(said(host)))
    host.accelerator.wait_for_everyone()


def told(host: Any) -> Any:
    """Of each step's prompts at first one answer of two lines, and then of every prefix the last digit of its sum."""
    steps: list[int] = []

    def turn(prompt_ids: list[list[int]], *more: Any) -> tuple[list[list[int]], None]:
        answers = host.state.global_step not in steps
        steps.append(host.state.global_step)
        texts = ["A3\nB2\n" if answers else str(sum(ids) % 10) for ids in prompt_ids]
        return host.processing_class(texts, add_special_tokens=False)["input_ids"], None

    return turn


def last_digit(completions: list[str], **columns: Any) -> list[float]:
    return [int(text[-1]) / 10 if text[-1:].isdigit() else 0.0 for text in completions]


if __name__ == "__main__":
    for what in ("stock", "grpo", "vineppo", "known"):
        main(Path(sys.argv[1]) / what, what)
    sys.stdout.flush()
    os._exit(0)  # a gloo thread may abort the interpreter's own way out
