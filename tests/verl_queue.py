"""What tests of the verl adapter share: batches as an agent loop makes them, verl's config, a queue in this process."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch

LETTERS = "abcdefgh\n"
REJECTION = [
    "algorithm.rollout_correction.rollout_rs=token_k1",
    "algorithm.rollout_correction.rollout_rs_threshold='0.5_2.0'",
]


class Spelling:
    """A tokenizer whose ids 0..8 spell a letter or a newline, and all others nothing."""

    pad_token_id, eos_token_id = 9, 9

    def decode(self, ids, **_):
        return "".join(LETTERS[token] for token in ids if token < len(LETTERS))


def output(key, words, *, mask=None, score=0.0, prompt="ab", info=None, values=None):
    """One row of the queue: what an agent loop put there, and what verl's later steps add; -1 is the end of text."""
    answer = [LETTERS.index(letter) for letter in words]
    row = {
        "uid": key.rsplit("_", 2)[0],
        "prompts": torch.tensor([LETTERS.index(letter) for letter in prompt]),
        "responses": torch.tensor(answer),
        "response_mask": torch.tensor(mask or [1] * len(answer)),
        "rm_scores": torch.tensor([0.0] * (len(answer) - 1) + [score]),
        "rollout_log_probs": torch.full((len(answer),), -0.5),
        "old_log_probs": torch.full((len(answer),), -0.5),
        "extra_fields": {"reward_extra_info": info or {}},
    }
    if values is not None:
        row["values"] = torch.tensor(values)
    return key, row


class Queue:
    """A stand-in for TransferQueue: rows by key, handed out as ragged tensors, as the real one does."""

    def __init__(self, outputs):
        self.rows = dict(outputs)

    def kv_batch_get(self, keys, partition_id, select_fields):
        from tensordict import NonTensorStack, TensorDict

        rows = [self.rows[key] for key in keys]
        columns = {name: [row[name] for row in rows] for name in select_fields if name in rows[0]}
        made = {
            name: torch.nested.as_nested_tensor(entries, layout=torch.jagged)
            if isinstance(entries[0], torch.Tensor)
            else NonTensorStack(*entries)
            for name, entries in columns.items()
        }
        return TensorDict(made, batch_size=[len(keys)])

    def kv_batch_put(self, keys, partition_id, fields, tags=None):
        for name, column in fields.items():
            for key, entry in zip(keys, column.unbind(), strict=True):
                self.rows[key][name] = entry
        return self.meta(keys)

    def meta(self, keys=None, padding=()):
        from transfer_queue import KVBatchMeta

        keys = list(self.rows if keys is None else keys)
        return KVBatchMeta(
            keys=keys, tags=[{"is_padding": key in padding} for key in keys], partition_id="train", extra_info={}
        )

    def column(self, name):
        return [row[name].tolist() for row in self.rows.values()]


def config_of(*overrides):
    """verl's own config of its trainer."""
    import verl
    from hydra import compose, initialize_config_dir

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
            return compose("ppo_trainer", list(overrides))


def trainer_of(mode, *overrides):
    """A trainer with verl's own methods, up to the point where it would start workers on GPUs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from verl.trainer.ppo.v1 import get_trainer_cls

        trainer = get_trainer_cls(mode)(config_of(f"trainer.v1.trainer_mode={mode}", *overrides))
    trainer.tokenizer, trainer.global_steps = Spelling(), 1
    return trainer


class Ragged:
    """A stand-in for torch's ragged tensors, whose first one loads its compiler: some ten seconds."""

    is_nested = True

    def __init__(self, rows):
        self.rows = rows

    def to_padded_tensor(self, padding):
        return torch.nn.utils.rnn.pad_sequence(self.rows, batch_first=True, padding_value=padding)

    def offsets(self):
        return torch.tensor([0, *(len(row) for row in self.rows)]).cumsum(0)


def handed_from(outputs, padding=()):
    """A batch handed over, without a queue and without verl."""
    from apportion.adapters.verl.handed import handed_of

    rows = dict(outputs)
    names = next(iter(rows.values()))
    data = {
        name: Ragged([row[name] for row in rows.values()])
        if isinstance(names[name], torch.Tensor)
        else [row[name] for row in rows.values()]
        for name in names
    }
    handed = handed_of(data, list(rows), [{"is_padding": key in padding} for key in rows])
    handed.tokenizer = Spelling()
    return handed


def run_trainer(monkeypatch, mode, outputs, *overrides, padding=()):
    """What a trainer of verl writes back for its actor, and its queue."""
    import transfer_queue

    queue = Queue(outputs)
    for name in ("kv_batch_get", "kv_batch_put"):
        monkeypatch.setattr(transfer_queue, name, getattr(queue, name))
    trainer_of(mode, *overrides)._compute_advantage(queue.meta(padding=padding), {})
    return queue


def critic_batch():
    return [
        output("p_0_0", "abcdef", mask=[1, 1, 0, 0, 1, 1], score=1.0, values=[0.5, 0.25, 9.0, 9.0, 0.75, 0.5]),
        output("p_1_0", "abcd", score=0.25, values=[0.5, 0.5, 0.125, 0.25]),
        output("q_0_0", "abc", mask=[1, 0, 1], values=[0.25, -7.0, 0.75]),
    ]


def on_actions(queue, name):
    rows = queue.rows.values()
    return torch.cat([row[name][row["response_mask"].bool()] for row in rows])


def rejected(with_values=False):
    """Two answers whose last token the training policy no longer believes in; the first was right."""
    rows = [
        output(f"p_{n}_0", "abc", score=s, values=[0.5] * 3 if with_values else None) for n, s in enumerate((1.0, 0.0))
    ]
    for _, row in rows:
        row["old_log_probs"] = torch.tensor([-0.5, -0.5, -3.0])
    return rows
