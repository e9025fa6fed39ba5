"""ActiveMQ Artemis as a process, from Maven's jars.

It is a multi-threaded MQTT broker, unlike mosquitto (docs/decisions/017).

``embedded.Main`` runs it with one ``broker.xml``, without web console and
management. Artemis checks that file against its schema: at an unknown element or a
wrong value it does not start, and its error is reported.

With ``persistence-enabled: true`` in the profile's ``broker.settings``, Artemis writes
subscriptions and messages of QoS 1 and 2 to its journal, and syncs the journal before it
acknowledges. So a restart after SIGKILL restores them too.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from pytest_loadtest.brokers import java
from pytest_loadtest.brokers.base import BrokerFacts, BrokerRequest, refuse_managed
from pytest_loadtest.brokers.java import Jars, Java
from pytest_loadtest.brokers.process import Child
from pytest_loadtest.brokers.starting import (
    Progress,
    StartedBroker,
    on_free_ports,
    serves,
    wait_ready,
)
from pytest_loadtest.brokers.watchdog import remove_folder
from pytest_loadtest.drivers.mqtt.secured import artemis_listener, ports_of, with_listener
from pytest_loadtest.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


START_SECONDS = 60.0
CONFIGURATION: Final = "broker.xml"
MEMORY = ("-Xms256m", "-Xmx1g")
MANAGED = frozenset(
    {
        "acceptors",
        "ha-policy",
        "address-settings",
        "wildcard-addresses",
        "security-enabled",
        "journal-directory",
        "bindings-directory",
        "large-messages-directory",
        "paging-directory",
    }
)
ADDRESS = "address-setting."
ACCEPTOR = "acceptor."
# Parameters of an acceptor. The schema does not cover them, and Artemis ignores unknown names and
# invalid values without an error, so they are checked here. It also ignores receiveMaximum, which
# its manual documents, so that is rejected.
NUMBERS = frozenset(
    {
        "maximumPacketSize",
        "topicAliasMaximum",
        "serverKeepAlive",
        "defaultMaximumInFlightPublishMessages",
        "defaultMqttSessionExpiryInterval",
        "remotingThreads",
        "tcpSendBufferSize",
        "tcpReceiveBufferSize",
        "backlog",
    }
)
SWITCHES = frozenset(
    {"tcpNoDelay", "allowLinkStealing", "closeMqttConnectionOnPublishAuthorizationFailure"}
)
OURS: Final = {
    "persistence-enabled": "false",
    # The default, ASYNCIO, is used only if libaio is installed.
    "journal-type": "NIO",
    "jmx-management-enabled": "false",
    # By default Artemis blocks publishers when the disk is 90 % full.
    "max-disk-usage": "-1",
}
# Settings that affect results, with Artemis's defaults.
DECISIVE: Final = {
    "persistence-enabled": "true",
    "journal-type": "ASYNCIO",
    "journal-datasync": "true",
    "journal-sync-transactional": "true",
    "journal-sync-non-transactional": "true",
    "global-max-size": "half of the heap",
    "max-disk-usage": "90",
    "address-setting.max-size-messages": "-1",
    "address-setting.max-size-bytes": "-1",
    "address-setting.address-full-policy": "PAGE",
    "acceptor.defaultMaximumInFlightPublishMessages": "65535",
    "acceptor.tcpNoDelay": "true",
}
_BROKER: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
{core}{more}
    <security-enabled>false</security-enabled>
    <!-- MQTT's own syntax: nothing to convert, and a dot in a topic stays one -->
    <wildcard-addresses><delimiter>/</delimiter><any-words>#</any-words><single-word>+</single-word></wildcard-addresses>
    <acceptors>
{acceptors}
    </acceptors>
    <address-settings>
      <address-setting match="#">
{address}
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""


def start_artemis(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start Artemis, which is ready after some five seconds on an idle machine.

    :raises UnavailableError: no Java 17, or the jars are neither cached nor available.
    :raises UsageError: a setting that is chosen per run, or is not a setting of Artemis.
    :raises TargetError: it did not start; the error contains the last lines of its log.
    """
    version = request.version or JARS.version
    runtime = java.require("Artemis")
    jars = JARS.resolve(version, progress)
    return on_free_ports(
        ports_of(request.security),
        lambda ports: _launch(runtime, jars, ports, version, request, progress),
    )


