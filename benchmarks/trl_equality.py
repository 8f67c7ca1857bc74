"""The numbers of TRL's own trainer against those of ours with a recipe that is TRL's: how far do they lie apart?

    python benchmarks/trl_equality.py [--steps 5]

Both train the embedded model from the same seed; then every answer that TRL samples is the same in both as long as the
weights are, which is the sharpest comparison there is.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import torch
import trl
from datasets import Dataset

from apportion.adapters.trl import GRPOTrainer
from apportion.tasks.chain import Chain
from apportion.tasks.problem import Problem

CHAIN = Chain()
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults (dapo)": ("grpo", {}),
    "loss grpo, KL 0.04": ("grpo", {"loss_type": "grpo", "beta": 0.04}),
    "truncated answers masked": ("grpo", {"mask_truncated_completions": True, "max_completion_length": 47}),
    "Dr. GRPO, not scaled": ("dr_grpo", {"loss_type": "dr_grpo", "scale_rewards": "none"}),
    "bnpo, two epochs a batch": ("grpo", {"loss_type": "bnpo", "num_iterations": 2}),
    "luspo, ratios of answers": ("grpo", {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
    "cispo, uncertain tokens": ("grpo", {"loss_type": "cispo", "top_entropy_quantile": 0.5}),
}


def trained(made_by: Any, steps: int, own: dict[str, Any], settings: dict[str, Any]) -> Any:
    problems = CHAIN.sample(8 * steps, random.Random(0))
    data = Dataset.from_list([{"prompt": problem.prompt, "answer": problem.answer} for problem in problems])

    def correct(prompts: list[str], completions: list[str], answer: list[str], **columns: Any) -> list[float]:
        asked = zip(prompts, answer, completions, strict=True)
        return [CHAIN.score(Problem(prompt, known), text) for prompt, known, text in asked]

    with tempfile.TemporaryDirectory() as folder:
        shared = {
            "per_device_train_batch_size": 32,
            "gradient_accumulation_steps": 2,
            "num_generations": 8,
            "max_completion_length": 60,
            "temperature": 1.6,
            "learning_rate": 3e-4,
            "max_steps": steps,
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            "model_init_kwargs": {"dtype": "float32"},
        }
        model = str(files("apportion") / "embedded")
        args = trl.GRPOConfig(folder, **shared | settings)
        trainer = made_by(model=model, reward_funcs=correct, args=args, train_dataset=data, **own)
        trainer.train()
    return trainer


def compared(name: str, recipe: str, settings: dict[str, Any], steps: int) -> Sequence[str]:
    stock = trained(trl.GRPOTrainer, steps, {}, settings)
    ours = trained(GRPOTrainer, steps, {"recipe": recipe}, settings)
    rows = [[row for row in each.state.log_history if "loss" in row] for each in (stock, ours)]
    pairs = list(zip(*rows, strict=True))
    loss = max(abs(a["loss"] - b["loss"]) for a, b in pairs)
    norm = max(abs(a["grad_norm"] - b["grad_norm"]) / a["grad_norm"] for a, b in pairs)
    weights = max(
        float((a - b).abs().max()) for a, b in zip(stock.model.parameters(), ours.model.parameters(), strict=True)
    )
    return (
        name,
        recipe,
        f"{loss:.1e}",
        f"{norm:.1e}",
        f"{weights:.1e}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    rows = [compared(name, recipe, settings, steps) for name, (recipe, settings) in SETTINGS.items()]
    print(
        "| setting of TRL | recipe | loss: largest difference | gradient norm: relative | weights: largest difference |"
    )
    print("|---|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
