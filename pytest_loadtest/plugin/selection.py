"""The selection of load tests, and the checks of their marks and profiles.

Called in every process while tests are collected. Every wrong mark and profile is found before
anything is started, and all are reported together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark import MarkMatcher, _parse_expression

from pytest_loadtest.errors import UsageError
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from pytest_loadtest.fleet.messages import Request
    from pytest_loadtest.profile import Profile
    from pytest_loadtest.profile.merge import Variant

_KEYS = ("profile", "broker_mode", "target", "admin_url", "live", "judge", "search", "matrix")
_FORMER_KEYS = {"broker": "broker_mode", "admin": "admin_url"}
"""Older spellings of arguments, which are accepted → the spellings of today."""
MATRIX = "load_matrix"
_DRIVER_KEY = re.compile(r"(workloads\.[^.]*\.)?driver(\.|$)")
_FIXTURES = ("load", "load_service", "load_target")
_MAPPINGS = {
    "search": "search=True, or its keys: search={'start': 1000, 'hold': '30s'}",
    "matrix": "the values to select from each axis of the profile's matrix:"
    " matrix={'messageSize': [64, 512]}",
}


@record
class LoadMark:
    """The arguments of ``@pytest.mark.load``.

    :param matrix: the values to select from axes of the profile's matrix.
    :param changes: keys that differ: ``messageSize=100``.
    """

    profile: str
    broker_mode: str | None = None
    target: str | None = None
    admin_url: str | None = None
    live: bool = False
    judge: bool = True
    search: Any = None
    matrix: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)


def deselect_soak(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked soak, unless their mark lets ``-m`` select them or their node id was
    given.
    """
    named = []
    for arg in config.args:
        file, separator, test = arg.partition("::")
        if separator:
            named.append(f"{Path(file).name}::{test}")

    def is_deselected(item: pytest.Item) -> bool:
        if item.get_closest_marker("soak") is None or _selects_by_soak(config, item):
            return False
        return not any(
            # A node id names a test, all of its parameters, or a class.
            re.search(rf"(^|/){re.escape(node)}($|\[|::)", item.nodeid)
            for node in named
        )

    if soak := list(filter(is_deselected, items)):
        config.hook.pytest_deselected(items=soak)
        items[:] = [item for item in items if item not in soak]


def _selects_by_soak(config: pytest.Config, item: pytest.Item) -> bool:
    """Return whether ``-m`` selects a test because of its mark soak.

    That is so if the expression is true with the mark and false without it, with the other marks
    of the test (``load and soak``) or without them (``load or soak``).
    """
    expression = _parse_expression(config.option.markexpr, "Wrong expression passed to '-m'")
    soak = list(item.iter_markers("soak"))
    others = [mark for mark in item.iter_markers() if mark.name != "soak"]
    for marks in (others, []):
        is_selected = expression.evaluate(MarkMatcher.from_markers([*marks, *soak]))
        if is_selected and not expression.evaluate(MarkMatcher.from_markers(marks)):
            return True
    return False


def set_up_load_last(items: list[pytest.Item]) -> None:
    """Let pytest set up ``load`` after all other fixtures of a test that prepares its target.

    Otherwise the load would be over before a service is started, if ``load`` is the first argument.
    """
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        if "load" in names and "load_target" in names:
            names.remove("load")
            names.append("load")


def fixtures_of(item: pytest.Item) -> list[str]:
    """Return those of this package's fixtures that a test needs."""
    return [name for name in _FIXTURES if name in getattr(item, "fixturenames", ())]


def load_mark(item: pytest.Item) -> LoadMark:
    """Return the mark of a load test.

    :raises UsageError: it is missing, has a wrong argument, or is one of several.
    """
    marks = list(item.iter_markers_with_node("load"))
    if not marks:
        name = next(iter(fixtures_of(item)), "load")
        raise UsageError(
            f"{item.nodeid} uses the fixture `{name}` but has no mark:"
            " add @pytest.mark.load(profile=…)"
        )
    node, mark = marks[0]
    # A mark of the test goes before that of its class. Two at one place (decorators, pytest.param,
    # a base class) have no such order.
    if any(at is node and other != mark for at, other in marks):
        place = "" if node is item else f" from {node.name} and its base classes"
        raise UsageError(
            f"{item.nodeid} has several marks load{place}, and only one would apply: keep one"
        )
    arguments: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    for name, value in _with_todays_names(item.nodeid, mark.kwargs).items():
        kind = arguments if name in _KEYS else changes
        kind[name] = value
    if len(mark.args) == 1 and "profile" not in arguments:
        arguments["profile"] = mark.args[0]
    elif mark.args or "profile" not in arguments:
        raise UsageError(
            f"{item.nodeid}: @pytest.mark.load needs one profile, by name or path:"
            " @pytest.mark.load(profile='smoke')"
        )
    _check_values(item.nodeid, arguments)
    return LoadMark(changes=changes, **arguments)


