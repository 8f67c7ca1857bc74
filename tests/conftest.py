"""What every test runs under: no network, one thread, the same examples, shapes checked."""

from __future__ import annotations

import os

# Before anything imports a Hugging Face library: it reads these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Before anything imports apportion: the hook rewrites its modules while they load, so that the
# shapes in the signatures are checked here and cost nothing elsewhere.
install_import_hook("apportion", "beartype.beartype")

torch.set_num_threads(1)

settings.register_profile(
    "apportion",
    derandomize=True,
    deadline=None,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("apportion")
