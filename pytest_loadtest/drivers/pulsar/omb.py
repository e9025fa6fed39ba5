"""OMB's driver files for Pulsar: the classes ``Pulsar*Config`` of its ``driver-pulsar``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.profile.explain import shown
from pytest_loadtest.profile.omb_driver import OmbKeys
from pytest_loadtest.profile.secrets import shown_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.errors import Path
    from pytest_loadtest.profile.omb_driver import OmbFile

_PLUGINS = {"AuthenticationToken": "token", "AuthenticationBasic": "basic", "AuthenticationTls": "tls", "AuthenticationOAuth2": "oauth2"}
_DATA = {
    "basic": {"userId": "userId", "password": "password"},
    "oauth2": {key: key for key in ("issuerUrl", "privateKey", "audience", "scope")},
    "tls": {"tlsCertFile": "certFile", "tlsKeyFile": "keyFile", "certFile": "certFile", "keyFile": "keyFile"},
}


def _service_url(out: OmbFile, value: Any, at: Path) -> None:
    out.set("target", "url", value, at)


def _http_url(out: OmbFile, value: Any, at: Path) -> None:
    out.set("target", "adminUrl", value, at)


def _namespace(out: OmbFile, value: Any, at: Path) -> None:
    parts = str(value).split("/")
    if len(parts) == 3:
        # Pulsar 1 had tenant/cluster/namespace; namespaces have no cluster since then.
        out.not_applied["client.namespacePrefix"] = f"the cluster in {value}: namespaces have none any more"
        value = f"{parts[0]}/{parts[2]}"
    out.set("driver", "namespacePrefix", value, at)


def _nothing(reason: str) -> Callable[[OmbFile, Any, Path], None]:
    def note(out: OmbFile, value: Any, at: Path) -> None:
        out.not_applied[".".join(map(str, at))] = f"{shown(value)}: {reason}"

    return note


def _authentication(out: OmbFile, value: Any, at: Path) -> None:
    """Read ``{plugin: a Java class, data: its parameters}``."""
    if not isinstance(value, dict) or not value.get("plugin"):
        return
    plugin = _PLUGINS.get(str(value["plugin"]).rpartition(".")[2])
    if plugin is None:
        # The value is shown only if it looks like a class: it may be the token itself, written in the wrong place.
        name = str(value["plugin"])
        named = name if re.fullmatch(r"([a-z]+\.)+[A-Z][A-Za-z]*|\w*Authentication\w*", name) else "the value"
        out.refuse((*at, "plugin"), f"authentication.plugin: {named} is not known", f"known: {', '.join(_PLUGINS)}")
        return
    try:
        keys = _credentials(plugin, str(value.get("data") or ""))
    except ValueError as error:
        out.refuse((*at, "data") if "data" in value else at, f"authentication.data: {error}")
        return
    out.set("driver", "authentication", {"plugin": plugin, **keys}, at)


def _credentials(plugin: str, data: str) -> Mapping[str, str]:
    """Return a plugin's parameters by our keys. :param data: as Pulsar's clients spell it.

    :raises ValueError: the parameters cannot be read.
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
    parameters = {names.get(key, key): value.removeprefix("file://") for key, value in pairs.items()}
    known = list(dict.fromkeys(names.values()))
    # The keys are shown without values: any of them may be a misspelled password.
    unknown = [shown_key(key, below=True) for key in sorted(parameters.keys() - set(known) - {"type"})]
    if unknown or not parameters:
        raise ValueError(f"needs {', '.join(known)}" + (f"; {', '.join(unknown)} is not known" if unknown else ""))
    return {key: value for key, value in parameters.items() if key in known}


KEYS: Final = OmbKeys(
    same={
        "client": (
            "clientMemoryLimitMB", "ioThreads", "connectionsPerBroker", "maxConcurrentLookupRequests", "topicType", "persistence",
            "tlsAllowInsecureConnection", "tlsEnableHostnameVerification", "tlsTrustCertsFilePath",
        ),
        "producer": ("batchingEnabled", "batchingMaxPublishDelayMs", "batchingMaxBytes", "batchingMaxMessages", "blockIfQueueFull"),
        "consumer": ("receiverQueueSize", "subscriptionType"),
    },
    defaults={
        "ioThreads": 8, "connectionsPerBroker": 8, "maxConcurrentLookupRequests": 1000, "batchingMaxBytes": 1024**2,
        "batchingMaxMessages": 0, "maxPendingMessages": 0, "clientMemoryLimitMB": 256, "receiverQueueSize": 10_000,
        "tlsEnableHostnameVerification": False,
    },
    rules={
        "client.serviceUrl": _service_url,
        "client.httpUrl": _http_url,
        "client.namespacePrefix": _namespace,
        "client.clusterName": _nothing("a tenant that is missing is made for every cluster of the broker"),
        "client.authentication": _authentication,
        "producer.pendingQueueSize": lambda out, value, at: out.set("driver", "maxPendingMessages", value, at),
        "consumer.subscriptionMode": _nothing("subscriptions are durable"),
    },
)  # fmt: skip
