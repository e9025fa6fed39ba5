"""``python -m pytest_loadtest doctor --hosts FILE``: the hosts of ``pytest --load-hosts``, and the remedy for each that cannot be used."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.url import parse_endpoints
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_process import REACH_TIMEOUT, host_command
from pytest_loadtest.fleet.hosts import PROBE_TIMEOUT, HostFacts, hosts_of, machine_of, query_hosts
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.metrics.clocks import ClockExchange, ClockFit, fit_clock
from pytest_loadtest.values.addresses import masked
from pytest_loadtest.values.quantities import format_count, format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.brokers.url import Endpoint
    from pytest_loadtest.profile.hosts import HostEntry

EXCHANGES: Final = 100
FILES_NEEDED: Final = 4096


def check_hosts(option: str, target: str | None, tell: Callable[[str], None]) -> bool:
    """Print a table of the hosts. :param option: as of ``--load-hosts``. :param target: URL of a broker. :returns: True if all can be used.

    :raises UsageError: the hosts cannot be read, or ``target`` is not the address of a broker.
    """
    endpoints = endpoints_of(target) if target is not None else ()
    entries = hosts_of(option, Path.cwd())
    answers = query_hosts(entries)
    with ThreadPoolExecutor(len(entries)) as pool:
        rows = list(pool.map(lambda entry: _row(entry, answers[entry.name], target, endpoints), entries))
    width = max(len(entry.name) for entry in entries)
    for entry, (facts, problems) in zip(entries, rows, strict=True):
        tell(f"{'--' if problems else 'ok'}  {entry.name:<{width}}  {facts or 'cannot be used'}")
        for problem in problems:
            tell(f"{'':{width + 6}}{problem}")
    return not any(problems for _, problems in rows)


def endpoints_of(target: str) -> Sequence[Endpoint]:
    """Return the endpoints of a broker's address, whatever its kind.

    :raises UsageError: it is not an address, or has a user or a password.
    """
    names = {scheme: kind.name for kind in kinds().values() for scheme in kind.target_schemes}
    scheme, separator, _ = target.partition("://")
    if not separator or scheme not in names:
        examples = ", ".join(f"{name}://HOST:PORT" for name in names)
        raise UsageError(f"--target {masked(target)} is not the address of a broker: write {examples}")
    return parse_endpoints(names[scheme], target)


def _row(entry: HostEntry, answer: HostFacts | str, target: str | None, endpoints: Sequence[Endpoint]) -> tuple[str, list[str]]:
    """Return the facts of a host as text, and its problems."""
    if isinstance(answer, str):
        return "", [answer]
    try:
        clock = measure_clock(entry)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return "", [f"its clock cannot be read over {entry.command}: {error}"]
    files = "unlimited" if answer.files < 0 else format_count(answer.files)
    text = (
        f"Python {answer.python}, {answer.cores} cores, {format_size(answer.memory)}, {files} open files,"
        f" {format_count(machine_of(answer, entry).ports)} ports{_origin(entry)}; clock known"
        f" to {format_duration(clock.error)}, round trip {format_duration(clock.round_trip)}"
    )
    problems = []
    if 0 <= answer.files < FILES_NEEDED:
        problems.append(f"a process may open {answer.files} files: raise the hard limit (ulimit -Hn) to {FILES_NEEDED} or more")
    for source in (entry.source_addresses or (None,)) if endpoints else ():
        if reason := _reach(entry, endpoints, source):
            origin = "" if source is None else f" from {source}"
            problems.append(f"it cannot connect to {target}{origin}: {reason}: check address and firewall")
    return text, problems


def _origin(entry: HostEntry) -> str:
    count = len(entry.source_addresses)
    return "" if not count else f" from {count} source address{'es' if count > 1 else ''}"


def measure_clock(entry: HostEntry) -> ClockFit:
    """Relate the clock of a host to this one's, by exchanges over the host's command.

    :raises ValueError: the host does not answer with a time.
    """
    command = host_command(entry.command, entry.python, entry.directory, "clock")
    exchanges = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for _ in range(EXCHANGES):
                left = time.monotonic_ns()
                process.stdin.write("\n")
                process.stdin.flush()
                exchanges.append(ClockExchange(left, int(process.stdout.readline()), time.monotonic_ns()))
        finally:
            process.stdin.close()
    return fit_clock(exchanges[1:])  # the first one waits for the login and the start of Python


def _reach(entry: HostEntry, endpoints: Sequence[Endpoint], source: str | None) -> str:
    """Return why a host can connect to none of the endpoints; empty if it can connect to one. :param source: None: from any address."""
    command = host_command(entry.command, entry.python, entry.directory, "reach")
    addresses = "".join(f"{endpoint} {source or ''}\n" for endpoint in endpoints)
    timeout = PROBE_TIMEOUT + REACH_TIMEOUT * len(endpoints)
    try:
        done = subprocess.run(command, input=addresses, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    reasons = done.stdout.splitlines()
    if "" in reasons:
        return ""
    named = [f"{endpoint}: {reason}" for endpoint, reason in zip(endpoints, reasons, strict=False)]
    return reasons[0] if len(reasons) == 1 else "; ".join(named) or "no answer"
