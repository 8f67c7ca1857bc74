"""Break the tensor floor one expression at a time; the tests must notice every time.

    python tools/mutants.py                  all files
    python tools/mutants.py --file credit.py one of them

A mutant is one changed node of a module's syntax tree: a swapped operator, a bound moved by one, a dropped `~`,
swapped arms of `torch.where`. Each runs in a fork of this process, on a copy of the package, first against the test
file that mirrors the module and then against the whole core suite, and must make a test fail there. Shapes and types
are not checked meanwhile, so a mutant dies by its numbers alone. Mutants that change nothing that anybody can see
stand in `EQUIVALENT`, each with its reason.

Exit status: 1 when one survives.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "apportion"
# Each module, and the tests that should be first to notice.
TESTS = {
    "credit.py": "test_credit.py",
    "moments.py": "test_moments.py",
    "compiled.py": "test_compiled.py",
    "token_credit.py": "test_token_credit.py",
    "normalise/groups.py": "normalise/test_groups.py",
    "normalise/batch.py": "normalise/test_batch.py",
    "normalise/running.py": "normalise/test_running.py",
    "normalise/modulate.py": "normalise/test_modulate.py",
    "normalise/combine.py": "test_ledger.py",
    "losses/tokens.py": "losses/test_masks.py",
    "losses/policy.py": "losses/test_policy.py",
    "losses/ratios.py": "losses/test_ratios.py",
    "losses/kl.py": "losses/test_kl.py",
    "losses/values.py": "losses/test_values.py",
    "losses/entropy.py": "losses/test_entropy.py",
    "losses/reductions.py": "losses/test_reductions.py",
    "logprobs.py": "test_logprobs.py",
    "laws.py": "test_laws.py",
    "ledger.py": "test_ledger.py",
    "steps/grid.py": "steps/test_grid.py",
    "steps/splitters.py": "steps/test_splitters.py",
    "steps/spread.py": "steps/test_spread.py",
    "steps/given.py": "steps/test_given.py",
    "steps/tokens.py": "steps/test_tokens.py",
    "steps/text.py": "steps/test_text.py",
    "steps/sizes.py": "steps/test_sizes.py",
    "steps/separation.py": "steps/test_separation.py",
    "values/baselines.py": "values/test_baselines.py",
    "values/monte_carlo.py": "values/test_monte_carlo.py",
    "rewards/checkers.py": "rewards/test_checkers.py",
    "rewards/math_judge.py": "rewards/test_checkers.py",
    "rewards/mixing.py": "rewards/test_mixing.py",
    "rewards/process.py": "rewards/test_process.py",
    "files/fields.py": "files/test_rows.py",
    "files/words.py": "files/test_rows.py",
    "files/rows.py": "files/test_rows.py",
    "files/storage.py": "files/test_storage.py",
    "files/formats.py": "files/test_formats.py",
    "files/foreign/source.py": "files/foreign/test_trl.py",
    "files/foreign/trl.py": "files/foreign/test_trl.py",
    "files/foreign/verl.py": "files/foreign/test_verl.py",
    "files/foreign/prime_rl.py": "files/foreign/test_prime_rl.py",
    "files/foreign/chat.py": "files/foreign/test_chat.py",
    "rewards/bounds.py": "rewards/test_bounds.py",
    "rewards/shaping.py": "rewards/test_shaping.py",
    "rewards/length.py": "rewards/test_length.py",
    "rewards/conflict.py": "rewards/test_conflict.py",
    "rewards/schedules.py": "rewards/test_schedules.py",
    "lint/tolerance.py": "lint/test_tolerance.py",
    "lint/tensors.py": "lint/test_intake.py",
    "lint/settings.py": "lint/test_intake.py",
    "lint/desk.py": "lint/test_intake.py",
    "lint/intake.py": "lint/test_intake.py",
    "lint/batch.py": "lint/test_fault_views.py",
    "lint/view.py": "lint/test_fault_views.py",
    "lint/fault_views.py": "lint/test_fault_views.py",
    "lint/rescaling.py": "lint/test_rescaling.py",
    "lint/explanation.py": "lint/checks/test_tokens.py",
    "lint/answers.py": "lint/checks/test_answers.py",
    "lint/answer_faults.py": "lint/checks/test_answers.py",
    "lint/answer_credit.py": "lint/checks/test_answers.py",
    "lint/check.py": "lint/checks/test_tokens.py",
    "lint/run.py": "lint/checks/test_layout.py",
    "lint/checks/layout.py": "lint/checks/test_layout.py",
    "lint/checks/rewards.py": "lint/checks/test_rewards.py",
    "lint/checks/tokens.py": "lint/checks/test_tokens.py",
    "lint/checks/answers.py": "lint/checks/test_answers.py",
    "lint/checks/silence.py": "lint/checks/test_silence.py",
    "lint/checks/ratio.py": "lint/checks/test_ratio.py",
    "lint/checks/reduction.py": "lint/checks/test_reduction.py",
}
# The tests that see all of the line, for mutants that the first ones did not notice.
SUITE = [
    "test_token_credit.py",
    "test_recipes.py",
    "test_ledger.py",
    "test_credit.py",
    "test_rollouts.py",
    "steps/test_grid.py",
    "steps/test_splitters.py",
    "normalise/test_groups.py",
    "rewards/test_mixing.py",
    "values/test_baselines.py",
]
SECONDS = 120
# No plugin that is not used here, no rewriting of asserts: what is left of a run is the tests.
QUICK = ["-x", "-q", "--tb=short", "--assert=plain", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
QUICK += [f"-pno:{plugin}" for plugin in ("cacheprovider", "anyio", "unraisableexception", "threadexception")]

# (module, function: old → new): why no test can tell the two apart.
STRICT = "the lengths are equal by construction; strict only guards the next change"
EQUIVALENT: dict[tuple[str, str], str] = {
    ("lint/view.py", "_rollouts: -1 → -2"): "any number below 0 is padding",
    ("lint/view.py", "_rollouts: 1 → 2"): "any number below 0 is padding",
    ("lint/view.py", "_rollouts: 1 → 2 (2)"): "one rollout more, which has no token",
    ("lint/explanation.py", "module: 4 → 5"): "how many rows are looked at first changes nothing but the time",
    ("lint/checks/rewards.py", "_is_kl: factor < 0 → factor <= 0"): "a reward that is not 0 is no multiple by 0",
    ("credit.py", "gae: 32 → 33"): "the size of a block changes nothing but the time",
    ("credit.py", "_sums_to_go: 128 → 129"): "the size of a block changes nothing but the time",
    ("credit.py", "_sums_to_go: steps <= block → steps < block"): "a single block is a block like any other",
    ("credit.py", "_sums_to_go: steps % block → steps // block"): "padded by nothing where nothing is missing",
    ("normalise/groups.py", "group_mean_std: 0 → 1"): "what does not count is taken out again by `divided`",
    ("normalise/groups.py", "leave_one_out: 0 → 1"): "what does not count is taken out again at the end",
    ("rewards/process.py", "min_form: 0 → 1 (2)"): "weighted by 0, and taken out again at the end",
    ("rewards/process.py", "log_ratio: 0 → 1"): "what does not count is taken out again at the end",
    ("rewards/process.py", "log_ratio: 0 → 1 (2)"): "what does not count is taken out again at the end",
    ("normalise/running.py", "module: 0.0 → 1.0 (2)"): "where the mean stands before anything was seen",
    ("moments.py", "moments: 1 → 2"): "the mean of one entry is overruled, all entries being equal",
    ("moments.py", "_extremes: 0 → 1"): "a second column that is never the highest",
    ("moments.py", "_extremes: 1 → 2"): "a second column that is never the highest",
    ("moments.py", "divided: 1 → 2"): "the divisor where the outer torch.where takes 0",
    ("losses/policy.py", "cispo: 1.0 → 2.0"): "a lower bound of -1 is no more of a bound than one of 0",
    ("losses/tokens.py", "rollout_sum: 1 → 2"): "one sum more than there are rollouts, never read",
    ("losses/reductions.py", "total: 0 → 1 (2)"): "multiplied by the weight, which is 0 there",
    ("losses/reductions.py", "_tokens_of_rollout: 1 → 2"): "one count more than there are rollouts, never read",
    ("logprobs.py", "module: -10000.0 → -10001.0"): "any number whose exponential is 0",
    ("logprobs.py", "module: 10000.0 → 10001.0"): "any number whose exponential is 0",
    ("logprobs.py", "selected_logprobs: 1 → 2 (2)"): "half the scratch for a vocabulary of one word",
    ("logprobs.py", "head_logprobs: 1 → 2"): "half the scratch for one token",
    ("steps/text.py", "_answers: True → False"): STRICT,
    ("steps/text.py", "_matches: True → False"): STRICT,
    ("steps/sizes.py", "_bars: True → False"): STRICT,
    ("steps/text.py", "_cut: runs.length + BLOCK - 1 → runs.length + BLOCK + 1"): "one block of no token, never found",
    (
        "steps/text.py",
        "_holds_match: begins[1:] < ends[:-1] → begins[1:] <= ends[:-1]",
    ): "where they are equal, the end is set to itself",
    ("steps/text.py", "_rising: 0 → 1 (3)"): "every place in what is written is at least 1",
    ("files/rows.py", "row_of: True → False (3)"): STRICT,
    ("files/rows.py", "logprobs_of: True → False"): STRICT,
    ("files/rows.py", "logprobs_of: True → False (2)"): STRICT,
    ("files/foreign/trl.py", "_warn_of_advantages: True → False"): STRICT,
    ("files/foreign/trl.py", "_follow: True → False"): STRICT,
    ("files/foreign/trl.py", "_follow: True → False (2)"): STRICT,
    ("files/foreign/trl.py", "_follow: True → False (3)"): STRICT,
    ("files/foreign/prime_rl.py", "_logprobs: True → False"): STRICT,
    ("files/foreign/verl.py", "_output: 0 → 1"): "the number of an output that is a session alone",
    ("files/foreign/verl.py", "_output: 0 → 1 (2)"): "the number of an output that is a session alone",
    ("ledger.py", "module: False → True"): "whether repr shows the mask",
    ("ledger.py", "_totals: True → False"): STRICT,
    (
        "ledger.py",
        "apportion: len(parts) > 1 → len(parts) >= 1",
    ): "of one part, the value is worked out again to the same numbers",
    (
        "ledger.py",
        "apportion: len(parts) > 1 → len(parts) >= 1 (2)",
    ): "of one part, the credit is worked out again to the same numbers",
}

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
}
NAMES = {"amax": "amin", "amin": "amax"}
# Called with something that is no number: text, settings of a tensor's making.
NO_NUMBERS = {"dim", "stacklevel"}


@dataclass(frozen=True)
class Mutant:
    """A module with one node changed."""

    module: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}  {self.change}"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    tree = ast.parse((PACKAGE / module).read_text())
    seen: dict[str, int] = {}
    for function, path in _places(tree):
        old = _at(tree, path)
        for new in _changed(old):
            broken = copy.deepcopy(tree)
            *above, (name, index) = path
            _put(_at(broken, above), name, index, new)
            change = f"{function}: {ast.unparse(old)} → {ast.unparse(new)}"
            seen[change] = seen.get(change, 0) + 1
            if seen[change] > 1:
                change += f" ({seen[change]})"
            yield Mutant(module, getattr(old, "lineno", 0), change, ast.unparse(ast.fix_missing_locations(broken)))


Path_ = list[tuple[str, int | None]]


def _places(node: ast.AST, function: str = "module", path: Path_ | None = None) -> Iterator[tuple[str, Path_]]:
    """Every node whose value is computed when the code runs: no annotation, docstring or message."""
    path = path or []
    if path:
        yield function, path
    if isinstance(node, ast.FunctionDef):
        function = node.name
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(value, ast.JoinedStr):
            continue
        if isinstance(node, ast.keyword) and node.arg in NO_NUMBERS:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST) and not isinstance(child, (ast.JoinedStr, ast.Import, ast.ImportFrom)):
                if function == "module" and _names_a_type(child):
                    continue
                yield from _places(child, function, [*path, (name, index)])


def _names_a_type(node: ast.AST) -> bool:
    """`Scores = tuple[float, ...] | None` and the like."""
    return isinstance(node, ast.Assign) and isinstance(node.value, (ast.BinOp, ast.Subscript))


def _at(tree: ast.AST, path: Path_) -> ast.AST:
    for name, index in path:
        child = getattr(tree, name)
        tree = child if index is None else child[index]
    return tree


def _put(parent: ast.AST, name: str, index: int | None, new: ast.AST) -> None:
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        yield ast.BinOp(node.left, BINARY[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in BINARY:
        yield ast.AugAssign(node.target, BINARY[type(node.op)](), node.value)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARE:
        yield ast.Compare(node.left, [COMPARE[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.UnaryOp):
        yield ast.UnaryOp(node.op, ast.Constant(node.operand.value + 1))  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant):
        yield from _changed_constant(node.value)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.where":
        condition, yes, no = node.args
        yield ast.Call(node.func, [condition, no, yes], node.keywords)


def _changed_constant(value: object) -> Iterator[ast.Constant]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield ast.Constant(value + 1)
    elif isinstance(value, str) and value in NAMES:
        yield ast.Constant(NAMES[value])


class _Unshrunk:
    """Neither shrink what failed nor explain it: a failure is all that is asked for."""

    def pytest_collection_finish(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", parent=settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutants")


def _prepare() -> None:
    """Load in this process what every fork needs, except the package itself."""
    import hypothesis.strategies
    import jaxtyping
    import pytest
    import torch

    torch.set_num_threads(1)
    torch.testing.assert_close(torch.ones(1), torch.ones(1))
    jaxtyping.install_import_hook = lambda *names: None
    assert hypothesis.strategies
    assert pytest
    gc.freeze()


def notices(tests: list[str], log: str = os.devnull) -> bool:
    """Run test files in a fork of this process, against the package as it stands in the copy; did one fail?"""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        failed = os.WIFSIGNALED(status) or os.WEXITSTATUS(status) in (1, 2)  # too slow, a test, an import
        if status != 0 and not failed:
            print("pytest itself failed: status", status)
        return status != 0
    code = 3
    try:
        signal.alarm(SECONDS)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        import pytest

        files = [str(ROOT / "tests" / name) for name in tests]
        code = int(pytest.main([*QUICK, *files], plugins=[_Unshrunk()]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def run(modules: list[str], copied: Path) -> list[Mutant]:
    """Run every mutant of the modules and return those that no test noticed."""
    survivors, count, began = [], 0, time.monotonic()
    for module in modules:
        place, original = copied / module, (PACKAGE / module).read_text()
        for mutant in mutants_of(module):
            if (module, mutant.change) in EQUIVALENT:
                continue
            count += 1
            place.write_text(mutant.source)
            mirror = TESTS[module]
            killed = notices([mirror]) or notices([name for name in SUITE if name != mirror])
            print("killed  " if killed else "SURVIVED", mutant, flush=True)
            survivors += [] if killed else [mutant]
        place.write_text(original)
    print(f"{count} mutants, {count - len(survivors)} killed, {time.monotonic() - began:.0f} s")
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", choices=TESTS, help="one module instead of all")
    parser.add_argument("--list", action="store_true", help="show the mutants and run none")
    arguments = parser.parse_args()
    modules = [arguments.file] if arguments.file else list(TESTS)
    known = {(module, mutant.change) for module in modules for mutant in mutants_of(module)}
    if arguments.list:
        print(*(mutant for module in modules for mutant in mutants_of(module)), sep="\n")
        return 0
    stale = [key for key in EQUIVALENT if key[0] in modules and key not in known]
    if stale:
        print("EQUIVALENT names mutants that are no more:", *stale, sep="\n  ")
        return 1

    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "apportion"
        shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__", "embedded"))
        sys.path.insert(0, folder)
        _prepare()
        log = Path(folder) / "log"
        if notices(SUITE, str(log)):
            print(log.read_text(), "The tests fail on the code as it is; mutants would tell nothing.", sep="\n")
            return 1
        survivors = run(modules, copied)
    for mutant in survivors:
        print("SURVIVED", mutant)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
