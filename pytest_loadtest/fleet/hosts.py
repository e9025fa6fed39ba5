"""``--load-hosts``: reads the list of hosts, checks each host, and describes their workers to
pytest-xdist.

Called on the controller before xdist starts its workers. A host with another version of this
package or of Python is rejected.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import TYPE_CHECKING, Final

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.host_process import connect_command, host_command, host_facts
from pytest_loadtest.plan.hosts import CONTROLLER, HostShare
from pytest_loadtest.plan.scaling import Machine
from pytest_loadtest.profile.files import read_text
from pytest_loadtest.profile.hosts import HostEntry, read_hosts
from pytest_loadtest.values.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

PROBE_TIMEOUT: Final = 30
"""s for a host to answer its probe: a login, and a Python that starts on a busy host."""
_LISTED = re.compile(r"(?:(?P<workers>[1-9]\d*)\*)?(?P<name>[A-Za-z0-9][A-Za-z0-9_.@-]*)")


def hosts_of(option: str, folder: Path) -> tuple[HostEntry, ...]:
    """Read the option: a YAML file, or names of hosts for ``ssh``: ``build1,4*build2``, each with
    its number of workers.

    :param folder: the folder to which a relative file name is relative.
    :raises UsageError: the file is missing or invalid.
    """
    path = folder / option
    if path.is_file():
        return read_hosts(read_text(path, "--load-hosts"), option)
    entries = [_LISTED.fullmatch(word) for word in option.split(",")]
    if option.endswith((".yaml", ".yml")) or not all(entries):
        raise UsageError(
            f"--load-hosts {option}: {path} is not a file: write a YAML file of hosts, or names "
            "that ssh knows (4*build1,build2)"
        )
    hosts = tuple(
        HostEntry(
            name=entry["name"].rpartition("@")[2],
            command=f"ssh {entry['name']}",
            workers=int(entry["workers"] or 1),
        )
        for entry in entries
        if entry is not None
    )
    names = Counter(host.name for host in hosts)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise UsageError(
            f"--load-hosts {option}: {repeated[0]} is repeated: write it once, with its number of "
            f"workers: 2*{repeated[0]}"
        )
    return hosts


def host_commands(entries: Iterable[HostEntry]) -> dict[str, str]:
    """Return the host on which each ``python=`` of :func:`worker_specs` starts a worker."""
    return {connect_command(entry): entry.name for entry in entries}


def worker_specs(entries: Iterable[HostEntry], local: int) -> Sequence[str]:
    """Return the ``--tx`` of pytest-xdist for each worker.

    :param local: number of workers on this host, the first ones.
    """
    specs = ["popen"] * local
    for entry in entries:
        command = connect_command(entry)
        for number in range(1, entry.workers + 1):
            specs.append(f"popen//id={entry.name}-{number}//python={command}")
    return specs


@record
class HostFacts:
    """The facts that a host reports about itself.

    :param python: version of its Python.
    :param package: version of this package there.
    :param node: its own name.
    :param cores: cores that a worker may use. :param memory: bytes.

    :param files: hard limit of open files of a process.
    :param ports: number of ephemeral ports of one address.
    :param unusable: source addresses that no connection of this host can come from → the reason.
    :param missing: modules that a worker needs and its Python lacks.
    :param clock: equal for all processes with the same CLOCK_MONOTONIC.
    """

    python: str
    package: str
    node: str
    cores: int
    memory: int
    files: int
    ports: int
    unusable: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    clock: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(self.missing))  # a list in JSON


def host_shares(
    entries: Sequence[HostEntry], facts: Mapping[str, HostFacts], local: int
) -> tuple[HostShare, ...]:
    """Return the hosts with their parts of the workers.

    :param facts: by name of the host.
    :param local: number of workers on this host.
    """
    of = local + sum(entry.workers for entry in entries)
    shares = []
    if local:
        here = machine_of(HostFacts(**host_facts()))
        shares.append(HostShare(name=CONTROLLER, workers=local, of=of, machine=here))
    for entry in entries:
        shares.append(
            HostShare(
                name=entry.name,
                workers=entry.workers,
                of=of,
                machine=machine_of(facts[entry.name], entry),
                sources=entry.source_addresses,
            )
        )
    return tuple(shares)


def machine_of(facts: HostFacts, entry: HostEntry | None = None) -> Machine:
    """Return the resources of a host.

    :param entry: its entry in the file of hosts; None for this host.
    """
    unlimited = 1 << 30
    files = unlimited if facts.files < 0 else facts.files  # RLIM_INFINITY is -1
    addresses = 1 if entry is None else max(len(entry.source_addresses), 1)
    return Machine(
        cores=facts.cores,
        memory=facts.memory,
        files=files,
        ports=facts.ports * addresses,
        source_ports=facts.ports,
        bandwidth=None if entry is None else entry.bits_per_second,
    )


def probe_hosts(entries: Sequence[HostEntry]) -> dict[str, HostFacts]:
    """Query the facts of all hosts in parallel, and compare them with this host's.

    :raises UsageError: a host cannot be reached, lacks this package, or has other versions; names
        all such hosts.
    """
    facts = {}
    problems = []
    for name, answer in query_hosts(entries).items():
        if isinstance(answer, HostFacts):
            facts[name] = answer
        else:
            problems.append(f"host {name}: {answer}")
    if problems:
        raise UsageError("--load-hosts: " + "\n".join(problems))
    return facts


def query_hosts(entries: Sequence[HostEntry]) -> dict[str, HostFacts | str]:
    """Return the facts of each host by its name, or the problem of a host with its remedy."""
    names = [entry.name for entry in entries]
    with ThreadPoolExecutor(len(entries)) as pool:
        return dict(zip(names, pool.map(_query, entries), strict=True))


def _query(entry: HostEntry) -> HostFacts | str:
    facts = _probe(entry)
    if isinstance(facts, str):
        return facts
    return differing_host(facts) or facts


def differing_host(facts: HostFacts) -> str | None:
    """Explain why workers cannot run on a host next to this one, with the remedy; else None."""
    here = host_facts()
    # Micro versions of Python differ in no way that matters here; messages between workers are
    # pickled objects of this package.
    if facts.python.split(".")[:2] != here["python"].split(".")[:2]:
        return (
            f"its Python is {facts.python}, the controller's is {here['python']}: install the same "
            "minor version"
        )
    here_version = here["package"]
    if facts.package != here_version:
        return (
            f"its pytest-loadtest is {facts.package}, the controller's is {here_version}: pip "
            f"install pytest-loadtest=={here_version}"
        )
    if facts.unusable:
        addresses = ", ".join(f"{address} ({reason})" for address, reason in facts.unusable.items())
        add = f"ip address add {next(iter(facts.unusable))} dev DEVICE"
        return (
            f"it cannot connect from {addresses}: correct sourceAddresses, or give the host the "
            f"address: {add}"
        )
    if facts.missing:
        return (
            f"its Python lacks {', '.join(facts.missing)}: pip install them there (pip install "
            f"pytest-loadtest=={here['package']} does)"
        )
    return None


def _probe(entry: HostEntry) -> HostFacts | str:
    """Return the facts of a host, or the problem with its remedy."""
    command = host_command(entry, "probe", entry.source_addresses)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        return f"cannot run {command[0]}: {error.strerror}: correct its command"
    except subprocess.TimeoutExpired:
        return f"{entry.command} did not answer within {PROBE_TIMEOUT} s: try {entry.command} true"
    try:
        return HostFacts(**json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        return _why_no_facts(entry, done)


def _why_no_facts(entry: HostEntry, done: subprocess.CompletedProcess[str]) -> str:
    text = done.stderr.strip()
    last = text.splitlines()[-1] if text else "no error message"
    if "No module named" in last:
        return (
            f"{entry.python} there lacks pytest-loadtest ({last}): pip install it there, or name "
            "the Python that has it (python)"
        )
    if "FileNotFoundError" in last and entry.directory is not None:
        return (
            f"it has no directory {entry.directory}: create it with the test files in it, or "
            "correct directory"
        )
    if done.returncode == 127 or "not found" in last:
        return f"{last}: name its Python by the full path (python)"
    return f"{entry.command} ended with status {done.returncode}: {last}: try {entry.command} true"
