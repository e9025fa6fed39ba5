"""Which load tests run, and whether each asks for something that can be: looked at while tests are collected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from pytest_loadtest.profile import Profile

_KEYS = ("profile", "broker", "target", "admin", "live", "search")
MATRIX = "load_matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMark:
    """The arguments of ``@pytest.mark.load``. :param changes: keys of the profile that differ: ``messageSize=100``."""

    profile: str
    broker: str | None = None
    target: str | None = None
    admin: str | None = None
    live: bool = False
    search: Any = None
    changes: Mapping[str, Any] = field(default_factory=dict)


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
    arguments: dict[str, Any] = {name: value for name, value in mark.kwargs.items() if name in _KEYS}
    changes = {name: value for name, value in mark.kwargs.items() if name not in _KEYS}
    if len(mark.args) == 1 and "profile" not in arguments:
        arguments["profile"] = mark.args[0]
    elif mark.args or "profile" not in arguments:
        raise UsageError(f"{item.nodeid}: @pytest.mark.load wants one profile, by name or path: @pytest.mark.load(profile='smoke')")
    _check_values(item.nodeid, arguments)
    return LoadMark(changes=changes, **arguments)


def _check_values(nodeid: str, arguments: dict[str, Any]) -> None:
    from pytest_loadtest.brokers._base import MODES

    for name, value in arguments.items():
        if name == "search":
            if value is not True and not isinstance(value, dict):
                raise UsageError(f"{nodeid}: @pytest.mark.load wants search=True, or its keys: search={{'start': 1000, 'hold': '30s'}}")
            continue
        wanted = bool if name == "live" else str
        if not isinstance(value, wanted):
            raise UsageError(f"{nodeid}: @pytest.mark.load wants {name} as a {wanted.__name__}, not {value!r}")
    if arguments.get("broker", "auto") not in MODES:
        raise UsageError(f"{nodeid}: @pytest.mark.load(broker={arguments['broker']!r}) is unknown: choose one of {', '.join(MODES)}")


def load_profile(config: pytest.Config, item: pytest.Item, changes: Mapping[str, Any] | None = None) -> tuple[Profile, Path]:
    """The profile of a load test, by name in ``load_profiles`` or by path, with what the mark, the matrix and ``changes`` make different.

    :raises UsageError: there is none, or it is not valid.
    """
    from pytest_loadtest import profile

    mark = load_mark(item)
    path = profile.find(mark.profile, config.rootpath / config.getini("load_profiles"))
    asked = {**_combination(item), **mark.changes, **(changes or {})}
    if mark.search is not None:
        asked |= {"producerRate": 0} | ({} if mark.search is True else {"search": mark.search})
    found = profile.override(path, asked) if asked else profile.load(path)
    if config.option.load_driver is not None:
        found = profile.with_driver(found, Path(config.option.load_driver))
    return found, path


def _combination(item: pytest.Item) -> Mapping[str, Any]:
    """The parameters of the test that are keys of its profile."""
    callspec = getattr(item, "callspec", None)
    found: Mapping[str, Any] = {} if callspec is None else callspec.params.get(MATRIX, {})
    return found


def parametrize(metafunc: pytest.Metafunc) -> None:
    """One test for each combination of the profile's ``matrix``.

    Keys that make another target vary slowest, so that runs which share one follow each other.
    """
    marks = list(metafunc.definition.iter_markers("load"))
    direct = any(MATRIX in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize") if mark.args)
    if not marks or direct or MATRIX not in metafunc.fixturenames:
        return
    from pytest_loadtest import profile

    try:
        path = profile.find(load_mark(metafunc.definition).profile, metafunc.config.rootpath / metafunc.config.getini("load_profiles"))
        combinations = profile.matrix_of(path)
    except UsageError:  # said once, with everything else that is wrong, when tests are checked
        return
    if combinations:
        ordered = sorted(combinations, key=lambda one: [str(value) for key, value in one.items() if key.startswith(_TARGET_KEYS)])
        ids = ["-".join(f"{key}={value}" for key, value in one.items()) for one in ordered]
        metafunc.parametrize(MATRIX, ordered, ids=ids, indirect=True)


_TARGET_KEYS = ("driver", "broker", "target")


def check(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every problem of every load test at once, before anything is started.

    :raises pytest.UsageError: there is one.
    """
    from pytest_loadtest.profile import payload

    problems = []
    for item in items:
        try:
            load_mark(item)
            if "load" not in getattr(item, "fixturenames", ()):
                raise UsageError(f"{item.nodeid} is marked load and does not ask for the fixture `load`: no load would run")
            found, path = load_profile(config, item)
            for part in found.workloads or (found,):
                payload(part, path)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise pytest.UsageError("\n".join(dict.fromkeys(problems)))