def broker_xml(
    *,
    ports: Sequence[int],
    settings: Mapping[str, str],
    tls: Mapping[str, str] = MappingProxyType({}),
    more: str = "",
) -> str:
    """Return the text of ``broker.xml``.

    Our settings and the profile's, which replace ours with the same key.

    :param ports: one for each acceptor.
    :param settings: elements of ``core`` by their names; elements of the address
        setting, which applies to all addresses, by ``address-setting.NAME``;
        parameters of the MQTT acceptors by ``acceptor.NAME``.
    :param tls: parameters of the last acceptor.
    :param more: further elements of ``core``.
    :raises UsageError: a setting that is chosen per run, or is not an element or parameter.
    """
    refuse_managed("Artemis", settings, MANAGED)
    core = dict(OURS)
    address = dict[str, str]()
    parameters = dict[str, str]()
    for key, value in settings.items():
        if key.startswith(ACCEPTOR):
            parameters[key.removeprefix(ACCEPTOR)] = _parameter(key, value)
        elif not re.fullmatch(rf"({ADDRESS})?[a-z][a-z0-9-]*", key):
            remedy = (
                f"write an element of core (journal-datasync), {ADDRESS}ELEMENT or"
                f" {ACCEPTOR}PARAMETER"
            )
            raise UsageError(f"broker.settings: {key!r} is not a setting of Artemis: {remedy}")
        elif key.startswith(ADDRESS):
            address[key.removeprefix(ADDRESS)] = value
        else:
            core[key] = value
    acceptors = [_acceptor(port, parameters) for port in ports[:-1]]
    acceptors.append(_acceptor(ports[-1], {**parameters, **tls}))
    return _BROKER.format(
        core=_elements(core, 4),
        more=more,
        acceptors="\n".join(acceptors),
        address=_elements(address, 8),
    )


def _acceptor(port: int, parameters: Mapping[str, str]) -> str:
    options = ";".join(
        f"{key}={value}" for key, value in {"protocols": "MQTT", **parameters}.items()
    )
    return f'      <acceptor name="mqtt-{port}">tcp://127.0.0.1:{port}?{options}</acceptor>'


def _parameter(key: str, value: str) -> str:
    name = key.removeprefix(ACCEPTOR)
    if name not in NUMBERS | SWITCHES:
        raise UsageError(
            f"broker.settings: {key} is unknown: after {ACCEPTOR} write one of"
            f" {', '.join(sorted(NUMBERS | SWITCHES))}"
        )
    if not re.fullmatch("true|false" if name in SWITCHES else r"-?\d+", value):
        expected = "true or false" if name in SWITCHES else "a whole number"
        raise UsageError(
            f"broker.settings: {key}: {value!r} is not {expected}: Artemis needs {expected}"
        )
    return value


def _elements(values: Mapping[str, str], indent: int) -> str:
    return "\n".join(
        f"{'':{indent}}<{key}>{escape(value)}</{key}>" for key, value in values.items()
    )


def decisive_artemis_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that affect results, for the report.

    They are the defaults, ours, the memory and the profile's.
    """
    ours = {key: value for key, value in OURS.items() if key in DECISIVE}
    # The heap decides how much Artemis keeps in memory before it
    # pages messages to disk (global-max-size).
    return DECISIVE | ours | {"memory": " ".join(MEMORY)} | dict(settings)


def artemis_command(runtime: Java, jars: Path, data: Path, **logs: str) -> list[str]:
    """Return the command of a broker that reads ``data/etc/broker.xml``.

    It keeps its data below ``data``.

    :param logs: logger → level.
    """
    properties = {
        "java.io.tmpdir": str(data / "tmp"),
        "java.net.preferIPv4Stack": "true",
        "org.slf4j.simpleLogger.defaultLogLevel": "warn",
        **{f"org.slf4j.simpleLogger.log.{logger}": level for logger, level in logs.items()},
        # Prevents that Artemis reads the machine's /config folder.
        "broker.properties": f"{data}/tmp/",
    }
    jvm = [
        *MEMORY,
        "-XX:+UseG1GC",
        "-XX:+ExitOnOutOfMemoryError",
        *(f"-D{key}={value}" for key, value in properties.items()),
    ]
    return [
        runtime.path,
        "-cp",
        f"{jars}/*",
        *jvm,
        "org.apache.activemq.artemis.core.server.embedded.Main",
        str(data),
    ]


def _launch(
    runtime: Java,
    jars: Path,
    ports: tuple[int, ...],
    version: str,
    request: BrokerRequest,
    progress: Progress,
) -> StartedBroker:
    folder = request.folder.resolve()
    name = f"Artemis {version}"
    data = make_folders(folder)
    secured = artemis_listener(data / "security", request, folder)
    text = broker_xml(ports=ports, settings=request.settings, tls=secured.lines if secured else {})
    (folder / CONFIGURATION).write_text(text, encoding="utf-8")
    progress(f"starting {name}")
    child = Child(artemis_command(runtime, jars, data), folder=folder, ports=ports)
    wait = partial(wait_ready, child, partial(serves, ports), name, START_SECONDS, progress)
    progress(f"{name} ready in {wait():.0f} s")
    facts = BrokerFacts(
        name="Artemis",
        version=version,
        mode="process",
        url=f"mqtt://127.0.0.1:{ports[0]}",
        settings=decisive_artemis_settings(request.settings),
    )
    return StartedBroker(with_listener(facts, request, secured, ports[-1:]), child, wait)


def make_folders(folder: Path) -> Path:
    """Make a broker's folders; return the folder of its data."""
    data = folder / "data"
    # The data of a broker that was killed together with its watchdog would still be there.
    remove_folder(str(data))
    (data / "tmp").mkdir(parents=True)
    # The folder with configuration and log is kept after the run; the data folder is deleted.
    (data / "etc").symlink_to(folder, target_is_directory=True)
    return data


JARS: Final = Jars(
    "Artemis", "2.42.0", "44 jars, 16 MB", Path(__file__).with_name("artemis-pom.xml")
)
