"""Reporters of other plugins on the members of a load test: they leave the test to the lead.

Every worker runs the setup and teardown of a load test, since its fixtures may serve the load, but
only one of them, the lead, reports it. pytest's own reports leave a worker by
``pytest_runtest_logreport``, which members do not call. The other hooks of a test have two kinds of
implementations: those that fixtures need (pytest-asyncio, pytest-timeout), which run on members as
well, and those that write a result of their own (allure-pytest), which must not. The latter are
known by name, or name themselves in the hook ``pytest_loadtest_reporters``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest

from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pluggy

HOOK = "pytest_loadtest_reporters"
KNOWN = ("allure_listener",)
"""Registered names of reporters that write in hooks of setup, call, teardown and fixtures."""

_REPORTING = ("pytest_runtest_makereport", "pytest_exception_interact")
"""Hooks that make or show a report.

Members leave out the implementations of all plugins but pytest's and ours.
"""
_OWN = ("_pytest.", "pytest_loadtest.")
_OF_A_TEST = ("pytest_runtest_", "pytest_fixture_setup", "pytest_pyfunc_call")
"""Beginnings of the names of the hooks that members leave out of reporters."""


class MemberSilence:
    """A plugin of xdist's workers, registered after all others: its wrappers run around theirs."""

    def __init__(self, config: pytest.Config, is_member: Callable[[], bool]) -> None:
        """:param is_member: returns True while this worker runs a load test of another's report."""
        self._config = config
        self._is_member = is_member
        self._unreported: WeakSet[pytest.FixtureDef[Any]] = WeakSet()
        self._ends_unreported = False

    def begin(self) -> None:
        """Make the hooks of all reporters that are registered by now do nothing on members."""
        manager = self._config.pluginmanager
        for plugin in reporters(self._config):
            for caller in manager.get_hookcallers(plugin) or ():
                for implementation in caller.get_hookimpls():
                    if implementation.plugin is plugin:
                        self._silence_reporter(caller.name, implementation)
        for name in _REPORTING:
            for implementation in getattr(manager.hook, name).get_hookimpls():
                if not implementation.function.__module__.startswith(_OWN):
                    mute(implementation, self._is_member)

    def _silence_reporter(self, hook: str, implementation: pluggy.HookImpl) -> None:
        if hook == "pytest_fixture_post_finalizer":
            mute(implementation, lambda: self._ends_unreported)
        elif hook.startswith(_OF_A_TEST) and hook not in _REPORTING:
            mute(implementation, self._is_member)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Remember the fixtures that members set up."""
        if self._is_member():
            self._unreported.add(fixturedef)
        else:
            self._unreported.discard(fixturedef)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_post_finalizer(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Let a reporter see the end of a fixture exactly if it has seen its setup.

        By the end, another test may run.
        """
        self._ends_unreported = fixturedef in self._unreported
        try:
            return (yield)
        finally:
            self._ends_unreported = False


def reporters(config: pytest.Config) -> list[object]:
    """Return the registered plugins that report tests in hooks of their own.

    These are the known ones, and those that a plugin names.

    :raises UsageError: a plugin is named that is not registered.
    """
    manager = config.pluginmanager
    named: list[object] = list(KNOWN)
    for answer in getattr(manager.hook, HOOK)(config=config):
        named += answer if isinstance(answer, (list, tuple)) else (answer,)
    plugins = []
    for plugin in named:
        if isinstance(plugin, str):
            # A plugin without its option is not registered.
            plugin = manager.get_plugin(plugin)  # noqa: PLW2901
        elif not manager.is_registered(plugin):
            raise UsageError(
                f"{HOOK}: {plugin!r} is not a plugin of this session:"
                " return one that is registered, or its name"
            )
        if plugin is not None:
            plugins.append(plugin)
    return plugins


def mute(implementation: pluggy.HookImpl, is_silent: Callable[[], bool]) -> None:
    """Let an implementation of a hook do nothing while ``is_silent`` returns True.

    To take a plugin off and register it again would call its ``pytest_configure`` again, and would
    come too late for a call that has begun.
    """
    function: Callable[..., Any] = implementation.function
    conditional: Callable[..., Any]
    if implementation.wrapper or implementation.hookwrapper:

        def conditional(*args: object, **kwargs: object) -> Generator[None, Any, Any]:
            if is_silent():
                return (yield)
            return (yield from function(*args, **kwargs))

    else:

        def conditional(*args: object, **kwargs: object) -> Any:
            if is_silent():
                return None
            return function(*args, **kwargs)

    conditional.__module__ = function.__module__
    implementation.function = conditional  # type: ignore[misc]  # read anew for each call
