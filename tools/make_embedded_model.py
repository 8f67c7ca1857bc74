"""Make the model that ships inside `apportion`: `python tools/make_embedded_model.py`.

A small Llama learns from chains whose steps each go wrong with a fixed probability. Afterwards
it knows the right result of a step (its greedy answers are right) and prefers it too little
(its sampled answers are wrong as often as the ones it learnt from): the gap that reinforcement
learning then closes. Chains of several lengths and wordings are mixed, so that one model
serves every setting of the task. About five minutes on one core; a seed fixes the result on one
machine.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from apportion.tasks.chain import LETTERS, MARK, NAMES, SLIPS, Chain, first_error, write_answer
from apportion.tasks.problem import Problem

FOLDER = Path(__file__).parents[1] / "src" / "apportion" / "embedded"
STEPS = range(2, 9)
MEASURED = (3, 5, 8)
WORDINGS = range(4)
PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
IGNORED = -100


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a number, operator, letter or mark, and no spaces."""
    numbers = [str(number) for number in range(100)]
    words = [PAD, EOS, UNK, "\n", *"+-=?", MARK, *LETTERS, *NAMES, *numbers]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, UNK))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[1-9]\d|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def make_model(tokenizer: PreTrainedTokenizerFast, layers: int, width: int) -> LlamaForCausalLM:
    """Return an untrained Llama for this tokenizer."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=256,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def draw_batch(
    tokenizer: PreTrainedTokenizerFast, task: Chain, options: argparse.Namespace, rng: random.Random
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids and labels [B, T] of a task's prompts and answers, all of one length.

    Labels are the ids of the response and its end of text, and `IGNORED` in the prompt.
    """
    length = 3 * task.steps + task.wording + 2 + task.steps * (task.wording + 7) + 2
    problems = task.sample(options.tokens // length, rng)
    prompts = tokenizer([p.prompt for p in problems])["input_ids"]
    answers = tokenizer([write_answer(p, rng, options.error) + EOS for p in problems])["input_ids"]
    ids = torch.tensor([p + a for p, a in zip(prompts, answers, strict=True)])
    labels = ids.clone()
    labels[:, : len(prompts[0])] = IGNORED
    return ids, labels


def least_loss(task: Chain, error: float) -> float:
    """Return the entropy of an answer a token, in nats: what no model can go below."""
    letters = task.wording * math.log(len(LETTERS))
    result = -(1 - error) * math.log(1 - error) - error * math.log(error / len(SLIPS))
    return task.steps * (letters + result) / (task.steps * (task.wording + 7) + 2)


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace) -> None:
    """Fit the model to answers with planted errors, in the first third to ever longer ones.

    The step size warms up for 100 updates, then follows a cosine to zero.
    """
    rng = random.Random(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr, (0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, step / 100) * (1 + math.cos(math.pi * step / options.updates)) / 2,
    )
    began, excess = time.perf_counter(), 0.0
    for update in range(options.updates):
        task = Chain(rng.choice(STEPS[: 1 + 21 * update // options.updates]), rng.choice(WORDINGS))
        ids, labels = draw_batch(tokenizer, task, options, rng)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        excess += (loss.item() - least_loss(task, options.error)) / 100
        if update % 100 == 99:
            seconds = time.perf_counter() - began
            print(f"update {update + 1}: {excess:.4f} nats to go, {seconds:.0f} s", flush=True)
            excess = 0.0


@torch.inference_mode()
def answer(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    problems: list[Problem],
    sample: bool,
) -> list[str]:
    """Answer every problem once, sampled at temperature 1 or greedily."""
    batch = tokenizer([p.prompt for p in problems], return_tensors="pt")
    ids = model.generate(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"],
        do_sample=sample,
        top_k=0 if sample else None,
        max_new_tokens=128,
    )
    return tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, count: int) -> None:
    """Print pass rates on held-out problems for some numbers of steps and every wording.

    `step` is the probability that a sampled step is right when those before it are: steps
    written before the first wrong one, over steps tried.
    """
    for steps in MEASURED:
        for wording in WORDINGS:
            task = Chain(steps, wording)
            problems = task.held_out(count)
            sampled = answer(model, tokenizer, problems, sample=True)
            greedy = answer(model, tokenizer, problems, sample=False)
            firsts = [first_error(p, r) for p, r in zip(problems, sampled, strict=True)]
            right = [steps if first is None else min(first, steps) for first in firsts]
            tried = [min(written + 1, steps) for written in right]
            row = {"steps": steps, "wording": wording, "step": sum(right) / sum(tried)}
            for name, responses in (("sampled", sampled), ("greedy", greedy)):
                scores = [task.score(p, r) for p, r in zip(problems, responses, strict=True)]
                row[name] = sum(scores) / count
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--error", type=float, default=0.15)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--count", type=int, default=512, help="held-out problems a setting")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, options.layers, options.width)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    train(model, tokenizer, options)
    model.train(False)
    model.save_pretrained(options.folder)
    tokenizer.save_pretrained(options.folder)
    measure(model, tokenizer, options.count)


if __name__ == "__main__":
    main()
