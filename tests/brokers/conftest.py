"""Fixtures of several modules: certificates of another authority, and the pytest sessions with OpenMessaging Benchmark's files.

The sessions run at the same time, on one Pulsar and one mosquitto.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy_aggregation
import pytest
from running import running
from waiting_for import gone

from pytest_loadtest import brokers
from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import ROLE
from pytest_loadtest.brokers.certificates import Authority, KeyPair
from pytest_loadtest.drivers.mqtt import mosquitto
from pytest_loadtest.drivers.pulsar.settings import STRICT, TICK
from pytest_loadtest.profile.sections import SecuritySection

SESSION_SECONDS = 280
INI = """\
[pytest]
addopts = --strict-markers -p no:randomly -p no:rerunfailures -p no:cov -p no:cacheprovider -p no:anyio -p no:asyncio -p numpy_aggregation
"""
SETTINGS = {
    "maxMessageSize": "1048576",
    STRICT: "true",
    TICK: "100",
}  # delayed messages are never early

SPECIAL_SETTINGS = {
    # Pings come soon, yet no client must be quick to answer.
    "keepAliveIntervalSeconds": "5",
    "brokerEntryMetadataInterceptors": (
        "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
    ),
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "journalSyncData": "true",
}

CLUSTER_SETTINGS = {
    # A killed broker's topics move when its session at ZooKeeper ends; the default of 30 s would only make the tests longer. With 4 s a
    # busy machine ended the sessions of living brokers.
    "metadataStoreSessionTimeoutMillis": "10000",
    "zkTimeout": "10000",
    # Otherwise three copies on three bookies need all three, whatever the ack quorum is.
    "bookkeeper_delayEnsembleChange": "true",
}


class OmbSession:
    """A project, and a pytest session in it that has begun.

    :param files: its files by path. :param options: its command line. :param facts: the broker's facts; tests find its REST in OMB_ADMIN.
    """

    def __init__(
        self, folder: Path, files: Mapping[str, str], options: list[str], facts: brokers.BrokerFacts
    ) -> None:
        self._folder, self.facts = folder, facts
        for name, text in {"pytest.ini": INI, **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="latin-1")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
        self._log = (folder / "out.txt").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-n0", "--durations=12", *options], cwd=folder, stdin=subprocess.DEVNULL,
            env=environment | numpy_aggregation.ENVIRONMENT | {"OMB_ADMIN": str(facts.admin_url), "OMB_URL": facts.url}, stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @cached_property
    def _documents(self) -> dict[str, dict[str, Any]]:
        status = self._process.wait(SESSION_SECONDS)
        self._log.seek(0)
        out = self._log.read()
        print(out)
        assert status == 0, out
        found = [
            json.loads(path.read_text(encoding="utf-8"))
            for path in self._folder.glob(".loadtest/**/results.json")
        ]
        found.sort(
            key=lambda document: bool(document["peak"])
        )  # the step of a search that found the peak
        return {document["profile"]["name"]: document for document in found}

    def document(self, name: str) -> dict[str, Any]:
        """Return the results of a workload by its name, after the session; every test passed."""
        return self._documents[name]

    def counts(self, name: str) -> dict[str, int]:
        """Return the counts of the results."""
        found: dict[str, int] = self.document(name)["measurements"]["counts"]
        return found

    def seen(self, name: str) -> Any:
        """Return the broker's facts that the body of a live test wrote, after the session."""
        assert self._documents
        return json.loads((self._folder / f"{name}.json").read_text(encoding="utf-8"))

    def end(self) -> None:
        """End the session, if it has not ended."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


@pytest.fixture(scope="package")
def pulsar_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A real Pulsar of the default version, for tests that leave it unchanged. The clients' namespace exists from the start; nothing of it
    is left at the end.
    """
    said: list[str] = []
    folder = tmp_path_factory.mktemp("pulsar") / "broker"
    asked = brokers.BrokerRequest(kind="pulsar", mode="process", folder=folder, settings=SETTINGS)
    broker = brokers.start(asked, said.append)
    assert any(line.startswith("Pulsar 4.2.4 ready in ") for line in said)
    with urllib.request.urlopen(
        f"{broker.facts.admin_url}/admin/v2/namespaces/public", timeout=30
    ) as answer:
        assert "public/default" in json.load(answer)
    yield broker
    broker.stop()
    assert gone(broker.facts.pid)
    assert not folder.exists()


@pytest.fixture(scope="package")
def special_pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """A real Pulsar for tests of properties that others would notice.

    It pings soon, puts its own metadata before each entry, and syncs its journal to the disk.
    """
    folder = tmp_path_factory.mktemp("special") / "broker"
    request = brokers.BrokerRequest(
        kind="pulsar", mode="process", folder=folder, settings=SPECIAL_SETTINGS
    )
    with running(request) as broker:
        yield broker


@pytest.fixture(scope="package")
def pulsar_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Two brokers and three bookies, which tests may kill.

    The brokers have the same keys, and each client shows its certificate to both.
    """
    folder = tmp_path_factory.mktemp("cluster") / "broker"
    request = brokers.BrokerRequest(
        kind="pulsar",
        mode="process",
        folder=folder,
        settings=CLUSTER_SETTINGS,
        security=SecuritySection(tls=True, auth="tls"),
        nodes={"broker": 2, "bookie": 3},
    )
    broker = brokers.start(request, print)
    assert broker.facts.settings["security"] == "TLS, tls authentication"
    pids = broker.facts.pids
    yield broker
    broker.stop()
    assert all(map(gone, (*pids, *broker.facts.pids)))
    assert not folder.exists()


@pytest.fixture(scope="package")
def omb_sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, OmbSession]]:
    """The sessions of all selected modules by name; each module's ``omb_sessions(kind, facts, names)`` returns files and options."""
    folder, sessions = tmp_path_factory.mktemp("omb"), dict[str, OmbSession]()
    selected = [item for item in request.session.items if isinstance(item, pytest.Function)]
    modules = {item.module.__name__: item.module for item in selected}
    names = {
        item.callspec.params["name"]
        for item in selected
        if "omb_sessions" in item.fixturenames and "name" in item.fixturenames
    }
    with ExitStack() as stack:
        for kind, there in (
            ("mqtt", mosquitto.find_mosquitto()),
            ("pulsar", java.find()),
        ):  # one session warms up while Pulsar starts
            if there is None:
                continue
            if kind == "pulsar":
                broker = request.getfixturevalue("pulsar_process")
            else:
                broker = brokers.start(
                    brokers.BrokerRequest(kind=kind, mode="process", folder=folder / kind),
                    lambda _: None,
                )
                stack.callback(broker.stop)
            for module in modules.values():
                describe = getattr(module, "omb_sessions", None)
                for name, (files, options) in (
                    describe(kind, broker.facts, names) if describe else {}
                ).items():
                    sessions[name] = OmbSession(folder / name, files, options, broker.facts)
                    stack.callback(sessions[name].end)
        yield sessions


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid certificates of an authority that the broker does not trust: ca.pem, client.pem, client-key.pem."""
    folder = tmp_path_factory.mktemp("stranger")
    authority = Authority("pytest-loadtest")
    authority.write(folder / "ca.pem")
    authority.client(KeyPair.below(folder, "client"), ROLE)
    return folder
