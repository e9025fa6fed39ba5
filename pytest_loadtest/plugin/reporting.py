"""The report of a pytest session: where it is written, and what is said of it."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _pytest.junitxml import xml_key  # pytest's fixture record_testsuite_property is for tests, and has nothing else behind it
from _pytest.skipping import xfailed_key

from pytest_loadtest.errors import LoadtestError

if TYPE_CHECKING:
    import pytest

    from pytest_loadtest.fleet.conductor import Conductor

FILE = "report.html"


def xfail_names(item: pytest.Item, error: BaseException) -> bool:
    """Return whether the mark that made the item's error an expected one names its class, or a base of it in this package.

    ``xfail(raises=NoData)`` does, also as ``RaisesExc(NoData, match=…)``; ``raises=Exception`` would hide whatever goes wrong.
    """
    expected: Any = item.stash.get(xfailed_key, None)
    raises = None if expected is None else getattr(expected.raises, "expected_exceptions", expected.raises)
    named = raises if isinstance(raises, tuple) else (raises,)
    return any(isinstance(one, type) and issubclass(one, LoadtestError) and isinstance(error, one) for one in named)


def whose_load(item: pytest.Item) -> str:
    """Say where the argument ``load`` of a test comes from: a fixture with its file and line, or ``parametrize``."""
    found: Any = getattr(item, "_fixtureinfo", None)
    known = () if found is None else found.name2fixturedefs.get("load", ())
    function = inspect.unwrap(known[-1].func) if known else None
    if function is None or function.__module__.startswith("_pytest."):  # how pytest passes a parameter of that name
        return "a parameter of `parametrize`"
    code = getattr(function, "__code__", None)
    if code is None:
        return f"the fixture {function!r}"
    return f"the fixture at {os.path.relpath(code.co_filename, item.config.rootpath)}:{code.co_firstlineno}"


def write(config: pytest.Config, conductor: Conductor) -> str:
    """Write the report of what has run, and name it in JUnit's file; never an error, for the tests have their outcomes.

    :returns: what to tell: where it is, or why it is nowhere; empty where nothing has run.
    """
    if not conductor.documents:
        return ""
    file = Path(os.path.abspath(config.option.load_html or conductor.folder / FILE))  # noqa: PTH100  # symbolic links left as they are
    try:
        from pytest_loadtest.fleet.options import Options
        from pytest_loadtest.report.html import page

        page.write_page([conductor.folder], file, Options.of(config).history)
    except Exception as error:
        return f"WARNING: no report is written to {file}: {error or type(error).__name__}"
    if (junit := config.stash.get(xml_key, None)) is not None:
        junit.add_global_property("load.report", str(file))
    return f"report     {file}"
