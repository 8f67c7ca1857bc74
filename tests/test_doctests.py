"""Every example in a docstring is run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import apportion

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(apportion.__path__, "apportion.")
    if not name.endswith(("__main__", "math_child"))
    and not name.startswith(("apportion.adapters.trl", "apportion.adapters.verl"))  # need their hosts
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_print_what_they_say(name: str) -> None:
    module = importlib.import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": importlib.import_module("torch")})
    assert found.failed == 0
