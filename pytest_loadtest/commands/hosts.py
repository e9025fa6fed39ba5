"""``python -m pytest_loadtest doctor --hosts FILE``: the hosts of ``pytest --load-hosts``.

Each host that cannot be used has a remedy.
"""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.url import Endpoint, check_admin_url, kind_at, parse_endpoints
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_bandwidth import Bandwidth, BandwidthRequest
from pytest_loadtest.fleet.host_process import REACH_TIMEOUT, host_command
from pytest_loadtest.fleet.hosts import PROBE_TIMEOUT, HostFacts, hosts_of, machine_of, query_hosts
from pytest_loadtest.kinds.registry import kinds, load_reference
from pytest_loadtest.metrics.clocks import ClockExchange, ClockFit, fit_clock
from pytest_loadtest.values.addresses import masked
from pytest_loadtest.values.quantities import (
    format_bits,
    format_count,
    format_duration,
    format_size,
)
from pytest_loadtest.values.records import immutable
from pytest_loadtest.values.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.profile.client import ClientSettings
    from pytest_loadtest.profile.hosts import HostEntry

EXCHANGES: Final = 100
FILES_NEEDED: Final = 4096


BANDWIDTH_TIMEOUT: Final = 120
"""s for a host to measure its bandwidth.

It connects, sends two rounds with their drains, and deletes its topic.
"""
FAR_BELOW: Final = 0.5
BUSY: Final = 0.9
"""Cores of the sending process. Python cannot use more of its own."""


@immutable
class HostRow:
    """A row of the table, or a part of one.

    :param text: the facts. :param problems: the reasons why the host cannot be used.
    """

    text: str = ""
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: HostRow) -> HostRow:
        return HostRow(
            self.text + other.text, self.problems + other.problems, self.notes + other.notes
        )


def check_hosts(
    option: str,
    target: str | None,
    tell: Callable[[str], None],
    probe: BandwidthRequest | None = None,
) -> bool:
    """Print a table of the hosts.

    :param option: as of ``--load-hosts``.
    :param target: URL of a broker. :returns: True if all can be used.

    :param probe: measure the bandwidth from each host in turn; None: do not.
    :raises UsageError: the hosts cannot be read, or ``target`` is not the address of a broker.
    """
    endpoints: Sequence[Endpoint] = ()
    if target is not None:
        endpoints = endpoints_of(target)
    entries = hosts_of(option, Path.cwd())
    answers = query_hosts(entries)
    with ThreadPoolExecutor(len(entries)) as pool:
        rows = list(
            pool.map(lambda entry: _row(entry, answers[entry.name], target, endpoints), entries)
        )
    width = max(len(entry.name) for entry in entries)
    usable = True
    for entry, facts in zip(entries, rows, strict=True):
        row = facts
        # One host at a time: together they would measure the target.
        if probe is not None and not facts.problems:
            row = facts + _bandwidth(entry, probe)
        sign = "--" if row.problems else "ok"
        tell(f"{sign}  {entry.name:<{width}}  {row.text or 'cannot be used'}")
        for line in (*row.problems, *row.notes):
            tell(f"{'':{width + 6}}{line}")
        usable = usable and not row.problems
    return usable


def bandwidth_request(
    target: str, admin_url: str | None, settings: ClientSettings | None
) -> BandwidthRequest:
    """Return the request to measure the bandwidth to a target.

    :param settings: the ``driver`` section of a profile; None: the defaults.

    :raises UsageError: the settings are of another kind, nothing is acknowledged, or the topic
        could not be removed.
    """
    kind = kind_at(target, kinds().values())
    if settings is None:
        settings = load_reference(kind, kind.settings)()
    if settings.name != kind.name:
        raise UsageError(
            f"--like: the driver {settings.name!r} of the profile cannot connect to"
            f" {masked(target)}: name a profile for {kind.label}"
        )
    if settings.unacknowledged is not None:
        reason, remedy = settings.unacknowledged
        raise UsageError(
            f"--bandwidth counts acknowledged bytes, and there are none {reason}: {remedy}"
        )
    if admin_url is None and any(scheme.admin for scheme in kind.schemes.values()):
        raise UsageError(
            f"--bandwidth removes its topic by the admin REST of {kind.label}:"
            " write --admin-url http://HOST:PORT"
        )
    check_admin_url(admin_url)
    client = settings.client
    if client is None:
        client = "native" if "native" in kind.clients else next(iter(kind.clients))
    return BandwidthRequest(
        target=TargetAddress(url=target, admin_url=admin_url), settings=settings, client=str(client)
    )


