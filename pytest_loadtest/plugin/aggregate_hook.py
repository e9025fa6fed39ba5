"""The hook ``pytest_loadtest_aggregate``.

The users' implementations that apply to a run are selected, and their results are merged.

Called in the controller, while a run is measured, and by the command ``aggregate --conftest``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import UsageError
from pytest_loadtest.verdict.custom import HOOK

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from pytest_loadtest.pipeline.samples import SampledRun, Samples


class AggregateHook:
    """Calls all implementations of the hook. Must be made before tests are collected.

    :param manager: the plugin manager with the implementations.
    :param root: the session's root folder, to which node ids are relative.
    """

    def __init__(self, manager: pytest.PytestPluginManager, root: Path) -> None:
        self._manager = manager
        self._root = root
        self._early = self._plugins()

    def _plugins(self) -> list[Any]:
        implementations = getattr(self._manager.hook, HOOK).get_hookimpls()
        return [implementation.plugin for implementation in implementations]

    def is_implemented(self) -> bool:
        return bool(self._plugins())

    def check(self) -> None:
        """Reject implementations that pytest found only while it collected tests.

        xdist's controller calls the hook but collects no tests, so it would never load these files.
        They are rejected without xdist too, so that a project behaves the same with any number of
        workers.

        :raises UsageError: there is one.
        """
        late = [
            str(plugin.__file__)
            for plugin in self._plugins()
            if plugin not in self._early and isinstance(plugin, ModuleType)
        ]
        if late:
            raise UsageError(
                f"{late[0]}: {HOOK} is called by the controller, which does not collect tests and"
                f" so does not read this file: move the hook to {self._root / 'conftest.py'},"
                " and let it look at run.test where it is for some tests only"
            )

    def __call__(self, spark: SparkSession, run: SampledRun, samples: Samples) -> dict[str, Any]:
        """Return the merged metrics of all implementations.

        :raises UsageError: one returns no mapping, or two return the same name. Errors of an
            implementation are raised as they are.
        """
        from pytest_loadtest.pipeline.transforms import by_value

        others = [plugin for plugin in self._plugins() if not self._applies(plugin, run.test)]
        called = [plugin for plugin in self._plugins() if plugin not in others]
        merged: dict[str, Any] = {}
        call = self._manager.subset_hook_caller(HOOK, others)
        # Spark's workers cannot import a conftest.
        with by_value(*(plugin for plugin in called if isinstance(plugin, ModuleType))):
            for metrics in call(spark=spark, run=run, samples=samples):
                if not isinstance(metrics, Mapping):
                    raise UsageError(
                        f"{HOOK} returned {metrics!r}:"
                        " return a mapping, as in {'gold.p99': ms(12)}"
                    )
                repeated = [name for name in metrics if name in merged]
                if repeated:
                    files = [str(getattr(plugin, "__file__", plugin)) for plugin in called]
                    raise UsageError(
                        f"{repeated[0]!r} is returned by two implementations of {HOOK}"
                        f" ({', '.join(files)}): give it another name in one of them"
                    )
                merged |= metrics
        return merged

    def _applies(self, plugin: Any, test: str) -> bool:
        """Return whether the plugin applies to the test.

        A conftest applies only to tests in its folder and below, as with pytest's own
        hooks.
        """
        file = Path(str(getattr(plugin, "__file__", "")))
        if file.name != "conftest.py":
            return True
        test_file, _, _ = test.partition("::")
        return file.parent in (self._root / test_file).parents


def hook_of_conftest(file: Path) -> AggregateHook:
    """Return the hook of a conftest, outside any pytest session.

    :raises UsageError: the file does not exist, cannot be imported, or does not implement the hook.
    """
    import pytest

    from pytest_loadtest.plugin import hookspecs

    if not file.is_file():
        raise UsageError(f"--conftest {file}: no such file")
    manager = pytest.PytestPluginManager()
    manager.add_hookspecs(hookspecs)
    sys.path.insert(0, str(file.resolve().parent))
    try:
        manager.register(importlib.import_module(file.stem), str(file))
    except Exception as error:
        raise UsageError(f"--conftest {file} cannot be imported: {error!r}") from error
    hook = AggregateHook(manager, file.resolve().parent)
    if not hook.is_implemented():
        raise UsageError(f"--conftest {file} has no {HOOK}")
    return hook
