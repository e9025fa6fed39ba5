"""``--load-hosts`` as workers of xdist: what the option may say, and what is asked of each host before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import execnet
import pytest

from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet.hosts import (
    host_commands,
    host_shares,
    hosts_of,
    probe_hosts,
    worker_specs,
)
from pytest_loadtest.profile.hosts import HostEntry


def test_names_that_ssh_knows_need_no_file(tmp_path: Path) -> None:
    """With a number of workers, and a user."""
    one, two = hosts_of("build1,4*ci@build2", tmp_path)
    assert (one.name, one.command, one.workers) == ("build1", "ssh build1", 1)
    assert (two.name, two.command, two.workers) == ("build2", "ssh ci@build2", 4)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """… and no name of a host."""
    with pytest.raises(UsageError, match=r"--load-hosts hosts.yaml: .*hosts.yaml is not a file"):
        hosts_of("hosts.yaml", tmp_path)


def test_a_file_that_is_not_utf_8_is_an_error_with_the_place(tmp_path: Path) -> None:
    """A file that cannot be read is one, too."""
    file = tmp_path / "hosts.yaml"
    file.write_bytes(b"- {name: m\xfcnchen}\n")
    with pytest.raises(
        UsageError, match=r"hosts\.yaml:1:11: byte 0xfc is not UTF-8 \(save the file as UTF-8\)$"
    ):
        hosts_of("hosts.yaml", tmp_path)
    file.unlink()
    file.symlink_to("/proc/self/mem")
    with pytest.raises(UsageError, match=r"--load-hosts .*hosts\.yaml cannot be read: "):
        hosts_of("hosts.yaml", tmp_path)


def test_a_repeated_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"build1 is repeated: write it once, with its number of workers: 2\*build1",
    ):
        hosts_of("build1,ci@build1", tmp_path)


def test_each_worker_has_a_specification_that_execnet_reads(tmp_path: Path) -> None:
    """Local workers first; the command tells on which host a worker is."""
    tmp_path.joinpath("hosts.yaml").write_text(
        "- {name: h1, command: ssh h1, workers: 2, directory: /srv/load}"
    )
    entries = hosts_of("hosts.yaml", tmp_path)
    local, *remote = worker_specs(entries, 1)
    specs = [execnet.XSpec(spec) for spec in remote]
    assert local == "popen"
    assert [spec.id for spec in specs] == ["h1-1", "h1-2"]
    assert {host_commands(entries)[spec.python] for spec in specs} == {"h1"}


def test_a_host_tells_what_it_is() -> None:
    """This one, reached by a command that does nothing."""
    facts = probe_hosts([HostEntry(name="here", command="env", python=sys.executable)])["here"]
    assert facts.cores >= 1
    assert facts.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")


def test_a_command_that_splits_its_arguments_again_reaches_the_host(tmp_path: Path) -> None:
    """``ssh`` does: it joins them, and a shell of the host splits them."""
    like_ssh = """sh -c 'exec sh -c "$*"' ssh"""
    facts = probe_hosts(
        [HostEntry(name="here", command=like_ssh, python=sys.executable, directory=str(tmp_path))]
    )
    assert facts["here"].cores >= 1


@pytest.mark.parametrize(
    ("command", "python", "directory", "expected"),
    [
        (
            "no-such-command h1",
            "python3",
            None,
            "host h1: cannot run no-such-command: No such file or directory",
        ),
        (
            "false",
            "python3",
            None,
            "host h1: false ended with status 1: no error message: try false true",
        ),
        (
            "env",
            sys.executable,
            "/no/such/directory",
            "host h1: it has no directory /no/such/directory",
        ),
        ("env", "no-such-python", None, "name its Python by the full path"),
        ("env -i PYTHONPATH=", "python3", None, "lacks pytest-loadtest"),
    ],
)
def test_a_host_that_cannot_be_used_is_named_with_the_remedy(
    command: str, python: str, directory: str | None, expected: str, tmp_path: Path
) -> None:
    """All before xdist starts a worker."""
    if "PYTHONPATH" in command:  # a Python that has nothing installed
        bare = tmp_path / "python"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        bare.chmod(0o755)
        python = str(bare)
    with pytest.raises(UsageError) as raised:
        probe_hosts([HostEntry(name="h1", command=command, python=python, directory=directory)])
    assert expected in str(raised.value)


def test_other_versions_are_an_error_with_both(tmp_path: Path) -> None:
    """Messages between workers are objects of this package."""
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\n"
        'echo \'{"python": "3.9.1", "package": "0.0.1", "node": "n", "cores": 1, "memory": 1, "files": 1, "ports": 1}\'\n'
    )  # fmt: skip
    fake.chmod(0o755)
    with pytest.raises(UsageError, match=r"host h1: its Python is 3\.9\.1, the controller's is 3"):
        probe_hosts([HostEntry(name="h1", command="env", python=str(fake))])
    minor = ".".join(map(str, sys.version_info[:2]))
    fake.write_text(fake.read_text().replace("3.9.1", f"{minor}.99"))
    with pytest.raises(
        UsageError,
        match=r"host h1: its pytest-loadtest is 0\.0\.1, the controller's is .*: pip install pytest-loadtest==",
    ):
        probe_hosts([HostEntry(name="h1", command="env", python=str(fake))])


def test_an_address_that_a_host_does_not_have_is_an_error_with_its_remedy() -> None:
    """192.0.2.1 is for documentation (RFC 5737); each host has all of 127.0.0.0/8."""
    entry = HostEntry(
        name="h1", command="env", python=sys.executable, source_addresses=("127.0.0.5", "192.0.2.1")
    )
    with pytest.raises(
        UsageError,
        match=r"host h1: it cannot connect from 192\.0\.2\.1 \(Cannot assign requested address\): correct sourceA",
    ) as raised:
        probe_hosts([entry])
    assert "give the host the address: ip address add 192.0.2.1 dev DEVICE" in str(raised.value)


def test_each_source_address_of_a_host_has_its_ports() -> None:
    entries = [
        HostEntry(
            name="h1",
            command="env",
            python=sys.executable,
            source_addresses=("127.0.0.5", "127.0.0.6"),
        ),
        HostEntry(name="h2", command="env", python=sys.executable, bandwidth="1Gbit/s"),
    ]
    facts = probe_hosts(entries)
    two, one = host_shares(entries, facts, 0)
    assert (two.machine.ports, two.machine.source_ports) == (
        2 * facts["h1"].ports,
        facts["h1"].ports,
    )
    assert (one.machine.ports, one.sources, two.sources) == (
        facts["h2"].ports,
        (),
        ("127.0.0.5", "127.0.0.6"),
    )
    assert (one.machine.bandwidth, two.machine.bandwidth) == (1e9, None)
