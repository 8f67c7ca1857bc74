from __future__ import annotations

import pytest

from apportion import InputError
from apportion.adapters import hosts


def test_a_tested_version_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "version", lambda host: "1.16.3")
    hosts.require("trl", ">=1.16,<1.17")


@pytest.mark.parametrize("found", [pytest.param("1.15.0", id="older"), pytest.param("2.0.0.dev1", id="newer")])
def test_another_version_gives_one_clear_sentence(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(hosts, "version", lambda host: found)
    with pytest.raises(InputError) as caught:
        hosts.require("trl", ">=1.16,<1.17")
    assert str(caught.value) == (
        f"apportion.adapters.trl was tested with trl>=1.16,<1.17 and found {found}: pip install 'trl>=1.16,<1.17'"
    )


def test_a_host_that_is_not_installed_is_named_as_one_that_cannot_be_imported() -> None:
    with pytest.raises(ImportError, match=r"apportion\.adapters\.nohost needs nohost, which is not installed: pip"):
        hosts.require("nohost", ">=1")
