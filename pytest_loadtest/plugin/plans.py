"""``--load-plan``: what each load test would need, and nothing is run."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.plugin.session import request_of

_WORKERS = pytest.StashKey[int]()


def remember_workers(config: pytest.Config) -> None:
    """Note how many workers were asked for and start none: a plan runs nothing."""
    asked = config.option.numprocesses
    if asked in ("auto", "logical"):
        asked = config.hook.pytest_xdist_auto_num_workers(config=config)
    config.stash[_WORKERS] = int(asked or 0) or len(config.option.tx or ()) or 1
    config.option.numprocesses, config.option.tx, config.option.dist = None, [], "no"


def print_plans(session: pytest.Session) -> None:
    """The plan of every load test that was collected.

    :raises pytest.UsageError: there is none for some of them; what is wrong was printed in its place.
    """
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.planning import plan_lines

    config = session.config
    reporter: Any = config.pluginmanager.getplugin("terminalreporter")
    workers, options, wrong = config.stash.get(_WORKERS, 1), Options.of(config), []
    for item in session.items:
        if item.get_closest_marker("load"):
            reporter.write_line("")
            reporter.write_line(item.nodeid, bold=True)
            try:
                lines = plan_lines(request_of(config, item, attempt=1), workers, options)
            except LoadtestError as error:
                lines = str(error).splitlines()
                wrong.append(item.nodeid)
            for line in lines:
                reporter.write_line(f"  {line}")
    if wrong:
        reporter.write_line("")
        raise pytest.UsageError(f"no plan for {', '.join(wrong)}: see above")
