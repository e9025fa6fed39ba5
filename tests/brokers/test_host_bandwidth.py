"""``doctor --bandwidth`` on real brokers: the figure is within the known limit of the path, and nothing stays at the broker."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from running import running
from tcp_relay import relay

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.commands.cli import main
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.fleet.host_bandwidth import STREAMS

if TYPE_CHECKING:
    from pathlib import Path

RATE = 4_000_000  # B/s of each connection
LIKE = "name: p\nproducerRate: 1\nmessageSize: 64\ntestDuration: 1s\ndriver: {{name: {name}, {more}}}\nslo: {{loss: 0}}\n"


SHORT = """\
import runpy, sys
from pytest_loadtest.fleet import host_bandwidth

host_bandwidth.WARMUP = host_bandwidth.DURATION = 300_000_000
sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def hosts(folder: Path, more: str = "", *, short: bool = False) -> str:
    """Write a file with a host that is this machine, and notes the command lines that it is given.

    :param short: send for 0.3 s in place of 3 s: Pulsar needs ten CPU seconds for what comes in these.
    """
    python = folder / "python"
    program = sys.executable
    if short:
        (folder / "short.py").write_text(SHORT)
        program += f" {folder}/short.py"
    python.write_text(f'#!/bin/sh\necho "$@" >> {folder}/commands\nexec {program} "$@"\n')
    python.chmod(0o755)
    path = folder / "hosts.yaml"
    path.write_text(f"- {{name: here, command: env, python: {python}{more}}}")
    return str(path)


def measured(out: str) -> float:
    """Return the bit/s in the output."""
    match = re.search(r"sends at least (\S+) ([MG])bit/s", out)
    assert match is not None, out
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]]


@pytest.mark.skipif(
    mosquitto.find_mosquitto() is None, reason="no mosquitto here: apt-get install mosquitto"
)
def test_a_narrow_path_is_the_bandwidth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A relay passes on 4 MB/s of each of four connections. The password is in no command line."""
    (tmp_path / "like.yaml").write_text(
        LIKE.format(name="mqtt", more="username: me, password: s3cret")
    )
    request = brokers.BrokerRequest(kind="mqtt", mode="process", folder=tmp_path / "broker")
    with (
        running(request) as broker,
        relay(int(urlsplit(broker.facts.url).port or 0), rate=RATE) as port,
    ):
        path = hosts(tmp_path, ", bandwidth: 100Gbit/s")
        target = f"mqtt://127.0.0.1:{port}"
        assert (
            main(
                [
                    "doctor",
                    "--hosts",
                    path,
                    "--target",
                    target,
                    "--bandwidth",
                    "--like",
                    str(tmp_path / "like.yaml"),
                ]
            )
            == 1
        )
    out = capsys.readouterr().out
    limit = RATE * 8 * STREAMS
    assert limit / 20 < measured(out) <= limit * 1.02
    assert " of 100 Gbit/s" in out
    assert (
        "network and target carried less than half of its bandwidth, and the sender had CPU time to spare: "
        in out
    )
    commands = (tmp_path / "commands").read_text()
    assert " bandwidth " in commands
    assert "s3cret" not in commands + out


@pytest.mark.pulsar
@pytest.mark.skipif(
    java.find() is None, reason="no Java here: apt-get install default-jre-headless"
)
def test_nothing_stays_at_pulsar(
    pulsar_process: brokers.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The namespace is deleted, with its topic."""
    facts = pulsar_process.facts

    def namespaces() -> list[str]:
        found = list[str]()
        for tenant in json.load(
            urllib.request.urlopen(f"{facts.admin_url}/admin/v2/tenants", timeout=30)
        ):
            found += json.load(
                urllib.request.urlopen(
                    f"{facts.admin_url}/admin/v2/namespaces/{tenant}", timeout=30
                )
            )
        return found

    before = namespaces()
    command = [
        "doctor",
        "--hosts",
        hosts(tmp_path, short=True),
        "--target",
        facts.url,
        "--bandwidth",
    ]
    assert main(command) == 2
    assert (
        "--bandwidth removes its topic by the admin REST of Pulsar: write --admin-url"
        in capsys.readouterr().err
    )
    assert main([*command, "--admin-url", str(facts.admin_url)]) == 0
    assert measured(capsys.readouterr().out) > 0
    assert namespaces() == before
