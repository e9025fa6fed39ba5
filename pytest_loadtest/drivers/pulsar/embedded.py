"""pulsar-lite, a small stand-in for Pulsar from a wheel, for smoke runs.

Its figures are no evidence about Pulsar.

It has the client protocol, but no admin REST, and it ignores the settings of the real broker.
"""

from __future__ import annotations

from functools import partial
from importlib import metadata, util
from pathlib import Path

from pytest_loadtest.brokers.base import (
    BrokerFacts,
    BrokerRequest,
    UnavailableError,
    unapplied_settings,
)
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import (
    Progress,
    StartedBroker,
    on_free_ports,
    serves,
    wait_ready,
)

START_SECONDS = 20.0
REMEDY = "pip install 'pytest-loadtest[embedded]'"
# By default it serves metrics at 0.0.0.0:8080: to all hosts, and only one such broker could run.
CONFIG = "[metrics]\nenabled = false\n"


def start_pulsar_lite(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start pulsar-lite; it is ready within a second.

    :raises UnavailableError: it is not installed, or the profile
        asks for a version of the real Pulsar.
    :raises TargetError: it did not start; its output is in the error.
    """
    if request.version is not None:
        raise UnavailableError(f"pulsar-lite cannot stand in for Pulsar {request.version}")
    binary = find_binary()
    if binary is None:
        raise UnavailableError("pulsar-lite is not installed", REMEDY)
    if request.settings:
        progress(
            f"pulsar-lite does not apply broker.settings: {', '.join(sorted(request.settings))}"
        )
    return on_free_ports(1, lambda ports: _launch(binary, ports[0], request, progress))


def find_binary() -> str | None:
    """Return the path of the binary inside the installed wheel.

    The package is not imported, as that would import pulsar-client.
    """
    spec = util.find_spec("pulsar_lite")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "pulsar-lite"
    return str(binary) if binary.is_file() else None


def _launch(binary: str, port: int, request: BrokerRequest, progress: Progress) -> StartedBroker:
    folder = request.folder.resolve()
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    version = metadata.version("pulsar-lite")
    name = f"pulsar-lite {version}"
    progress(f"starting {name}: a stand-in, its figures are no evidence about Pulsar")
    config = data / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    where = ["--addr", f"127.0.0.1:{port}", "--db-path", str(data / "db")]
    command = [binary, "--config", str(config), *where, "--log-level", "warn"]
    child = Child(command, folder=folder, ports=(port,))
    wait = partial(wait_ready, child, partial(serves, (port,)), name, START_SECONDS, progress)
    wait()
    facts = BrokerFacts(
        name="pulsar-lite",
        version=version,
        mode="embedded",
        url=f"pulsar://127.0.0.1:{port}",
        settings={"admin REST": "none", **unapplied_settings(request.settings)},
        evidence=False,
    )
    return StartedBroker(facts, child, wait)
