"""TRL's own loop of tool calls, with a tiny model made here whose words are put into its mouth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-trl")

import trl
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from apportion import InputError, recipes
from apportion.adapters.trl import Continuations, GRPOTrainer, LedgerCallback
from apportion.lint.report import lint_file
from apportion.steps import splitters
from trl_runs import MARKS, settings

pytestmark = MARKS

TURNS = replace(recipes.reinforce(), split=splitters.turns)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
QUESTION = [{"role": "user", "content": "2+3?"}]
WORDS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model of one layer that reads bytes, and speaks to tools as Qwen3 does."""
    folder = tmp_path_factory.mktemp("model")
    letters = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_tokens(WORDS)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: one of them
        b: the other

    Returns:
        their sum
    """
    return a + b


def per_turn(completions: list[Any], step_texts: list[list[str]], **more: Any) -> list[list[float]]:
    assert step_texts == [[CALL, "It is 5."]] * len(completions)
    assert [message["role"] for message in completions[0]] == ["assistant", "tool", "assistant"]
    return [[1.0 + n, 3.0] for n in range(len(completions))]


def host(model: str, folder: Path, **more: Any) -> Any:
    data = Dataset.from_list([{"prompt": QUESTION}] * 4)
    plan = settings(folder, max_completion_length=200, per_device_train_batch_size=2, max_steps=1, num_generations=4)
    made = GRPOTrainer(
        model=model, reward_funcs=per_turn, args=plan, train_dataset=data, tools=[add], **{"recipe": TURNS} | more
    )

    def turn(prompt_ids: list[list[int]], *rest: Any, **told: Any) -> tuple[list[list[int]], None]:
        texts = made.processing_class.batch_decode(prompt_ids)
        said = ["It is 5." if "<tool_response>" in text else CALL for text in texts]
        ended = [text + made.processing_class.eos_token for text in said]
        return made.processing_class(ended, add_special_tokens=False)["input_ids"], None

    made._generate_single_turn = turn
    return made


def test_each_turn_of_a_conversation_with_a_tool_has_its_own_credit(model: str, tmp_path: Path) -> None:
    made = host(model, tmp_path)
    made.model.train()
    output = made._generate_and_score_completions([{"prompt": QUESTION}] * 4)
    mask, advantages = output["tool_mask"].bool(), output["advantages"]
    assert 0 < int((~mask[0]).sum()) < mask.shape[1]
    assert not bool(advantages[~mask].any())
    for n, row in enumerate(advantages):
        first = int((~mask[n]).nonzero()[0])
        assert row[:first].tolist() == [1.0 + n] * first
        assert set(row[first:][mask[n, first:]].tolist()) == {3.0}


def test_a_step_of_training_with_a_tool_passes_lint(model: str, tmp_path: Path) -> None:
    made = host(model, tmp_path, callbacks=[LedgerCallback(tmp_path / "watch", every=1)])
    made.train()
    for kind in ("batches", "losses"):
        path = tmp_path / "watch" / kind / "step-000000.npz"
        found = {each.code: each.verdict for each in lint_file(path, {}, {})}
        assert found["environment-credit"] == "holds"
        assert "broken" not in found.values()


def test_continuations_do_not_go_with_tools(model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not go with tools"):
        host(model, tmp_path, recipe="vineppo", values=Continuations())