def _bandwidth(entry: HostEntry, probe: BandwidthRequest) -> HostRow:
    """Measure the bandwidth of a host."""
    request = probe
    if probe.settings.kind.clients[probe.client].source_addresses:
        request = replace(probe, sources=entry.source_addresses)
    try:
        done = subprocess.run(
            host_command(entry, "bandwidth"),
            input=f"{request.encode()}\n",
            capture_output=True,
            text=True,
            timeout=BANDWIDTH_TIMEOUT,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        return _unmeasured(f" over {entry.command}: {error}")
    except (IndexError, ValueError):
        _, _, last = done.stderr.strip().rpartition("\n")
        return _unmeasured(f": the process there ended with status {done.returncode}: {last}")
    if "problem" in answer:
        return _unmeasured(f": {answer['problem']}")
    return judge_bandwidth(Bandwidth(**answer), entry.bits_per_second)


def _unmeasured(reason: str) -> HostRow:
    return HostRow(problems=(f"its bandwidth cannot be measured{reason}",))


def judge_bandwidth(measured: Bandwidth, declared: float | None) -> HostRow:
    """Compare a bandwidth with the declared one, bit/s."""
    rate = measured.bits_per_second
    row = HostRow(f"; sends at least {format_bits(rate)}")
    if declared is not None:
        row += HostRow(f" of {format_bits(declared)}")
        if rate > declared:
            return row + HostRow(
                notes=(
                    (
                        f"it carries more than its bandwidth says: correct {format_bits(declared)},"
                        " or plans reject what it can carry"
                    ),
                )
            )
    if measured.cpu >= BUSY:
        return row + HostRow(
            notes=(
                (
                    f"the sending process used {measured.cpu:.1f} cores:"
                    " the network may carry more than one process sends"
                ),
            )
        )
    if declared is not None and rate < declared * FAR_BELOW:
        return row + HostRow(
            problems=(
                (
                    "network and target carried less than half of its bandwidth,"
                    " and the sender had CPU time to spare: if another host reaches more,"
                    " correct its bandwidth or its network; else a faster target,"
                    " or a better path to it, is needed"
                ),
            )
        )
    return row


def endpoints_of(target: str) -> Sequence[Endpoint]:
    """Return the endpoints of a broker's address, whatever its kind.

    :raises UsageError: it is not an address, or has a user or a password.
    """
    return parse_endpoints(kind_at(target, kinds().values()).name, target)


def _row(
    entry: HostEntry, answer: HostFacts | str, target: str | None, endpoints: Sequence[Endpoint]
) -> HostRow:
    """Return the facts of a host, and its problems."""
    if isinstance(answer, str):
        return HostRow(problems=(answer,))
    try:
        clock = measure_clock(entry)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return HostRow(problems=(f"its clock cannot be read over {entry.command}: {error}",))
    files = "unlimited" if answer.files < 0 else format_count(answer.files)
    text = (
        f"Python {answer.python}, {answer.cores} cores, {format_size(answer.memory)},"
        f" {files} open files, {format_count(machine_of(answer, entry).ports)}"
        f" ports{_origin(entry)}; clock known to {format_duration(clock.error)},"
        f" round trip {format_duration(clock.round_trip)}"
    )
    problems = []
    if 0 <= answer.files < FILES_NEEDED:
        problems.append(
            f"a process may open {answer.files} files: raise the hard limit (ulimit -Hn) to"
            f" {FILES_NEEDED} or more"
        )
    for source in entry.source_addresses or ("",):
        reason = _reach(entry, endpoints, source)
        if reason:
            origin = source and f" from {source}"
            problems.append(
                f"it cannot connect to {target}{origin}: {reason}: check address and firewall"
            )
    return HostRow(text, tuple(problems))


def _origin(entry: HostEntry) -> str:
    count = len(entry.source_addresses)
    if not count:
        return ""
    return f" from {counted(count, 'source address', 'source addresses')}"


def measure_clock(entry: HostEntry) -> ClockFit:
    """Relate the clock of a host to this one's, by exchanges over the host's command.

    :raises ValueError: the host does not answer with a time.
    """
    exchanges = []
    with subprocess.Popen(
        host_command(entry, "clock"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for _ in range(EXCHANGES):
                left = time.monotonic_ns()
                process.stdin.write("\n")
                process.stdin.flush()
                exchanges.append(
                    ClockExchange(left, int(process.stdout.readline()), time.monotonic_ns())
                )
        finally:
            process.stdin.close()
    return fit_clock(exchanges[1:])  # the first one waits for the login and the start of Python


def _reach(entry: HostEntry, endpoints: Sequence[Endpoint], source: str) -> str:
    """Return why a host can connect to none of the endpoints; empty if it can connect to one.

    :param source: the address to connect from; empty: any.
    """
    if not endpoints:
        return ""
    addresses = "".join(f"{endpoint} {source}\n" for endpoint in endpoints)
    try:
        done = subprocess.run(
            host_command(entry, "reach"),
            input=addresses,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT + REACH_TIMEOUT * len(endpoints),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    reasons = done.stdout.splitlines()
    if "" in reasons:
        return ""
    if len(reasons) == 1:
        return reasons[0]
    named = [f"{endpoint}: {reason}" for endpoint, reason in zip(endpoints, reasons, strict=False)]
    return "; ".join(named) or "no answer"
