"""The report of a pytest session: where it is written, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.junitxml import xml_key  # pytest's fixture record_testsuite_property is for tests, and has nothing else behind it

if TYPE_CHECKING:
    import pytest

    from pytest_loadtest.fleet.conductor import Conductor

FILE = "report.html"


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

        page.write([conductor.folder], file, Options.of(config).history)
    except Exception as error:
        return f"WARNING: no report is written to {file}: {error or type(error).__name__}"
    if (junit := config.stash.get(xml_key, None)) is not None:
        junit.add_global_property("load.report", str(file))
    return f"report     {file}"
