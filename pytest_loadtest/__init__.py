"""Performance acceptance tests of messaging systems: public names, loaded on use.

::

    from pytest_loadtest import ms

    @pytest.mark.load(profile="smoke")
    def test_smoke(load):
        load.assert_slo()
        assert load.end_to_end.p99 <= ms(100)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_loadtest.errors import (
        BrokenRun,
        GeneratorLimited,
        LoadtestError,
        NoData,
        ProfileError,
        UsageError,
    )
    from pytest_loadtest.fixture.handle import LiveLoad
    from pytest_loadtest.fixture.services import LoadService, LoadTarget
    from pytest_loadtest.fleet.service_request import Service
    from pytest_loadtest.results.load import Load, SloMissed
    from pytest_loadtest.values.units import Rate, ms, s, us

__all__ = [
    "BrokenRun",
    "GeneratorLimited",
    "LiveLoad",
    "Load",
    "LoadService",
    "LoadTarget",
    "LoadtestError",
    "NoData",
    "ProfileError",
    "Rate",
    "Service",
    "SloMissed",
    "UsageError",
    "ms",
    "s",
    "us",
]

_HOMES = {
    "LiveLoad": "fixture.handle",
    "Load": "results.load",
    "LoadService": "fixture.services",
    "LoadTarget": "fixture.services",
    "Service": "fleet.service_request",
    "SloMissed": "results.load",
} | dict.fromkeys(("Rate", "ms", "s", "us"), "values.units")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
