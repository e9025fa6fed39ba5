"""Which load tests run, and whether each asks for something that can be: looked at while tests are collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_loadtest.profile import Profile

_KEYS = {"profile", "broker", "target", "admin", "live"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMark:
    """The arguments of ``@pytest.mark.load``."""

    profile: str
    broker: str | None = None
    target: str | None = None
    admin: str | None = None
    live: bool = False


def deselect_soak(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked soak, unless ``-m`` speaks of them or their node id was given."""
    if "soak" in config.option.markexpr:
        return
    asked = [arg for arg in config.args if "::" in arg]
    soak = [item for item in items if item.get_closest_marker("soak") and not any(arg.rpartition("/")[2] in item.nodeid for arg in asked)]
    if soak:
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item not in soak]


def load_mark(item: pytest.Item) -> LoadMark:
    """The mark of a load test.

    :raises UsageError: it is missing, or says something it cannot.
    """
    mark = item.get_closest_marker("load")
    if mark is None:
        raise UsageError(f"{item.nodeid} asks for the fixture `load` and has no mark: add @pytest.mark.load(profile=…)")
    known = ", ".join(sorted(_KEYS))
    if unknown := set(mark.kwargs) - _KEYS:
        raise UsageError(f"{item.nodeid}: @pytest.mark.load does not take {', '.join(sorted(unknown))}; it takes {known}")
    arguments: dict[str, Any] = dict(mark.kwargs)
    if len(mark.args) == 1 and "profile" not in arguments:
        arguments["profile"] = mark.args[0]
    elif mark.args or "profile" not in arguments:
        raise UsageError(f"{item.nodeid}: @pytest.mark.load wants one profile, by name or path: @pytest.mark.load(profile='smoke')")
    _check_values(item.nodeid, arguments)
    return LoadMark(**arguments)


def _check_values(nodeid: str, arguments: dict[str, Any]) -> None:
    from pytest_loadtest.brokers._base import MODES

    for name, value in arguments.items():
        wanted = bool if name == "live" else str
        if not isinstance(value, wanted):
            raise UsageError(f"{nodeid}: @pytest.mark.load wants {name} as a {wanted.__name__}, not {value!r}")
    if arguments.get("broker", "auto") not in MODES:
        raise UsageError(f"{nodeid}: @pytest.mark.load(broker={arguments['broker']!r}) is unknown: choose one of {', '.join(MODES)}")


def load_profile(config: pytest.Config, item: pytest.Item) -> tuple[Profile, Path]:
    """The profile of a load test, by name in ``load_profiles`` or by path.

    :raises UsageError: there is none, or it is not valid.
    """
    from pytest_loadtest import profile

    path = profile.find(load_mark(item).profile, config.rootpath / config.getini("load_profiles"))
    return profile.load(path), path


def check(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every problem of every load test at once, before anything is started.

    :raises pytest.UsageError: there is one.
    """
    problems = []
    for item in items:
        try:
            load_mark(item)
            if "load" not in getattr(item, "fixturenames", ()):
                raise UsageError(f"{item.nodeid} is marked load and does not ask for the fixture `load`: no load would run")
            load_profile(config, item)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise pytest.UsageError("\n".join(dict.fromkeys(problems)))
