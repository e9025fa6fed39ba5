"""Driver files, OpenMessaging Benchmark's above all: their keys as keys of a profile's ``driver`` and ``target``.

Each key does here what it does there, or is named as not applied with the reason; a key that OMB does not have is an error. What a
file leaves out is as OMB's driver has it, where that bears on the load. Keys and defaults: the classes ``Pulsar*Config`` of
``driver-pulsar`` and ``Mqtt*Config`` of ``driver-mqtt5``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError

from pytest_loadtest.errors import ProfileError
from pytest_loadtest.profile.explain import did_you_mean, explain, shown
from pytest_loadtest.profile.secrets import shown_key
from pytest_loadtest.profile.sections import TargetSection
from pytest_loadtest.profile.settings import DRIVERS
from pytest_loadtest.profile.text import Document, Path, Place, read

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_CLASSES = {"PulsarBenchmarkDriver": "pulsar", "MqttBenchmarkDriver": "mqtt"}
_EXAMPLES = "io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver or …mqtt5.MqttBenchmarkDriver"
_TOP = ("name", "driverClass", "strictTuning")
_SAME = {
    # keys of the same name and meaning
    "pulsar": {
        "client": (
            "clientMemoryLimitMB", "ioThreads", "connectionsPerBroker", "maxConcurrentLookupRequests", "topicType", "persistence",
            "tlsAllowInsecureConnection", "tlsEnableHostnameVerification", "tlsTrustCertsFilePath",
        ),
        "producer": ("batchingEnabled", "batchingMaxPublishDelayMs", "batchingMaxBytes", "batchingMaxMessages", "blockIfQueueFull"),
        "consumer": ("receiverQueueSize", "subscriptionType"),
    },
    "mqtt": {"client": ("username", "password", "qos", "topicPrefix"), "consumer": ("receiveMaximum",)},
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "pulsar": {
        "ioThreads": 8, "connectionsPerBroker": 8, "maxConcurrentLookupRequests": 1000, "batchingMaxBytes": 1024**2,
        "batchingMaxMessages": 0, "maxPendingMessages": 0, "clientMemoryLimitMB": 256, "receiverQueueSize": 10_000,
        "tlsEnableHostnameVerification": False,
    },
    "mqtt": {"receiveMaximum": 256, "topicPrefix": "benchmark"},
}  # fmt: skip
_PLUGINS = {"AuthenticationToken": "token", "AuthenticationBasic": "basic", "AuthenticationTls": "tls", "AuthenticationOAuth2": "oauth2"}
_DATA = {
    "basic": {"userId": "userId", "password": "password"},
    "oauth2": {key: key for key in ("issuerUrl", "privateKey", "audience", "scope")},
    "tls": {"tlsCertFile": "certFile", "tlsKeyFile": "keyFile", "certFile": "certFile", "keyFile": "keyFile"},
}


class OmbDriver(NamedTuple):
    """What a driver file says, in the words of a profile.

    :param driver: keys of ``driver``, ``name`` among them. :param target: keys of ``target``.
    :param not_applied: keys of the file, with their section, that do nothing here → why.
    """

    driver: dict[str, Any]
    target: dict[str, Any]
    not_applied: dict[str, str]


def read_driver(text: str, source: str) -> OmbDriver:
    """Read a driver file of OMB, or one that holds a profile's ``driver`` section, with or without that word above it.

    :param text: YAML. :param source: the file as the user named it.
    :raises ProfileError: with every problem.
    """
    document = read(text, empty=True)
    out = _Out(document)
    if document.value is not None and _own(document):
        out.take_own()
        out.validate()
    elif document.value is not None and (kind := _kind(document)):
        out.take(kind)
        out.validate()
    if document.problems:
        raise ProfileError(source, tuple(sorted(document.problems, key=lambda problem: (problem.line, problem.column))))
    return OmbDriver(out.keys["driver"], out.keys["target"], out.not_applied)


def _own(document: Document) -> bool:
    return "driverClass" not in document.value and ("driver" in document.value or document.value.get("name") in DRIVERS)


def _kind(document: Document) -> str | None:
    given = document.value.get("driverClass")
    kind = _CLASSES.get(given.rpartition(".")[2]) if isinstance(given, str) else None
    if given is None:
        document.problems.append(document.problem((), "driverClass is missing: this is no driver file", f"write {_EXAMPLES}"))
    elif kind is None:
        message = f"driverClass: {given} is no driver that can be run here"
        document.problems.append(document.problem(("driverClass",), message, f"write {_EXAMPLES}"))
    return kind


class _Out:
    """Takes the file's keys one by one; what is wrong goes to the file's problems."""

    def __init__(self, document: Document) -> None:
        self.document, self.not_applied = document, dict[str, str]()
        self.keys: dict[str, dict[str, Any]] = {"driver": {}, "target": {}}
        self._made = Document(value=self.keys, values={path: Place(1, 1) for path in ((), ("driver",), ("target",))})

    def set(self, section: str, key: str, value: Any, at: Path) -> None:
        """Give the profile's ``section.key`` this value, which stands at ``at`` in the driver file."""
        self.keys[section][key] = value
        for theirs, ours in ((self.document.values, self._made.values), (self.document.keys, self._made.keys)):
            ours |= {(section, key, *found[len(at) :]): place for found, place in theirs.items() if found[: len(at)] == at}

    def refuse(self, at: Path, message: str, suggestion: str = "", *, at_key: bool = False) -> None:
        self.document.problems.append(self.document.problem(at, message, suggestion, at_key=at_key))

    def take(self, kind: str) -> None:
        """Everything that the file says, then what OMB adds to it."""
        self.keys["driver"]["name"] = kind
        rules = {key: rule for key, rule in _RULES.items() if key.startswith(f"{kind}.")}
        sections = _SAME[kind].keys() | {key.split(".")[1] for key in rules}
        for section, keys in self.document.value.items():
            if section in sections and isinstance(keys, dict):
                known = [*_SAME[kind].get(section, ()), *(key.split(".")[2] for key in rules if key.split(".")[1] == section)]
                for key, value in keys.items():
                    self._key(kind, section, key, value, known)
            elif section in sections and keys is not None:
                self.refuse((section,), f"{section} is no mapping")
            elif section not in (*_TOP, *sections):
                near = did_you_mean(section, [*_TOP, *sorted(sections)])
                self.refuse((section,), f"unknown key {shown_key(section)!r}", near, at_key=True)
        if "strictTuning" in self.document.value:
            self.set("driver", "strictTuning", self.document.value["strictTuning"], ("strictTuning",))
        self.keys["driver"] |= {key: value for key, value in _DEFAULTS[kind].items() if key not in self.keys["driver"]}

    def take_own(self) -> None:
        """A profile's own section, and its target where the file has both."""
        flat = "driver" not in self.document.value
        sections = {"driver": ((), self.document.value)} if flat else {key: ((key,), keys) for key, keys in self.document.value.items()}
        for section, (at, keys) in sections.items():
            if section not in self.keys:
                self.refuse(at, f"unknown key {shown_key(section)!r}", did_you_mean(section, self.keys), at_key=True)
            elif not isinstance(keys, dict):
                self.refuse(at, f"{section} is no mapping")
            else:
                for key, value in keys.items():
                    if value is not None:
                        self.set(section, key, value, (*at, key))
        if self.keys["driver"].get("name") not in DRIVERS:
            self.refuse(("driver",), "driver.name is missing or unknown", f"known: {', '.join(DRIVERS)}")

    def _key(self, kind: str, section: str, key: str, value: Any, known: list[str]) -> None:
        at: Path = (section, key)
        if key not in known:
            self.refuse(at, f"unknown key {shown_key(key)!r}", did_you_mean(key, known), at_key=True)
        elif value is None or at in self.document.broken:
            return
        elif key in _SAME[kind].get(section, ()):
            self.set("driver", key, value, at)
        else:
            _RULES[f"{kind}.{section}.{key}"](self, value, at)

    def validate(self) -> None:
        """What the profile would refuse, at its place in the file."""
        if self.keys["driver"].get("name") not in DRIVERS:
            return
        models = {"driver": DRIVERS[self.keys["driver"]["name"]]} | ({"target": TargetSection} if self.keys["target"] else {})
        for section, model in models.items():
            try:
                model.model_validate(self.keys[section], context={"units": "named"}, by_alias=True, by_name=False)
            except ValidationError as error:
                for details in error.errors(include_url=False):
                    details["loc"] = (section, *details["loc"])
                    if details["type"] != "default_factory_not_called":
                        self.document.problems.append(explain(details, self._made))


