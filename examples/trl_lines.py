"""TRL's GRPO with credit for every line, on the embedded model: what differs from plain TRL is marked with #."""

from importlib.resources import files

from datasets import Dataset
from trl import GRPOConfig

from apportion.adapters.trl import Continuations, GRPOTrainer, LedgerCallback  # instead of trl's GRPOTrainer

chains = [("32A+1B-2C-1?", "30"), ("41A-2B+5C-1?", "43"), ("55A+1B+2C-3?", "55"), ("38A-4B+3C+2?", "39")]
data = Dataset.from_list([{"prompt": prompt, "answer": answer} for prompt, answer in chains * 4])


def right(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    return [float(text.split("\n")[-1] == known) for text, known in zip(completions, answer, strict=True)]


trainer = GRPOTrainer(
    model=str(files("apportion") / "embedded"),
    reward_funcs=right,
    args=GRPOConfig("trl-lines", num_generations=8, max_completion_length=40, max_steps=4, use_cpu=True, bf16=False),
    train_dataset=data,
    recipe="vineppo",  # which credit: a line is worth what it changed the chance of success by
    values=Continuations(samples=4),  # which values: TRL's own generation goes on from every line, four times
    callbacks=[LedgerCallback("trl-lines/watch", every=2)],  # every second batch: written down, and linted
)
trainer.train()
