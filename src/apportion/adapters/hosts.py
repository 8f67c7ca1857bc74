"""Which versions of a host an adapter was tested with; any other is refused in one sentence."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from apportion.errors import InputError


class HostError(InputError, ImportError):
    """The framework that an adapter is for is not there, or in a version that nobody tried."""


def require(host: str, tested: str) -> None:
    """Raise HostError unless the installed version of `host` is one of `tested`, such as ">=1.16,<1.17"."""
    from packaging.specifiers import SpecifierSet

    adapter = f"apportion.adapters.{host}"
    try:
        found = version(host)
    except PackageNotFoundError:
        raise HostError(f"{adapter} needs {host}, which is not installed: pip install '{host}{tested}'") from None
    if not SpecifierSet(tested, prereleases=True).contains(found):
        raise HostError(f"{adapter} was tested with {host}{tested} and found {found}: pip install '{host}{tested}'")