def _service_url(out: _Out, value: Any, at: Path) -> None:
    out.set("target", "url", value, at)


def _http_url(out: _Out, value: Any, at: Path) -> None:
    out.set("target", "adminUrl", value, at)


def _server_uri(out: _Out, value: Any, at: Path) -> None:
    """OMB ignores the scheme, and takes port 80 where none is given."""
    url = urlsplit(value if "://" in str(value) else f"tcp://{value}")
    scheme = "mqtts" if url.scheme in ("ssl", "tls", "mqtts") else "mqtt"
    out.set("target", "url", f"{scheme}://{url.netloc}", at)
    if ":" not in url.netloc:
        out.not_applied["client.serverUri"] = "without a port OMB connects to 80, and this run to MQTT's own"


def _namespace(out: _Out, value: Any, at: Path) -> None:
    parts = str(value).split("/")
    if len(parts) == 3:  # tenant/cluster/namespace, as Pulsar 1 had it
        out.not_applied["client.namespacePrefix"] = f"the cluster in {value}: namespaces have none any more"
        value = f"{parts[0]}/{parts[2]}"
    out.set("driver", "namespacePrefix", value, at)


def _nothing(reason: str) -> Callable[[_Out, Any, Path], None]:
    def note(out: _Out, value: Any, at: Path) -> None:
        out.not_applied[".".join(map(str, at))] = f"{shown(value)}: {reason}"

    return note


