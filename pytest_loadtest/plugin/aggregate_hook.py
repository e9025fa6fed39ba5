"""Users' implementations of ``pytest_loadtest_aggregate``: which of them apply, and what all of them return."""

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
    """Calls the hook for a run, wherever it is implemented. To be made before tests are collected.

    :param manager: whose plugins are asked. :param root: what node ids are relative to.
    """

    def __init__(self, manager: pytest.PytestPluginManager, root: Path) -> None:
        self._manager, self._root = manager, root
        self._early = self._plugins()

    def _plugins(self) -> list[Any]:
        return [implementation.plugin for implementation in getattr(self._manager.hook, HOOK).get_hookimpls()]

    def implemented(self) -> bool:
        """Whether anything implements it."""
        return bool(self._plugins())

    def check(self) -> None:
        """Refuse implementations that pytest came upon while it collected tests.

        xdist's controller, which is the one that calls the hook, collects none and would never hear of them; with one process the hook is
        refused too, so that a project does the same with any number of workers.

        :raises UsageError: there is one.
        """
        late = [str(plugin.__file__) for plugin in self._plugins() if plugin not in self._early and isinstance(plugin, ModuleType)]
        if late:
            raise UsageError(
                f"{late[0]}: {HOOK} is called by the controller, which does not collect tests and so does not read this file:"
                f" move the hook to {self._root / 'conftest.py'}, and let it look at run.test where it is for some tests only"
            )

    def __call__(self, spark: SparkSession, run: SampledRun, samples: Samples) -> dict[str, Any]:
        """What all implementations return.

        :raises UsageError: one returns no mapping, or two return the same name. Whatever one raises is passed on.
        """
        from pytest_loadtest.pipeline.transforms import by_value

        others = [plugin for plugin in self._plugins() if not self._applies(plugin, run.test)]
        asked = [plugin for plugin in self._plugins() if plugin not in others]
        merged: dict[str, Any] = {}
        with by_value(*(plugin for plugin in asked if isinstance(plugin, ModuleType))):  # so that their functions reach Spark's workers
            for found in self._manager.subset_hook_caller(HOOK, others)(spark=spark, run=run, samples=samples):
                if not isinstance(found, Mapping):
                    raise UsageError(f"{HOOK} returned {found!r}: return a mapping, as in {{'gold.p99': ms(12)}}")
                for name in found:
                    if name in merged:
                        where = ", ".join(str(getattr(plugin, "__file__", plugin)) for plugin in asked)
                        raise UsageError(
                            f"{name!r} is returned by two implementations of {HOOK} ({where}): give it another name in one of them"
                        )
                merged |= found
        return merged

    def _applies(self, plugin: Any, test: str) -> bool:
        """A conftest is for the tests in its folder and below, as all of its hooks are."""
        file = Path(str(getattr(plugin, "__file__", "")))
        return file.name != "conftest.py" or file.parent in Path(self._root, test.partition("::")[0]).parents


def hook_of_conftest(file: Path) -> AggregateHook:
    """The hook as a conftest outside of any pytest session implements it.

    :raises UsageError: there is no such file, it cannot be imported, or has no hook.
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
    if not hook.implemented():
        raise UsageError(f"--conftest {file} has no {HOOK}")
    return hook