def _with_todays_names(nodeid: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    for former, name in _FORMER_KEYS.items():
        if former in keywords and name in keywords:
            raise UsageError(
                f"{nodeid}: @pytest.mark.load has {former} and {name}, which are the same:"
                f" remove {former}"
            )
    return {_FORMER_KEYS.get(name, name): value for name, value in keywords.items()}


def _check_values(nodeid: str, arguments: dict[str, Any]) -> None:
    from pytest_loadtest.brokers.base import MODES
    from pytest_loadtest.values.addresses import check_address

    for name, value in arguments.items():
        if name in _MAPPINGS:
            if not isinstance(value, dict) and (name, value) != ("search", True):
                raise UsageError(
                    f"{nodeid}: @pytest.mark.load: {name} is {value!r}: write {_MAPPINGS[name]}"
                )
            continue
        expected = bool if name in ("live", "judge") else str
        if not isinstance(value, expected):
            raise UsageError(
                f"{nodeid}: @pytest.mark.load: {name} is {value!r}: write a {expected.__name__}"
            )
    for name in ("target", "admin_url"):
        check_address(arguments.get(name), f"{nodeid}: @pytest.mark.load: {name}")
    if arguments.get("broker_mode", "auto") not in MODES:
        raise UsageError(
            f"{nodeid}: @pytest.mark.load(broker_mode={arguments['broker_mode']!r})"
            f" is unknown: choose one of {', '.join(MODES)}"
        )


def profile_path(config: pytest.Config, item: pytest.Item, mark: LoadMark) -> Path:
    """Return the file of a load test's profile.

    A path is relative to the folder of the test file, the root folder, the folder where pytest was
    started, or ``load_profiles``.

    :raises UsageError: there is none, or two of these folders have different files.
    """
    from pytest_loadtest import profile

    places = (item.path.parent, config.rootpath, config.invocation_params.dir)
    return profile.find(mark.profile, config.rootpath / config.getini("load_profiles"), places)


def load_profile(
    config: pytest.Config, item: pytest.Item, changes: Mapping[str, Any] | None = None
) -> tuple[Profile, Path]:
    """Return the profile of a load test and its path.

    The profile has the changes by the matrix, the mark and ``--load-set``.

    :param changes: keys changed by the test's body; they override the mark.
    :raises UsageError: it does not exist or is invalid.
    """
    from pytest_loadtest import profile

    mark = load_mark(item)
    path = profile_path(config, item, mark)
    callspec = getattr(item, "callspec", None)
    combination = None if callspec is None else callspec.params.get(MATRIX)
    # A mark in pytest.param(…, marks=…) is not there yet when tests are parametrized.
    marked_late = combination is None and (mark.matrix or callspec is not None)
    if marked_late and profile.matrix_of(path, mark.matrix):
        raise UsageError(
            f"{item.nodeid}: the matrix of {path} needs the mark load at the function:"
            " move it there from pytest.param(…)"
        )
    overrides = {**(combination or {}), **mark.changes, **(changes or {})}
    if mark.search is not None:
        overrides["producerRate"] = 0
        if mark.search is not True:
            overrides["search"] = mark.search
    options = load_set(config.option.load_set)
    if "producerRate" in options and overrides.get("producerRate") == 0:
        raise UsageError(
            f"--load-set producerRate={options['producerRate']}:"
            f" {item.nodeid} searches its rate: set search.start and search.max"
        )
    driver_file = config.option.load_driver
    if driver_file is not None:
        for key in (*options, *overrides):
            if _DRIVER_KEY.match(key):
                raise UsageError(
                    f"{key} (--load-set, the test, or a matrix) together with --load-driver: that"
                    " file has the whole section; write the key there, or leave --load-driver out"
                )
    if overrides or options:
        loaded = profile.override(path, overrides, options)
    else:
        loaded = profile.load(path)
    if driver_file is not None:
        loaded = profile.with_driver(loaded, config.invocation_params.dir / driver_file)
    return loaded, path


def make_request(
    config: pytest.Config, item: pytest.Item, attempt: int, changes: Mapping[str, Any] | None = None
) -> Request:
    """Return the request of a load test.

    :param changes: keys of the profile changed by the test's body.

    :raises UsageError: the mark or the profile is wrong.
    """
    from pytest_loadtest import profile as profiles
    from pytest_loadtest.fleet.messages import Part, Request

    mark = load_mark(item)
    profile, path = load_profile(config, item, changes)
    parts = []
    for part in profile.workloads or (profile,):
        files = profiles.payload_files(part, path, config.invocation_params.dir)
        parts.append(Part(profile=part, files=files))
    return Request(
        nodeid=item.nodeid,
        attempt=attempt,
        profile=profile,
        source=os.path.relpath(path, config.rootpath),
        parts=tuple(parts),
        broker=mark.broker_mode,
        target=mark.target,
        admin=mark.admin_url,
        security_line=profiles.line_of(path, ("target", "security")),
        broker_line=profiles.line_of(path, ("driver", "broker")),
        cluster_line=profiles.line_of(path, ("broker",)),
    )


def load_set(texts: list[str]) -> dict[str, str]:
    """Return the values of ``--load-set KEY=VALUE`` as a mapping; a later one wins.

    :raises UsageError: one has no key or no value.
    """
    from pytest_loadtest.profile.secrets import shown_key

    values = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not key.strip() or not value.strip():
            raise UsageError(
                f"--load-set {shown_key(key or text)}: write KEY=VALUE, with a key of the profile;"
                " null leaves the key out"
            )
        values[key] = value
    return values


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Make one test for each combination of the profile's ``matrix``.

    Keys that change the target vary slowest, so that runs with the same target follow each other.
    """
    direct = any(
        MATRIX in str(mark.args[0])
        for mark in metafunc.definition.iter_markers("parametrize")
        if mark.args
    )
    if direct or MATRIX not in metafunc.fixturenames:
        return
    from pytest_loadtest import profile

    try:
        mark = load_mark(metafunc.definition)
        path = profile_path(metafunc.config, metafunc.definition, mark)
        variants = profile.matrix_of(path, mark.matrix)
    except UsageError:  # reported by check_load_tests, with all other problems
        return
    if not variants:
        return

    def target(variant: Variant) -> list[str]:
        return [
            str(value) for key, value in variant.changes.items() if key.startswith(_TARGET_KEYS)
        ]

    ordered = sorted(variants, key=target)
    parameters = [pytest.param(variant.changes, id=variant.id) for variant in ordered]
    metafunc.parametrize(MATRIX, parameters, indirect=True)


_TARGET_KEYS = ("driver", "broker", "target")


def check_load_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the mark, the profile and the addresses of every load test.

    :raises pytest.UsageError: with all problems, one a line.
    """
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.targets import check_addresses

    options = Options.of(config)
    tests: dict[str, list[str]] = {}  # node ids by problem: many tests may use one profile
    for item in items:
        try:
            load_mark(item)
            if "load" not in getattr(item, "fixturenames", ()):
                raise UsageError(
                    f"{item.nodeid} is marked load but does not use the fixture `load`:"
                    " no load would run; add the argument"
                )
            request = make_request(config, item, attempt=1)
            for part in request.parts:
                check_addresses(request, part.profile, options)
        except UsageError as error:
            tests.setdefault(str(error), []).append(item.nodeid)
    if tests:
        problems = [_with_tests(problem, nodeids) for problem, nodeids in tests.items()]
        raise pytest.UsageError("\n".join(problems))


def _with_tests(problem: str, nodeids: list[str]) -> str:
    """Return the text of a problem with the test that has it, and the number of the others."""
    from pytest_loadtest.values.wording import counted

    if nodeids[0] in problem:
        return problem
    shown = f"{problem}\n  in {nodeids[0]}"
    if others := len(nodeids) - 1:
        shown += f" and {counted(others, 'other test')}"
    return shown
