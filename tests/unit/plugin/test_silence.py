"""Implementations of hooks that do nothing on a member, and the plugins that have them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pluggy
import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.plugin import hookspecs
from pytest_loadtest.plugin.silence import MemberSilence, mute, reporters

if TYPE_CHECKING:
    from collections.abc import Generator

hookspec = pluggy.HookspecMarker("example")
hookimpl = pluggy.HookimplMarker("example")


class Hooks:
    @hookspec
    def changed(self, value: int) -> int: ...


class Plugin:
    """A hook's implementation of one of three kinds, each of which adds to what it got."""

    def __init__(self, calls: list[int]) -> None:
        self.calls = calls


class Plain(Plugin):
    @hookimpl
    def changed(self, value: int) -> int:
        self.calls.append(value)
        return value


class Wrapper(Plugin):
    @hookimpl(wrapper=True)
    def changed(self, value: int) -> Generator[None, list[int], list[int]]:
        self.calls.append(value)
        try:
            results = yield
        except ValueError:
            return [-1]
        return [*results, value]


class OldWrapper(Plugin):
    @hookimpl(hookwrapper=True)
    def changed(self, value: int) -> Generator[None, pluggy.Result[list[int]], None]:
        self.calls.append(value)
        outcome = yield
        outcome.force_result([*outcome.get_result(), value])


@pytest.mark.parametrize("kind", [Plain, Wrapper, OldWrapper])
def test_a_silent_implementation_neither_runs_nor_changes_the_result(kind: type[Plugin]) -> None:
    """Of every kind; the others are called as usual, and it is again when the silence ends."""
    manager, calls, is_silent = pluggy.PluginManager("example"), list[int](), [False]
    manager.add_hookspecs(Hooks)
    manager.register(Plain([]))
    manager.register(kind(calls))
    for implementation in manager.hook.changed.get_hookimpls():
        if implementation.plugin.calls is calls:
            mute(implementation, lambda: is_silent[0])
    assert manager.hook.changed(value=1) == [1, 1]
    is_silent[0] = True
    assert manager.hook.changed(value=2) == [2]
    is_silent[0] = False
    assert manager.hook.changed(value=3) == [3, 3]
    assert calls == [1, 3]


@pytest.mark.parametrize(("silent", "result"), [(False, [-1]), (True, None)])
def test_an_error_passes_a_silent_wrapper(silent: bool, result: list[int] | None) -> None:
    """One that is not silent handles it."""

    class Failing:
        @hookimpl
        def changed(self) -> int:
            raise ValueError

    manager = pluggy.PluginManager("example")
    manager.add_hookspecs(Hooks)
    manager.register(Failing())
    manager.register(Wrapper([]), "wrapper")
    (implementation,) = [
        one for one in manager.hook.changed.get_hookimpls() if one.plugin_name == "wrapper"
    ]
    mute(implementation, lambda: silent)
    if result is not None:
        assert manager.hook.changed(value=1) == result
    else:
        with pytest.raises(ValueError):
            manager.hook.changed(value=1)


@pytest.fixture
def config() -> Any:
    """Return a session's plugins without those of pytest."""
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(hookspecs)
    return SimpleNamespace(pluginmanager=manager, hook=manager.hook)


def named(config: Any, answer: object) -> None:
    """Register a plugin that returns this answer."""
    config.pluginmanager.register(SimpleNamespace(pytest_loadtest_reporters=lambda config: answer))


def test_reporters_are_named_by_object_or_by_name(config: Any) -> None:
    """One or several; a name without a plugin is one whose option was not given."""
    first, second = Plain([1]), Plain([2])
    config.pluginmanager.register(first, "first")
    config.pluginmanager.register(second, "second")
    assert reporters(config) == []
    for answer in ("first", ["second", "absent"], None):
        named(config, answer)
    assert sorted(map(id, reporters(config))) == sorted([id(first), id(second)])
    config.pluginmanager.register(allure := Plain([3]), "allure_listener")
    assert reporters(config)[0] is allure


def test_a_reporter_that_is_no_plugin_is_a_usage_error(config: Any) -> None:
    named(config, SimpleNamespace)
    with pytest.raises(
        UsageError,
        match=r"^pytest_loadtest_reporters: <class .*> is not a plugin of this session:"
        r" return one that is",
    ):
        reporters(config)


class Reporter:
    """Sees the setup and the end of fixtures."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        self.seen.append(f"begin {fixturedef.argname}")

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        self.seen.append(f"end {fixturedef.argname}")

    def pytest_loadtest_reporters(self) -> object:
        return self


class Fixture:
    def __init__(self, argname: str) -> None:
        self.argname = argname


def test_the_end_of_a_fixture_is_seen_where_its_setup_was(config: Any) -> None:
    """Whichever test runs by then: a session fixture outlives the ordinary test that set it up."""
    reporter, is_member = Reporter(), [False]
    config.pluginmanager.register(reporter)
    silent = MemberSilence(config, lambda: is_member[0])
    silent.begin()
    config.pluginmanager.register(silent)
    seen_before, unseen = Fixture("seen_before"), Fixture("unseen")
    for fixture, member in ((seen_before, False), (unseen, True)):
        is_member[0] = member
        config.hook.pytest_fixture_setup(fixturedef=fixture, request=None)
    for member in (True, False, True):
        is_member[0] = member
        for fixture in (seen_before, unseen):
            config.hook.pytest_fixture_post_finalizer(fixturedef=fixture, request=None)
    assert reporter.seen == ["begin seen_before", *["end seen_before"] * 3]
    is_member[0] = False
    config.hook.pytest_fixture_setup(fixturedef=unseen, request=None)
    config.hook.pytest_fixture_post_finalizer(fixturedef=unseen, request=None)
    assert reporter.seen[-2:] == ["begin unseen", "end unseen"]
