"""The floors of the package: who may import whom, and what a plain import loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
HEAVY = ("transformers", "accelerate", "pyarrow", "math_verify", "reasoning_gym", "gguf")


def test_every_module_imports_only_from_a_lower_floor(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)

    assert exit_code == 0, capsys.readouterr().out


def test_every_folder_of_modules_is_a_package_and_so_stands_on_a_floor() -> None:
    folders = {path.parent for path in (ROOT / "src" / "apportion").rglob("*.py")}

    # The contract does not see a folder without __init__.py, and a wheel leaves it out.
    assert [folder.name for folder in folders if not (folder / "__init__.py").exists()] == []


def test_importing_apportion_loads_no_heavy_package() -> None:
    program = f"import sys, apportion; print(*(set({HEAVY!r}) & set(sys.modules)))"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert loaded == []
