"""OMB's driver files for Pulsar: the classes ``Pulsar*Config`` of its ``driver-pulsar``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.drivers.pulsar.settings import NO_LIMIT
from pytest_loadtest.profile.explain import shown
from pytest_loadtest.profile.omb_driver import OmbClass, OmbField, OmbFile, OmbKeys, Rule
from pytest_loadtest.profile.omb_fields import constant, flag, integer, string
from pytest_loadtest.profile.secrets import shown_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_loadtest.errors import Path

_PLUGINS = {
    "AuthenticationToken": "token",
    "AuthenticationBasic": "basic",
    "AuthenticationTls": "tls",
    "AuthenticationOAuth2": "oauth2",
}
_DATA = {
    "basic": {"userId": "userId", "password": "password"},
    "oauth2": {key: key for key in ("issuerUrl", "privateKey", "audience", "scope")},
    "tls": {
        "tlsCertFile": "certFile",
        "tlsKeyFile": "keyFile",
        "certFile": "certFile",
        "keyFile": "keyFile",
    },
}


def _target(key: str) -> Rule:
    return lambda out, value, at: out.set("target", key, value, at)


def _namespace(out: OmbFile, value: Any, at: Path) -> None:
    parts = str(value).split("/")
    if len(parts) == 3 and all(parts):
        # Pulsar 1 had tenant/cluster/namespace; namespaces have no cluster since then.
        out.not_applied["client.namespacePrefix"] = (
            f"the cluster in {value}: namespaces have none any more"
        )
        value = f"{parts[0]}/{parts[2]}"
    out.set("driver", "namespacePrefix", value, at)


def _cluster(out: OmbFile, value: Any, at: Path) -> None:
    out.not_applied["client.clusterName"] = (
        f"{shown(value)}: a tenant that is missing is made for every cluster of the broker"
    )


def _authentication(out: OmbFile, values: Mapping[str, Any], at: Path) -> None:
    """Read ``{plugin: a Java class, data: its parameters}``."""
    name = str(values.get("plugin") or "")
    if not name:
        return
    plugin = _PLUGINS.get(name.rpartition(".")[2])
    if plugin is None:
        # The value is shown only if it looks like a class: it may be the
        # token itself, written in the wrong place.
        named = (
            name
            if re.fullmatch(r"([a-z]+\.)+[A-Z][A-Za-z]*|\w*Authentication\w*", name)
            else "the value"
        )
        out.refuse(
            (*at, "plugin"),
            f"authentication.plugin: {named} is not known",
            f"known: {', '.join(_PLUGINS)}",
        )
        return
    try:
        keys = _credentials(plugin, str(values.get("data") or ""))
    except ValueError as error:
        out.refuse((*at, "data") if out.has((*at, "data")) else at, f"authentication.data: {error}")
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
    parameters = {
        names.get(key, key): value.removeprefix("file://") for key, value in pairs.items()
    }
    known = list(dict.fromkeys(names.values()))
    # The keys are shown without values: any of them may be a misspelled password.
    unknown = [
        shown_key(key, below=True) for key in sorted(parameters.keys() - set(known) - {"type"})
    ]
    if unknown or not parameters:
        raise ValueError(
            f"needs {', '.join(known)}"
            + (f"; {', '.join(unknown)} is not known" if unknown else "")
        )
    return {key: value for key, value in parameters.items() if key in known}


_OWN: Final = "OMB's driver has no such key; in a driver section with our own keys write"
"""Keys of Pulsar's clients that OMB's driver does not set."""

KEYS: Final = OmbKeys(
    sections={
        "client": OmbClass(
            fields={
                "serviceUrl": OmbField(read=string, into=_target("url")),
                "httpUrl": OmbField(read=string, into=_target("adminUrl")),
                "clientMemoryLimitMB": OmbField(
                    read=integer, initial=256, into="clientMemoryLimitMB"
                ),
                "ioThreads": OmbField(read=integer, initial=8, into="ioThreads"),
                "connectionsPerBroker": OmbField(
                    read=integer, initial=8, into="connectionsPerBroker"
                ),
                "maxConcurrentLookupRequests": OmbField(
                    read=integer, initial=1000, into="maxConcurrentLookupRequests"
                ),
                "namespacePrefix": OmbField(read=string, into=_namespace),
                "clusterName": OmbField(read=string, into=_cluster),
                "topicType": OmbField(
                    read=constant(
                        "persistent", "non_persistent", spelled={"non_persistent": "non-persistent"}
                    ),
                    initial="persistent",
                    into="topicType",
                    required=True,
                ),
                "persistence": OmbClass(
                    fields={
                        "ensembleSize": OmbField(read=integer, initial=3),
                        "writeQuorum": OmbField(read=integer, initial=3),
                        "ackQuorum": OmbField(read=integer, initial=2),
                        "deduplicationEnabled": OmbField(read=flag, initial=False),
                    },
                    convert=lambda out, values, at: out.set("driver", "persistence", values, at),
                ),
                "tlsAllowInsecureConnection": OmbField(
                    read=flag, initial=False, into="tlsAllowInsecureConnection"
                ),
                "tlsEnableHostnameVerification": OmbField(
                    read=flag, initial=False, into="tlsEnableHostnameVerification"
                ),
                "tlsTrustCertsFilePath": OmbField(read=string, into="tlsTrustCertsFilePath"),
                "authentication": OmbClass(
                    fields={"plugin": OmbField(read=string), "data": OmbField(read=string)},
                    convert=_authentication,
                ),
            },
            hints={
                "webServiceUrl": "did you mean httpUrl?",
                "adminUrl": "did you mean httpUrl?",
                "tlsEnabled": (
                    "remove it: serviceUrl pulsar+ssl://host:port and httpUrl https://host:port"
                    " use TLS"
                ),
                "enableTls": (
                    "remove it: serviceUrl pulsar+ssl://host:port and httpUrl https://host:port"
                    " use TLS"
                ),
                "operationTimeout": f"{_OWN} operationTimeout: 30s",
                "namespaceBundles": f"{_OWN} namespaceBundles: 16",
            },
        ),
        "producer": OmbClass(
            fields={
                "batchingEnabled": OmbField(read=flag, initial=True, into="batchingEnabled"),
                "batchingMaxPublishDelayMs": OmbField(
                    read=integer, initial=1, into="batchingMaxPublishDelayMs"
                ),
                "batchingMaxBytes": OmbField(
                    read=integer, initial=1024**2, into="batchingMaxBytes"
                ),
                "blockIfQueueFull": OmbField(read=flag, initial=True, into="blockIfQueueFull"),
                "pendingQueueSize": OmbField(read=integer, initial=0, into="maxPendingMessages"),
            },
            hints={
                "maxPendingMessages": "did you mean pendingQueueSize?",
                "batchingMaxMessages": f"{_OWN} batchingMaxMessages: 1000",
                "compression": f"{_OWN} compression: LZ4",
                "compressionType": f"{_OWN} compression: LZ4",
                "maxPendingMessagesAcrossPartitions": (
                    f"{_OWN} maxPendingMessagesAcrossPartitions: 50000"
                ),
                "sendTimeout": f"{_OWN} sendTimeout: 30s",
                "sendTimeoutMs": f"{_OWN} sendTimeout: 30s",
                "chunkingEnabled": f"{_OWN} chunkingEnabled: true",
            },
        ),
        "consumer": OmbClass(
            fields={
                "receiverQueueSize": OmbField(
                    read=integer, initial=10_000, into="receiverQueueSize"
                ),
                "subscriptionType": OmbField(
                    read=constant("Exclusive", "Shared", "Failover", "Key_Shared"),
                    initial="Failover",
                    into="subscriptionType",
                    required=True,
                ),
            },
            ignored={"subscriptionMode": "subscriptions are durable"},
            hints={
                "maxTotalReceiverQueueSizeAcrossPartitions": (
                    f"{_OWN} maxTotalReceiverQueueSizeAcrossPartitions: 50000"
                ),
                "ackTimeout": f"{_OWN} unackedMessagesTimeout: 10s",
                "ackTimeoutMillis": f"{_OWN} unackedMessagesTimeout: 10s",
            },
        ),
    },
    # Batches have no limit in messages, and all partitions together none in messages in flight (its
    # default since Pulsar 2.11).
    fixed={"batchingMaxMessages": 0, "maxPendingMessagesAcrossPartitions": NO_LIMIT},
)
