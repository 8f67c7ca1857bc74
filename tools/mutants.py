"""Break the tensor floor one expression at a time; the tests must notice every time.

    python tools/mutants.py                  all files
    python tools/mutants.py --file credit.py this one; give `--file` again for more

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

from mutants_known import EQUIVALENT, SUITE, TESTS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "apportion"
SECONDS = 240
# No plugin that is not used here, no rewriting of asserts: what is left of a run is the tests.
QUICK = ["-x", "-q", "--tb=short", "--assert=plain", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
QUICK += [f"-pno:{plugin}" for plugin in ("cacheprovider", "anyio", "unraisableexception", "threadexception")]

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
    parser.add_argument("--file", choices=TESTS, action="append", help="this module (may be given again), not all")
    parser.add_argument("--list", action="store_true", help="show the mutants and run none")
    arguments = parser.parse_args()
    modules = arguments.file or list(TESTS)
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
