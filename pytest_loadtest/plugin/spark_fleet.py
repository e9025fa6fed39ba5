"""``--load-fleet``: checks the option, and has Spark start the workers before xdist does.

xdist distributes the tests as with ``-n``; only the command of each worker is another one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.option_rows import option_or_ini
from pytest_loadtest.plugin.session import COMMANDS, FLEET

if TYPE_CHECKING:
    from pytest_loadtest.fleet.spark_fleet import FleetOptions

_OPTIONS: pytest.StashKey[FleetOptions] = pytest.StashKey()
_SYNTAX = re.compile(r"spark(?::(?P<directory>/.*))?")


def check_fleet(config: pytest.Config) -> None:
    """Check the option and what it needs.

    :raises pytest.UsageError: it is wrong, or something is missing.
    """
    text, _ = option_or_ini(config, "load_fleet")
    hosts, _ = option_or_ini(config, "load_hosts")
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise pytest.UsageError(
            f"--load-fleet {text}: write spark, or spark:/DIRECTORY with the tests on Spark's nodes"
        )
    if hosts:
        raise pytest.UsageError(
            "--load-fleet and --load-hosts: workers come from Spark or from a list of hosts:"
            " leave one of them out"
        )
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError(
            "--load-fleet: Spark's workers are workers of pytest-xdist, which is disabled here"
        )
    if not isinstance(config.option.numprocesses, int) or config.option.numprocesses < 1:
        raise pytest.UsageError(
            f"--load-fleet {text}: how many workers should Spark start? Write their number: -n 4"
        )
    if config.option.maxworkerrestart is None:  # Spark starts no second worker in a slot
        config.option.maxworkerrestart = "0"
    if config.option.collectonly:
        return
    from pytest_loadtest.fleet.spark_fleet import FleetOptions

    certificate = config.getini("load_fleet_tls")
    workers = config.option.numprocesses
    config.stash[_OPTIONS] = FleetOptions(
        workers=min(workers, config.option.maxprocesses or workers),
        directory=match["directory"] or str(config.invocation_params.dir),
        certificate=config.rootpath / certificate if certificate else None,
    )


def start_fleet(config: pytest.Config) -> None:
    """Start the workers that the option requests, if any.

    For a plan they run only until the facts of their hosts are known.

    :raises pytest.UsageError: Spark cannot start them.
    """
    options = config.stash.get(_OPTIONS, None)
    if options is None:
        return
    from pytest_loadtest.fleet.interrupts import interrupt_on_sigterm, restore_sigterm
    from pytest_loadtest.fleet.options import HOSTS, Options
    from pytest_loadtest.fleet.spark_fleet import SparkFleet

    reporter = config.pluginmanager.getplugin("terminalreporter")

    def announce(text: str) -> None:  # not by xdist's queue, which nobody reads yet
        if reporter is not None and config.option.verbose >= 0:
            reporter.write_line(f"load: {text}")

    try:
        fleet = SparkFleet(Options.of(config), options, announce)
        interrupt_on_sigterm()
        config.add_cleanup(restore_sigterm)
        config.add_cleanup(fleet.close)
        fleet.start()
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    config.stash[HOSTS] = fleet.shares
    if config.option.load_plan:
        fleet.close()
        return
    config.stash[FLEET] = fleet
    config.stash[COMMANDS] = fleet.hosts
    config.option.tx = fleet.specs
