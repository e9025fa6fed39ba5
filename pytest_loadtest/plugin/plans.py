"""``--load-plan``: prints the plan of each load test instead of running it.

Called by the hooks in the only process of the session: no worker, broker or Spark is started.
"""

from __future__ import annotations

import pytest

from pytest_loadtest.errors import LoadtestError
from pytest_loadtest.plugin.selection import make_request
from pytest_loadtest.plugin.session import local_workers

_WORKERS = pytest.StashKey[int]()


def remember_workers(config: pytest.Config) -> None:
    """Note the number of workers in xdist's options, and reset them so that none is started."""
    config.stash[_WORKERS] = local_workers(config) or len(config.option.tx or ()) or 1
    config.option.numprocesses = None
    config.option.tx = []
    config.option.dist = "no"


def print_plans(session: pytest.Session) -> None:
    """Print the plan of every collected load test, or the reason why it has none.

    :raises pytest.UsageError: a test has no plan, or there is no terminal.
    """
    from pytest_loadtest.fleet.options import Options
    from pytest_loadtest.fleet.planning import plan_lines

    config = session.config
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        raise pytest.UsageError("--load-plan prints plans: leave out -p no:terminal")
    workers = config.stash.get(_WORKERS, 1)
    unplanned = []
    for item in session.items:
        if item.get_closest_marker("load"):
            reporter.write_line("")
            reporter.write_line(item.nodeid, bold=True)
            try:
                request = make_request(config, item, attempt=1)
                # Only here: wrong options are an error of the collection, if it has load tests.
                lines = plan_lines(request, workers, Options.of(config))
            except LoadtestError as error:
                lines = str(error).splitlines()
                unplanned.append(item.nodeid)
            for line in lines:
                reporter.write_line(f"  {line}")
    if unplanned:
        reporter.write_line("")
        raise pytest.UsageError(f"no plan for {', '.join(unplanned)}: see above")