def _authentication(out: _Out, value: Any, at: Path) -> None:
    """``{plugin: a Java class, data: its parameters}``."""
    if not isinstance(value, dict) or not value.get("plugin"):
        return
    plugin = _PLUGINS.get(str(value["plugin"]).rpartition(".")[2])
    if plugin is None:
        said = str(value["plugin"])
        named = said if re.fullmatch(r"([a-z]+\.)+[A-Z][A-Za-z]*|\w*Authentication\w*", said) else "the value"  # the token itself, perhaps
        out.refuse((*at, "plugin"), f"authentication.plugin: {named} is not known", f"known: {', '.join(_PLUGINS)}")
        return
    try:
        keys = _credentials(plugin, str(value.get("data") or ""))
    except ValueError as error:
        out.refuse((*at, "data") if "data" in value else at, f"authentication.data: {error}")
        return
    out.set("driver", "authentication", {"plugin": plugin, **keys}, at)


def _credentials(plugin: str, data: str) -> Mapping[str, str]:
    """Pulsar's own spellings of a plugin's parameters.

    :raises ValueError: they cannot be read.
    """
    if plugin == "token":
        word, _, rest = data.partition(":")
        if word == "file":
            return {"tokenFile": rest.removeprefix("//")}
        return {"token": rest if word == "token" else data}
    if data.startswith("{"):
        try:
            pairs = {str(key): str(value) for key, value in json.loads(data).items()}
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON: {error.msg}") from None
    else:
        pairs = dict(part.split(":", 1) for part in data.split(",") if ":" in part)
    names = _DATA[plugin]
    found = {names.get(key, key): value.removeprefix("file://") for key, value in pairs.items()}
    known = list(dict.fromkeys(names.values()))
    unknown = [shown_key(key, below=True) for key in sorted(found.keys() - set(known) - {"type"})]  # any may be the password
    if unknown or not found:
        raise ValueError(f"wants {', '.join(known)}" + (f"; {', '.join(unknown)} is not known" if unknown else ""))
    return {key: value for key, value in found.items() if key in known}


def _clean_session(out: _Out, value: Any, at: Path) -> None:
    out.set("driver", "cleanStart", value, at)


def _session_expiry(out: _Out, value: Any, at: Path) -> None:
    """Seconds, and only where sessions outlive their connection."""
    clean = (out.document.value.get("consumer") or {}).get("cleanSession", True)
    if clean is not False:
        out.not_applied[".".join(map(str, at))] = f"{shown(value)}: OMB uses it with cleanSession: false only"
    elif isinstance(value, int):
        out.set("driver", "sessionExpiry", f"{value}s", at)
    else:
        out.refuse(at, f"{at[-1]}: {shown(value)} is not a number of seconds")


_RULES: dict[str, Callable[[_Out, Any, Path], None]] = {
    "pulsar.client.serviceUrl": _service_url,
    "pulsar.client.httpUrl": _http_url,
    "pulsar.client.namespacePrefix": _namespace,
    "pulsar.client.clusterName": _nothing("a tenant that is missing is made for every cluster of the broker"),
    "pulsar.client.authentication": _authentication,
    "pulsar.producer.pendingQueueSize": lambda out, value, at: out.set("driver", "maxPendingMessages", value, at),
    "pulsar.consumer.subscriptionMode": _nothing("subscriptions are durable"),
    "mqtt.client.serverUri": _server_uri,
    "mqtt.consumer.cleanSession": _clean_session,
    "mqtt.consumer.sessionExpiryInterval": _session_expiry,
    "mqtt.consumer.sessionExpiryIntervalSeconds": _session_expiry,
}
