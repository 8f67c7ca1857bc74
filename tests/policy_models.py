"""Models of a few hundred random weights, of several makers."""

from __future__ import annotations

from typing import Any

import torch
import transformers

SMALL = {
    "vocab_size": 48,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
GPT2 = {
    "vocab_size": 48,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "n_positions": 32,
    "bos_token_id": 1,
    "eos_token_id": 1,
}


def model_of(family: str, **settings: Any) -> Any:
    """A model of that family, always the same."""
    config = getattr(transformers, f"{family}Config")(**((GPT2 if family == "GPT2" else SMALL) | settings))
    torch.manual_seed(0)
    name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    return getattr(transformers, name)(config).eval()
