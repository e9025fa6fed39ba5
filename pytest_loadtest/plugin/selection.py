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

_KEYS = ("profile", "broker", "target", "admin", "live", "judge", "search", "matrix")
MATRIX = "load_matrix"
_MAPPINGS = {
    "search": "search=True, or its keys: search={'start': 1000, 'hold': '30s'}",
    "matrix": "what to take of each axis of the profile's matrix: matrix={'messageSize': [64, 512]}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMark:
    """The arguments of ``@pytest.mark.load``.

    :param matrix: axes of the profile's matrix, each with what is wanted of it. :param changes: keys that differ: ``messageSize=100``.
    """

    profile: str
    broker: str | None = None
    target: str | None = None
    admin: str | None = None
    live: bool = False
    judge: bool = True
    search: Any = None
    matrix: Mapping[str, Any] = field(default_factory=dict)
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
    from pytest_loadtest.brokers.base import MODES
    from pytest_loadtest.values.addresses import check_address

    for name, value in arguments.items():
        if name in _MAPPINGS:
            if not isinstance(value, dict) and (name, value) != ("search", True):
                raise UsageError(f"{nodeid}: @pytest.mark.load wants {_MAPPINGS[name]}")
            continue
        wanted = bool if name in ("live", "judge") else str
        if not isinstance(value, wanted):
            raise UsageError(f"{nodeid}: @pytest.mark.load wants {name} as a {wanted.__name__}, not {value!r}")
    for name in ("target", "admin"):
        check_address(arguments.get(name), f"{nodeid}: @pytest.mark.load: {name}")
    if arguments.get("broker", "auto") not in MODES:
        raise UsageError(f"{nodeid}: @pytest.mark.load(broker={arguments['broker']!r}) is unknown: choose one of {', '.join(MODES)}")


def load_profile(config: pytest.Config, item: pytest.Item, changes: Mapping[str, Any] | None = None) -> tuple[Profile, Path]:
    """The profile of a load test, by name in ``load_profiles`` or by path, as ``--load-set``, the mark and the matrix make it different.

    :param changes: of the test's body; as those of the mark.

    :raises UsageError: there is none, or it is not valid.
    """
    from pytest_loadtest import profile

    mark = load_mark(item)
    path = profile.find(mark.profile, config.rootpath / config.getini("load_profiles"))
    asked = {**_combination(item), **mark.changes, **(changes or {})}
    if mark.search is not None:
        asked |= {"producerRate": 0} | ({} if mark.search is True else {"search": mark.search})
    if mark.matrix and not _varied(item):
        profile.matrix_of(path, mark.matrix)  # raises, or the test would have been parametrized
    options = load_set(config.option.load_set)
    if "producerRate" in options and asked.get("producerRate") == 0:
        raise UsageError(
            f"--load-set producerRate={options['producerRate']}: {item.nodeid} searches its rate: set search.start and search.max"
        )
    if config.option.load_driver is not None and any(key.split(".")[0] == "driver" for key in options):
        raise UsageError("--load-set driver.… beside --load-driver: that file has the whole section; write the key there")
    found = profile.override(path, asked, options) if asked or options else profile.load(path)
    if config.option.load_driver is not None:
        found = profile.with_driver(found, Path(config.option.load_driver))
    return found, path


def load_set(texts: list[str]) -> dict[str, str]:
    """``--load-set KEY=VALUE`` as a mapping; a later one wins.

    :raises UsageError: one has no key or no value.
    """
    from pytest_loadtest.profile.secrets import shown_key

    pairs = {text: text.partition("=") for text in texts}
    for text, (key, _, value) in pairs.items():
        if not key.strip() or not value.strip():
            raise UsageError(f"--load-set {shown_key(key or text)}: write KEY=VALUE, with a key of the profile; null leaves the key out")
    return {key: value for key, _, value in pairs.values()}


def _varied(item: pytest.Item) -> bool:
    """Whether the test is one of several that differ in keys of their profile."""
    return MATRIX in getattr(getattr(item, "callspec", None), "params", {})


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
        mark = load_mark(metafunc.definition)
        path = profile.find(mark.profile, metafunc.config.rootpath / metafunc.config.getini("load_profiles"))
        variants = profile.matrix_of(path, mark.matrix)
    except UsageError:  # said once, with everything else that is wrong, when tests are checked
        return
    if variants:
        ordered = sorted(variants, key=lambda one: [str(value) for key, value in one.changes.items() if key.startswith(_TARGET_KEYS)])
        metafunc.parametrize(MATRIX, [one.changes for one in ordered], ids=[one.id for one in ordered], indirect=True)


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
