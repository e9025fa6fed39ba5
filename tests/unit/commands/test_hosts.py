"""``doctor --hosts``: the table, with processes of this machine as hosts."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from pytest_loadtest.commands.cli import main
from pytest_loadtest.commands.hosts import (
    bandwidth_request,
    check_hosts,
    endpoints_of,
    judge_bandwidth,
    measure_clock,
)
from pytest_loadtest.fleet.host_bandwidth import Bandwidth
from pytest_loadtest.profile.hosts import HostEntry


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    """A file with a host that is this machine."""
    path = tmp_path / "hosts.yaml"
    path.write_text(f"- {{name: here, command: env, python: {sys.executable}}}")
    return str(path)


def test_a_host_that_can_be_used_has_one_line(hosts: str) -> None:
    """With what it has, and how well its clock is known."""
    lines: list[str] = []
    assert check_hosts(hosts, None, lines.append)
    (line,) = lines
    assert line.startswith("ok  here  Python 3.")
    assert "clock known to" in line


def test_a_host_that_cannot_be_used_has_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with status 1."""
    path = tmp_path / "hosts.yaml"
    path.write_text("- {name: gone, command: no-such-command}")
    assert main(["doctor", "--hosts", str(path)]) == 1
    assert "--  gone  cannot be used\n" in capsys.readouterr().out


def test_a_broker_that_a_host_cannot_reach_is_a_problem(hosts: str) -> None:
    """Nobody listens at the port, then somebody does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_hosts(hosts, f"mqtt://127.0.0.1:{port}", lambda _: None)
    lines: list[str] = []
    assert not check_hosts(hosts, f"mqtt://127.0.0.1:{port}", lines.append)
    assert (
        f"it cannot connect to mqtt://127.0.0.1:{port}: Connection refused:"
        " check address and firewall" in lines[1]
    )


def test_each_source_address_of_a_host_must_reach_the_broker(tmp_path: Path) -> None:
    """The broker listens at an address of IPv6, which those of IPv4 cannot reach.

    Then at one of IPv4.
    """
    path = tmp_path / "hosts.yaml"
    path.write_text(
        f"- {{name: here, command: env, python: {sys.executable}, sourceAddresses: [127.0.0.5,"
        f" 127.0.0.6]}}"
    )
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert check_hosts(str(path), f"mqtt://127.0.0.1:{server.getsockname()[1]}", lines.append)
        peers = [server.accept() for _ in range(2)]
        assert [address[0] for _, address in peers] == ["127.0.0.5", "127.0.0.6"]
        for peer, _ in peers:
            peer.close()
    assert "ports from 2 source addresses; clock" in lines[0]
    lines.clear()
    assert not check_hosts(str(path), "mqtt://[::1]:1", lines.append)
    assert [line.strip().partition(" is known")[0] for line in lines[1:]] == [
        f"it cannot connect to mqtt://[::1]:1 from 127.0.0.{n}: no IPv4 address of ::1"
        for n in (5, 6)
    ]


def test_each_endpoint_of_an_address_is_tried(hosts: str) -> None:
    """A host that reaches one of several brokers can be used.

    If it reaches none, each has its reason.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_hosts(hosts, f"pulsar://127.0.0.1:1,127.0.0.1:{port}", lambda _: None)
    lines: list[str] = []
    assert not check_hosts(hosts, "pulsar://127.0.0.1:1,127.0.0.1:2", lines.append)
    assert "127.0.0.1:1: Connection refused; 127.0.0.1:2: Connection refused: check" in lines[1]


def test_an_address_without_a_port_has_the_default_port() -> None:
    """As with ``--load-target``."""
    assert [endpoint.port for endpoint in endpoints_of("mqtt://broker")] == [1883]
    assert [endpoint.port for endpoint in endpoints_of("pulsar+ssl://broker")] == [6651]


