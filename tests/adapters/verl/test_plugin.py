"""Registration follows verl's own imports, and a verl that was not tested is refused aloud."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from apportion import InputError
from apportion.adapters import hosts

FAKE = {
    "verl/__init__.py": "from importlib.metadata import entry_points\n"
    "for found in entry_points(group='verl.plugins'):\n"
    "    try:\n        found.load()\n    except Exception:\n        pass\n",
    "verl/trainer/__init__.py": "",
    "verl/trainer/ppo/__init__.py": "",
    "verl/trainer/ppo/core_algos.py": "REGISTRY = {}\n"
    "def register_adv_est(name):\n"
    "    return lambda function: REGISTRY.setdefault(name, function)\n",
}
PROGRAM = """
import sys, verl
assert "verl.trainer" not in sys.modules and "apportion.adapters.verl.plugin" in sys.modules
from verl.trainer.ppo import core_algos
print(*sorted(core_algos.REGISTRY))
try:
    core_algos.REGISTRY["apportion_reinforce"]([[1.0]], [[1]])
except Exception as error:
    print(type(error).__name__)
"""


@pytest.fixture
def plugin(monkeypatch):
    """The module, without its finder in the way of other tests."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    from apportion.adapters.verl import plugin

    return plugin


def installed(monkeypatch, version):
    monkeypatch.setattr(hosts, "version", lambda name: version)


def register_in(plugin):
    registry = {}
    core = SimpleNamespace(register_adv_est=lambda name: lambda function: registry.setdefault(name, function))
    plugin.estimators_into(core)
    return registry


def test_the_estimators_are_registered_with_a_version_that_was_tested(plugin, monkeypatch, capsys):
    installed(monkeypatch, "0.9.1")
    assert set(register_in(plugin)) == set(plugin.estimators.all_of_them())
    assert capsys.readouterr().err == ""


def test_with_any_other_every_estimator_says_so_and_so_does_stderr(plugin, monkeypatch, capsys):
    installed(monkeypatch, "0.10.0")
    registry = register_in(plugin)
    sentence = "apportion.adapters.verl was tested with verl>=0.9.1,<0.9.2 and found 0.10.0"
    assert sentence in capsys.readouterr().err
    with pytest.raises(InputError, match=sentence):
        registry["apportion_grpo"](token_level_rewards=None, response_mask=None)


@pytest.mark.parametrize(("version", "known"), [("0.9.1", True), ("0.8.0", False)])
def test_trainers_and_reward_manager_are_registered_with_a_version_that_was_tested(plugin, monkeypatch, version, known):
    installed(monkeypatch, version)
    names: list[str] = []
    kept = SimpleNamespace(
        register_trainer=lambda name: lambda made: names.append(f"{name}: {made.__name__}"),
        get_trainer_cls=lambda mode: type(mode, (), {}),
        register=lambda name: lambda made: names.append(f"{name}: {made.__name__}"),
        get_reward_manager_cls=lambda name: type(name, (), {}),
    )
    plugin.trainers_into(kept)
    plugin.reward_manager_into(kept)
    assert (
        names
        == [
            "apportion: Apportionsync",
            "apportion_colocate_async: Apportioncolocate_async",
            "apportion_separate_async: Apportionseparate_async",
            "apportion: ApportionRewardManager",
        ]
        * known
    )


def test_a_register_that_was_loaded_before_is_served_at_once_and_waiting_twice_is_waiting_once(plugin, monkeypatch):
    served: list[str] = []
    monkeypatch.setattr(plugin, "AWAITED", {"json": lambda module: served.append(module.__name__)})
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if not isinstance(f, plugin._Awaiting)])
    plugin.wait()
    plugin.wait()
    assert served == ["json"]
    assert sum(isinstance(finder, plugin._Awaiting) for finder in sys.meta_path) == 1


def test_verl_loads_the_plugin_and_registration_follows_the_import_of_the_register(tmp_path):
    for name, text in FAKE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    entry = tmp_path / "apportion_test-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: apportion_test\nVersion: 1\n")
    (entry / "entry_points.txt").write_text("[verl.plugins]\napportion_test = apportion.adapters.verl.plugin\n")
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}){PROGRAM}"],
        capture_output=True,
        text=True,
        check=True,
    )
    names, refusal = ran.stdout.splitlines()
    assert "apportion_grpo" in names.split()
    assert refusal in ("InputError", "AttributeError")
    assert ("verl" in ran.stderr) == (refusal == "InputError")
