"""Driver files of OMB's for MQTT: the classes ``Mqtt*Config`` of its ``driver-mqtt5``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from pytest_loadtest.profile.explain import shown
from pytest_loadtest.profile.omb_driver import OmbKeys

if TYPE_CHECKING:
    from pytest_loadtest.profile.omb_driver import OmbFile
    from pytest_loadtest.profile.text import Path


def _server_uri(out: OmbFile, value: Any, at: Path) -> None:
    """OMB ignores the scheme, and takes port 80 where none is given."""
    url = urlsplit(value if "://" in str(value) else f"tcp://{value}")
    scheme = "mqtts" if url.scheme in ("ssl", "tls", "mqtts") else "mqtt"
    out.set("target", "url", f"{scheme}://{url.netloc}", at)
    if ":" not in url.netloc:
        out.not_applied["client.serverUri"] = "without a port OMB connects to 80, and this run to MQTT's own"


def _clean_session(out: OmbFile, value: Any, at: Path) -> None:
    out.set("driver", "cleanStart", value, at)


def _session_expiry(out: OmbFile, value: Any, at: Path) -> None:
    """Seconds, and only where sessions outlive their connection."""
    clean = (out.document.value.get("consumer") or {}).get("cleanSession", True)
    if clean is not False:
        out.not_applied[".".join(map(str, at))] = f"{shown(value)}: OMB uses it with cleanSession: false only"
    elif isinstance(value, int):
        out.set("driver", "sessionExpiry", f"{value}s", at)
    else:
        out.refuse(at, f"{at[-1]}: {shown(value)} is not a number of seconds")


KEYS: Final = OmbKeys(
    same={"client": ("username", "password", "qos", "topicPrefix"), "consumer": ("receiveMaximum",)},
    defaults={"receiveMaximum": 256, "topicPrefix": "benchmark"},
    rules={
        "client.serverUri": _server_uri,
        "consumer.cleanSession": _clean_session,
        "consumer.sessionExpiryInterval": _session_expiry,
        "consumer.sessionExpiryIntervalSeconds": _session_expiry,
    },
)