@pytest.mark.parametrize(
    "target", ["broker:6650", "http://broker:8080", "mqtt://", "mqtt://me:secret@broker"]
)
def test_a_target_that_is_not_an_address_is_a_usage_error(
    hosts: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any host is queried, and without a password in the message."""
    assert main(["doctor", "--hosts", hosts, "--target", target]) == 2
    shown = capsys.readouterr()
    assert "target" in shown.err
    assert "secret" not in shown.err + shown.out


def test_the_clock_of_this_machine_has_no_offset() -> None:
    """Within the stated error."""
    fit = measure_clock(HostEntry(name="here", command="env", python=sys.executable))
    assert abs(fit.line.offset) <= fit.error
    assert fit.exchanges == 99


def test_a_command_that_answers_nothing_is_an_error(tmp_path: Path) -> None:
    """It ends before the first answer."""
    quiet = tmp_path / "python"
    quiet.write_text("#!/bin/sh\nexit 0\n")
    quiet.chmod(0o755)
    with pytest.raises((ValueError, OSError)):
        measure_clock(HostEntry(name="quiet", command="env", python=str(quiet)))


@pytest.mark.parametrize(
    ("rate", "cpu", "declared", "text", "note", "problem"),
    [
        (9e9, 0.5, None, "; sends at least 9.00 Gbit/s", "", ""),
        (9e9, 0.5, 10e9, "; sends at least 9.00 Gbit/s of 10.0 Gbit/s", "", ""),
        (9e9, 0.5, 1e9, "of 1.00 Gbit/s", "it carries more than its bandwidth says: correct 1.00 Gbit/s, or plans", ""),
        (4e9, 0.5, 10e9, "of 10.0 Gbit/s", "", "carried less than half of its bandwidth, and the sender had CPU time to spare: if another host"),
        (4e9, 0.95, 10e9, "of 10.0 Gbit/s", "the sending process used 0.9 cores: the network may carry more", ""),
    ],
)  # fmt: skip
def test_a_bandwidth_is_compared_with_the_declared_one(
    rate: float, cpu: float, declared: float | None, text: str, note: str, problem: str
) -> None:
    """Far below it is a problem, unless the sender was the limit: then the network is not known."""
    row = judge_bandwidth(Bandwidth(bits_per_second=rate, cpu=cpu), declared)
    assert text in row.text
    assert [bool(row.notes), bool(row.problems)] == [bool(note), bool(problem)]
    assert note in "".join(row.notes) and problem in "".join(row.problems)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bandwidth"], "needs --hosts and --target: add --hosts FILE --target URL"),
        (["--hosts", "h.yaml", "--bandwidth"], "add --hosts FILE --target URL"),
        (
            ["--hosts", "h.yaml", "--admin-url", "http://b:8080"],
            "--admin-url and --like are for --bandwidth",
        ),
        (
            ["--hosts", "h.yaml", "--target", "mqtt://b", "--bandwidth", "--like", "qos0.yaml"],
            "there are none at QoS 0: use qos: 1",
        ),
        (
            ["--hosts", "h.yaml", "--target", "pulsar://b", "--bandwidth", "--like", "qos0.yaml"],
            "name a profile for Pulsar",
        ),
        (
            ["--hosts", "h.yaml", "--target", "pulsar://b", "--bandwidth"],
            "write --admin-url http://HOST:PORT",
        ),
        (
            [
                "--hosts",
                "h.yaml",
                "--target",
                "pulsar://b",
                "--bandwidth",
                "--admin-url",
                "http://me:s3cret@b",
            ],
            "admin URL http://***@b",
        ),
    ],
)
def test_a_bandwidth_that_cannot_be_measured_is_a_usage_error(
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before any host is queried."""
    text = (
        "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\n"
        "driver: {name: mqtt, qos: 0}\nslo: {loss: 0}\n"
    )
    (tmp_path / "qos0.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", *options]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "s3cret" not in shown


def test_a_process_that_measures_nothing_is_a_problem(tmp_path: Path) -> None:
    """Its last words are shown."""
    broken = tmp_path / "python"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *" bandwidth "*) echo killed >&2; exit 137;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    broken.chmod(0o755)
    path = tmp_path / "hosts.yaml"
    path.write_text(f"- {{name: here, command: env, python: {broken}}}")
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"mqtt://127.0.0.1:{server.getsockname()[1]}"
        assert not check_hosts(
            str(path), target, lines.append, bandwidth_request(target, None, None)
        )
    assert (
        "its bandwidth cannot be measured: the process there ended with status 137: killed"
        in lines[1]
    )
