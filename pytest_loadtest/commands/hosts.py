"""``python -m pytest_loadtest doctor --hosts FILE``: the hosts of ``pytest --load-hosts``, and the remedy for each that cannot be used."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_loadtest.brokers.url import parse_endpoints
from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_bandwidth import Bandwidth, BandwidthRequest
from pytest_loadtest.fleet.host_process import REACH_TIMEOUT, host_command
from pytest_loadtest.fleet.hosts import PROBE_TIMEOUT, HostFacts, hosts_of, machine_of, query_hosts
from pytest_loadtest.kinds.registry import kinds, load_reference
from pytest_loadtest.metrics.clocks import ClockExchange, ClockFit, fit_clock
from pytest_loadtest.values.addresses import check_address, masked
from pytest_loadtest.values.quantities import (
    format_bits,
    format_count,
    format_duration,
    format_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_loadtest.brokers.url import Endpoint
    from pytest_loadtest.kinds import DriverKind
    from pytest_loadtest.profile.client import ClientSettings
    from pytest_loadtest.profile.hosts import HostEntry

EXCHANGES: Final = 100
FILES_NEEDED: Final = 4096


BANDWIDTH_TIMEOUT: Final = 120
"""s for a host to measure its bandwidth: to connect, two rounds with their drains, and to delete its topic."""
FAR_BELOW: Final = 0.5
BUSY: Final = 0.9
"""Cores of the sending process. Python cannot use more of its own."""


def check_hosts(
    option: str,
    target: str | None,
    tell: Callable[[str], None],
    probe: BandwidthRequest | None = None,
) -> bool:
    """Print a table of the hosts. :param option: as of ``--load-hosts``. :param target: URL of a broker. :returns: True if all can be used.

    :param probe: measure the bandwidth from each host in turn; None: do not.
    :raises UsageError: the hosts cannot be read, or ``target`` is not the address of a broker.
    """
    endpoints = endpoints_of(target) if target is not None else ()
    entries = hosts_of(option, Path.cwd())
    answers = query_hosts(entries)
    with ThreadPoolExecutor(len(entries)) as pool:
        rows = list(
            pool.map(lambda entry: _row(entry, answers[entry.name], target, endpoints), entries)
        )
    width = max(len(entry.name) for entry in entries)
    usable = True
    for entry, (facts, found) in zip(entries, rows, strict=True):
        # One host at a time: together they would measure the target.
        text, notes, problems = (
            _bandwidth(entry, probe) if probe is not None and not found else ("", [], found)
        )
        tell(
            f"{'--' if problems else 'ok'}  {entry.name:<{width}}  {f'{facts}{text}' or 'cannot be used'}"
        )
        for line in (*problems, *notes):
            tell(f"{'':{width + 6}}{line}")
        usable = usable and not problems
    return usable


def bandwidth_request(
    target: str, admin_url: str | None, settings: ClientSettings | None
) -> BandwidthRequest:
    """Return the request to measure the bandwidth to a target. :param settings: the ``driver`` section of a profile; None: the defaults.

    :raises UsageError: the settings are of another kind, nothing is acknowledged, or the topic could not be removed.
    """
    kind = _kind_of_target(target)
    settings = load_reference(kind, kind.settings)() if settings is None else settings
    if settings.name != kind.name:
        raise UsageError(
            f"--like: the driver {settings.name!r} of the profile cannot connect to {masked(target)}: name a profile for {kind.label}"
        )
    if settings.unacknowledged is not None:
        reason, remedy = settings.unacknowledged
        raise UsageError(
            f"--bandwidth counts acknowledged bytes, and there are none {reason}: {remedy}"
        )
    if admin_url is None and any(scheme.admin for scheme in kind.schemes.values()):
        raise UsageError(
            f"--bandwidth removes its topic by the admin REST of {kind.label}: write --admin-url http://HOST:PORT"
        )
    check_address(admin_url, "--admin-url")
    client = str(
        settings.client or ("native" if "native" in kind.clients else next(iter(kind.clients)))
    )
    return BandwidthRequest(
        target=TargetAddress(url=target, admin_url=admin_url), settings=settings, client=client
    )


def _bandwidth(entry: HostEntry, probe: BandwidthRequest) -> tuple[str, list[str], list[str]]:
    """Measure the bandwidth of a host. :returns: the figure as text, notes, and problems."""
    chooses = probe.settings.kind.clients[probe.client].source_addresses
    request = replace(probe, sources=entry.source_addresses if chooses else ())
    command = host_command(entry.command, entry.python, entry.directory, "bandwidth")
    try:
        done = subprocess.run(
            command,
            input=f"{request.encode()}\n",
            capture_output=True,
            text=True,
            timeout=BANDWIDTH_TIMEOUT,
            check=False,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError) as error:
        return "", [], [f"its bandwidth cannot be measured over {entry.command}: {error}"]
    except (IndexError, ValueError):
        last = done.stderr.strip().rpartition("\n")[2]
        return (
            "",
            [],
            [
                f"its bandwidth cannot be measured: the process there ended with status {done.returncode}: {last}"
            ],
        )
    if "problem" in answer:
        return "", [], [f"its bandwidth cannot be measured: {answer['problem']}"]
    return judge_bandwidth(Bandwidth(**answer), entry.bits_per_second)


def judge_bandwidth(
    measured: Bandwidth, declared: float | None
) -> tuple[str, list[str], list[str]]:
    """Compare a bandwidth with the declared one, bit/s. :returns: both as text, notes, and problems."""
    rate, busy = measured.bits_per_second, measured.cpu >= BUSY
    of = "" if declared is None else f" of {format_bits(declared)}"
    text = f"; sends at least {format_bits(rate)}{of}"
    if declared is not None and rate > declared:
        return (
            text,
            [
                f"it carries more than its bandwidth says: correct {format_bits(declared)}, or plans reject what it can carry"
            ],
            [],
        )
    if busy:
        return (
            text,
            [
                f"the sending process used {measured.cpu:.1f} cores: the network may carry more than one process sends"
            ],
            [],
        )
    if declared is not None and rate < declared * FAR_BELOW:
        remedy = (
            "if another host reaches more, correct its bandwidth or its network; "
            "else a faster target, or a better path to it, is needed"
        )
        return (
            text,
            [],
            [
                f"network and target carried less than half of its bandwidth, and the sender had CPU time to spare: {remedy}"
            ],
        )
    return text, [], []


def endpoints_of(target: str) -> Sequence[Endpoint]:
    """Return the endpoints of a broker's address, whatever its kind.

    :raises UsageError: it is not an address, or has a user or a password.
    """
    return parse_endpoints(_kind_of_target(target).name, target)


def _kind_of_target(target: str) -> DriverKind:
    by_scheme = {scheme: kind for kind in kinds().values() for scheme in kind.target_schemes}
    scheme, separator, _ = target.partition("://")
    if not separator or scheme not in by_scheme:
        examples = ", ".join(f"{name}://HOST:PORT" for name in by_scheme)
        raise UsageError(
            f"--target {masked(target)} is not the address of a broker: write {examples}"
        )
    return by_scheme[scheme]


def _row(
    entry: HostEntry, answer: HostFacts | str, target: str | None, endpoints: Sequence[Endpoint]
) -> tuple[str, list[str]]:
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
        problems.append(
            f"a process may open {answer.files} files: raise the hard limit (ulimit -Hn) to {FILES_NEEDED} or more"
        )
    for source in (entry.source_addresses or (None,)) if endpoints else ():
        if reason := _reach(entry, endpoints, source):
            origin = "" if source is None else f" from {source}"
            problems.append(
                f"it cannot connect to {target}{origin}: {reason}: check address and firewall"
            )
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
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


def _reach(entry: HostEntry, endpoints: Sequence[Endpoint], source: str | None) -> str:
    """Return why a host can connect to none of the endpoints; empty if it can connect to one. :param source: None: from any address."""
    command = host_command(entry.command, entry.python, entry.directory, "reach")
    addresses = "".join(f"{endpoint} {source or ''}\n" for endpoint in endpoints)
    timeout = PROBE_TIMEOUT + REACH_TIMEOUT * len(endpoints)
    try:
        done = subprocess.run(
            command, input=addresses, capture_output=True, text=True, timeout=timeout, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    reasons = done.stdout.splitlines()
    if "" in reasons:
        return ""
    named = [f"{endpoint}: {reason}" for endpoint, reason in zip(endpoints, reasons, strict=False)]
    return reasons[0] if len(reasons) == 1 else "; ".join(named) or "no answer"
