"""A Hugging Face causal language model as a policy: embedded, from a folder, or from a GGUF file."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.across import ALONE, Across
from apportion.errors import InputError
from apportion.policy.layouts import Layout, padded
from apportion.policy.sampling import Sample, Sampling, sample
from apportion.policy.scorer import Scorer, in_bf16
from apportion.policy.text import Speller, encode, encode_answer

EMBEDDED = "embedded"
SMALL = 10_000_000
"""Below so many parameters a second CPU thread costs more than it brings."""

Reference = Callable[[], AbstractContextManager["CausalPolicy"]]
"""Within `with reference() as policy`, a policy as it was before training."""


def located(source: str | Path, why: str = "") -> tuple[Path, dict[str, str]]:
    """The folder of a source, and what else the readers of transformers need to know of it.

    Raises InputError when there is nothing there. why: it is needed.
    """
    path = Path(str(files("apportion") / EMBEDDED)) if str(source) == EMBEDDED else Path(source)
    if not path.exists():
        raise InputError(
            f"model {source}: no such folder or file; {why}give a Hugging Face folder, a GGUF file or `embedded`"
        )
    return (path, {}) if path.is_dir() else (path.parent, {"gguf_file": path.name})


class CausalPolicy:
    """A causal language model with its tokenizer.

    generated: tokens sampled so far, whatever for. read: tokens of prompts that the model was run over for that; what
    several prompts of a lot share counts once. across: processes that have the same policy and share the work; all
    must make the same calls.
    """

    def __init__(self, model: Any, tokenizer: Any, across: Across = ALONE) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.ends = _end_ids(model, tokenizer)
        self.across = across
        self.lean = self.bf16 = False
        self.generated = self.read = 0
        self._speller = Speller(tokenizer)

    @classmethod
    def load(cls, source: str | Path) -> CausalPolicy:
        """Load `embedded`, a folder in Hugging Face format, or a GGUF file.

        Raises InputError when there is nothing there or it is no causal language model.
        """
        folder, options = located(source)
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        try:
            from transformers import AutoModelForCausalLM, AutoTokenizer
            from transformers.utils import logging
        except ImportError as error:
            raise InputError("a model needs transformers: pip install 'apportion[train]'") from error
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options)
        except Exception as error:  # the readers raise whatever damaged or foreign files lead them to
            reason = str(error).strip().split("\n")[0]
            raise InputError(f"model {source}: could not be loaded as a causal language model: {reason}") from error
        if options:
            _forget_quantization(model)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device).eval(), tokenizer)

    @property
    def context(self) -> int:
        """Longest text in tokens, prompt and answer together."""
        return int(getattr(self.model.config, "max_position_embeddings", 1 << 30))

    @property
    def parameters(self) -> int:
        return sum(weights.numel() for weights in self.model.parameters())

    def encode(self, prompt: str) -> list[int]:
        """The token ids of a prompt, through the tokenizer's chat template where it has one."""
        ids = encode(self.tokenizer, prompt)
        if not ids:
            raise InputError(f"the prompt {prompt!r} has no tokens; a policy needs at least one to start from")
        return ids

    def encode_answer(self, answer: str) -> list[int]:
        """The token ids of an answer, bare."""
        return encode_answer(self.tokenizer, answer)

    def spell(self, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
        """Text and character offsets of token ids."""
        return self._speller.spell(ids)

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        generator: torch.Generator,
        limits: Sequence[int] | None = None,
    ) -> list[Sample]:
        """Continue every prompt once, by at most `max_new_tokens` or its own entry of `limits`."""
        if not prompts:
            return []
        limits = limits or [sampling.max_new_tokens] * len(prompts)
        longest, limit = max(zip(map(len, prompts), limits, strict=True), key=sum)
        self.refuse_long(longest, limit)
        device = self.model.device
        chance = torch.rand(len(prompts), max(limits), generator=generator, device=generator.device).to(device)

        def share(numbers: Sequence[int]) -> list[Sample]:
            own, least = [prompts[n] for n in numbers], [limits[n] for n in numbers]
            with in_bf16(self.model, self.bf16):
                return sample(self.model, own, sampling, self.ends, chance[list(numbers)], least)

        samples = self.across.spread(range(len(prompts)), share)
        self.generated += sum(len(one.tokens) for one in samples)
        self.read += sum(one.read for one in samples)
        return samples

    def refuse_long(self, prompt: int, answer: int) -> None:
        """Raise InputError if a prompt and an answer of so many tokens do not fit the model's context."""
        if prompt + answer > self.context:
            raise InputError(
                f"a prompt of {prompt} tokens and {answer} new ones do not fit the model's context "
                f"of {self.context}; shorten the prompt or lower max_new_tokens"
            )

    def logprobs(
        self,
        tokens: Int[Tensor, "B T"],
        valid_mask: Bool[Tensor, "B T"],
        action_mask: Bool[Tensor, "B T"],
        *,
        temperature: float,
        layout: Layout = padded,
    ) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Log-probability of every sampled token and entropy of what it was drawn from: see `Scorer`."""
        found: tuple[Tensor, Tensor] = self.scorer(
            tokens, valid_mask, action_mask, temperature=temperature, layout=layout
        )
        return found

    @torch.inference_mode()
    def log_likelihood(
        self, asked: Sequence[tuple[Sequence[int], Sequence[int]]], *, temperature: float = 1.0
    ) -> list[float]:
        """log p(answer | prefix) in nats, summed over the answer's tokens, for each (prefix, answer) in one batch."""
        width = max(len(prefix) + len(answer) for prefix, answer in asked)
        tokens = torch.zeros(len(asked), width, dtype=torch.int64)
        of_answer = torch.zeros(len(asked), width, dtype=torch.bool)
        valid = torch.zeros_like(of_answer)
        for n, (prefix, answer) in enumerate(asked):
            end = len(prefix) + len(answer)
            tokens[n, :end] = torch.tensor([*prefix, *answer])
            of_answer[n, len(prefix) : end] = valid[n, :end] = True
        grids = (grid.to(self.model.device) for grid in (tokens, valid, of_answer))
        chosen, _ = self.logprobs(*grids, temperature=temperature)
        sums: list[float] = chosen.double().sum(1).tolist()
        return sums

    @cached_property
    def scorer(self) -> Scorer:
        """The model as a module that gives log-probabilities."""
        return Scorer(self.model, lean=self.lean, bf16=self.bf16)

    def trained(self, *, apart: bool) -> Scorer:
        """The module to train: this policy's own, or, where that cannot be, one that starts out the same."""
        return copy.deepcopy(self.scorer) if apart else self.scorer

    def reference(self) -> Reference:
        """The policy as it is now, never trained: a copy, or the model without the adapter that is trained."""
        if self.adapted:
            return self._without_adapter
        twin = CausalPolicy(copy.deepcopy(self.model).eval(), self.tokenizer)
        twin.model.requires_grad_(False)
        twin.bf16 = self.bf16
        return lambda: nullcontext(twin)

    @contextmanager
    def _without_adapter(self) -> Iterator[CausalPolicy]:
        with self.model.disable_adapter():
            yield self

    def adapt(self, rank: int, alpha: int) -> None:
        """Put a LoRA adapter on every linear layer but the head; it alone is trained from then on."""
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise InputError("an adapter needs peft: pip install 'apportion[lora]'") from error
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what one library calls by another one's old name
            self.model = get_peft_model(self.model, config).eval()

    @property
    def adapted(self) -> bool:
        return hasattr(self.model, "disable_adapter")

    def keep_little(self) -> None:
        """Keep little for the gradient: what layers find is found once more on the way back."""
        try:
            self.model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        except ValueError as error:
            raise InputError(f"{type(self.model).__name__} cannot do without what its layers find: {error}") from error
        if self.adapted:
            self.model.enable_input_require_grads()
        for module in self.model.modules():  # a policy that drops out at random is another one than sampled
            for name in ("p", "attention_dropout", "dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.0)
        self.lean = True

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder, an adapter merged into the model."""
        model = copy.deepcopy(self.model).merge_and_unload() if self.adapted else self.model
        model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def weights(self) -> dict[str, Tensor]:
        """The weights that are trained, by name: all, or those of the adapter."""
        return {name: weights.detach() for name, weights in self._trainable()}

    def take(self, weights: dict[str, Tensor]) -> None:
        """Take up weights as `weights` gave them."""
        with torch.no_grad():
            for name, own in self._trainable():
                own.copy_(weights[name])

    def _trainable(self) -> list[tuple[str, Tensor]]:
        return [(name, own) for name, own in self.model.named_parameters() if own.requires_grad]


def _forget_quantization(model: Any) -> None:
    """Make a model that was read from GGUF, and is in float32 now, an ordinary one that can be saved."""
    model.hf_quantizer = None
    model.is_quantized = False
    model.quantization_method = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    named = [tokenizer.eos_token_id, getattr(model.generation_config, "eos_token_id", None)]
    ids = {int(i) for entry in named for i in (entry if isinstance(entry, Iterable) else [entry]) if i is not None}
    if not ids:
        raise InputError("the tokenizer has no end-of-text token (eos_token), so no answer could ever end; set one")
    return frozenset(ids)
