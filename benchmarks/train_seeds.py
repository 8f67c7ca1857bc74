"""Run the same training with several seeds and write a row of each: `python benchmarks/train_seeds.py`.

    python benchmarks/train_seeds.py --seeds 5                              # the default run
    python benchmarks/train_seeds.py --seeds 3 -- --set wording=3           # any arguments of `apportion train`

Runs go one after another, each in a process of its own, into --out. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def train(seed: int, folder: Path, arguments: list[str]) -> dict[str, float]:
    """Train once and give the figures of the run."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "apportion", "train", "--seed", str(seed), "--out", str(folder), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    evaluations = json.loads((folder / "evaluations.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rates = [row["pass_rate"] for row in rows]
    return {
        "seed": seed,
        "before": evaluations["before"]["rate"],
        "after": evaluations["after"]["rate"],
        "low": evaluations["after"]["low"],
        "high": evaluations["after"]["high"],
        "lowest": min(sum(rates[i : i + 10]) / 10 for i in range(max(1, len(rates) - 9))),
        "tokens": rows[-1]["generated_tokens"],
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="keep the runs here (default: a folder thrown away)")
    parser.add_argument("arguments", nargs="*", help="after --: arguments of `apportion train`")
    options = parser.parse_args()
    print("| seed | pass rate before | after | 95 % interval | lowest 10-step mean | tokens generated | seconds |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(options.seeds):
            found = train(seed, (options.out or Path(scratch)) / f"seed-{seed}", options.arguments)
            print(
                f"| {seed} | {found['before']:.1%} | {found['after']:.1%} | {found['low']:.1%} to {found['high']:.1%} "
                f"| {found['lowest']:.1%} | {found['tokens']:,} | {found['seconds']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
