"""A reward function for verl that pays by line: right or wrong at the end, and a little for every sum that is right.

reward.reward_manager.name=apportion reward.custom_reward_function.path=examples/verl_reward.py
"""

import re

from apportion.adapters.verl.rewards import lines_of

SUM = re.compile(r"(-?\d+(?:\.\d+)?)\s*([-+*/])\s*(\d+(?:\.\d+)?)\s*=\s*(-?\d+(?:\.\d+)?)(?![\d.]*\s*[-+*/=])")


def compute_score(solution_str, ground_truth, **_):
    numbers = re.findall(r"-?\d+(?:\.\d+)?", solution_str.replace(",", ""))
    right = bool(numbers) and float(numbers[-1]) == float(str(ground_truth).replace(",", ""))
    return {"score": float(right), "step_rewards": [paid(line) for line in lines_of(solution_str)]}


def paid(line):
    """0.1 for a line whose sums are all right, -0.1 for one with a wrong sum, 0 for one without any."""
    sums = [worked(*found) for found in SUM.findall(line.replace(",", ""))]
    return 0.1 * (1 if all(sums) else -1) if sums else 0.0


def worked(left, sign, right, said):
    a, b = float(left), float(right)
    if sign == "/" and b == 0:
        return False
    return abs({"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0.0}[sign] - float(said)) < 0.01
