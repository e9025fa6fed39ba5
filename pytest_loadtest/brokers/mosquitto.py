"""mosquitto as a process: found on this machine, with a configuration of its own on a free port.

Facts: `mosquitto.conf(5) <https://mosquitto.org/man/mosquitto-conf-5.html>`_. Started as root it would drop to its own user and lose its
folder, hence the ``user`` line. Without ``set_tcp_nodelay`` single messages show a tail of 40 ms.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from pytest_loadtest.brokers._base import BrokerFacts, BrokerRequest
from pytest_loadtest.brokers._ports import listens
from pytest_loadtest.brokers._process import Child
from pytest_loadtest.brokers._settings import refuse_managed
from pytest_loadtest.brokers._starting import Progress, StartedBroker, on_free_ports, wait_ready
from pytest_loadtest.brokers._unavailable import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

START_SECONDS = 20.0
REMEDY = "apt-get install mosquitto, or python -m pytest_loadtest doctor --fix"
MANAGED = frozenset({"listener", "port", "bind_address", "user", "pid_file"})
DECISIVE = {  # what decides results, with mosquitto's own defaults
    "max_queued_messages": "1000",
    "max_inflight_messages": "20",
    "queue_qos0_messages": "false",
    "set_tcp_nodelay": "false",
    "persistence": "false",
}


def start(request: BrokerRequest, progress: Progress) -> StartedBroker:
    """Start mosquitto; ready in a second.

    :raises UnavailableError: no mosquitto here, or not the wanted version.
    :raises TargetError: it did not start; with its own words.
    """
    binary = find()
    if binary is None:
        raise UnavailableError("no mosquitto on the PATH or in /usr/sbin", REMEDY)
    version = installed_version(binary)
    check_version(version, request.version)
    return on_free_ports(1, lambda ports: _launch(binary, version, ports[0], request, progress))


def find() -> str | None:
    """The mosquitto binary; Debian puts it where only root's PATH looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def installed_version(binary: str) -> str:
    """What ``mosquitto -h`` says of itself; it exits with status 3 or 0 depending on the version, so the status means nothing."""
    answer = subprocess.run([binary, "-h"], capture_output=True, text=True, timeout=10, check=False)
    return parse_version(answer.stdout + answer.stderr)


def parse_version(text: str) -> str:
    """``mosquitto version 2.0.11 …`` → ``2.0.11``; ``unknown`` when it does not say."""
    match = re.search(r"mosquitto version (\S+)", text)
    return match[1] if match else "unknown"


def check_version(installed: str, wanted: str | None) -> None:
    """``2`` and ``2.0`` are satisfied by 2.0.11.

    :raises UnavailableError: another version is installed.
    """
    if wanted is not None and not (installed + ".").startswith(wanted + "."):
        raise UnavailableError(f"mosquitto {installed} is installed, {wanted} is wanted", "use --load-broker container for another version")


def config(*, port: int, settings: Mapping[str, str], user: str | None, address: str = "127.0.0.1") -> str:
    """The text of ``mosquitto.conf``: ours, then the profile's lines, which win over ours of the same key.

    :param user: who mosquitto stays when root starts it; None leaves it its own choice.
    :raises UsageError: the profile sets a key that the plugin has to set.
    """
    refuse_managed("mosquitto", settings, MANAGED)
    lines = {"user": user} if user else {}
    lines |= {
        "listener": f"{port} {address}",
        "allow_anonymous": "true",
        "set_tcp_nodelay": "true",
        "sys_interval": "1",
        "persistence": "false",
        "log_dest": "stderr",
        "log_type": "error",
    }
    lines |= settings
    return "".join(f"{key} {value}\n" for key, value in lines.items())


def decisive(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that decide results, for the report: defaults, ours, the profile's."""
    return DECISIVE | {"set_tcp_nodelay": "true"} | dict(settings)


def scheme(settings: Mapping[str, str]) -> str:
    """``mqtts`` when the profile gives the listener a certificate."""
    return "mqtts" if "certfile" in settings else "mqtt"


def _user() -> str | None:
    """Our own name; None for a user without one, as containers have: then we are not root and mosquitto does not ask."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return None


def _launch(binary: str, version: str, port: int, request: BrokerRequest, progress: Progress) -> StartedBroker:
    text = config(port=port, settings=request.settings, user=_user())
    folder = request.folder.resolve()
    (folder / "data").mkdir(parents=True, exist_ok=True)
    path = folder / "mosquitto.conf"
    path.write_text(text)
    progress(f"starting mosquitto {version}")
    child = Child([binary, "-c", str(path)], folder=folder)
    wait_ready(child, lambda: listens("127.0.0.1", port), name=f"mosquitto {version}", seconds=START_SECONDS, progress=progress)
    facts = BrokerFacts(
        name="mosquitto",
        version=version,
        mode="process",
        url=f"{scheme(request.settings)}://127.0.0.1:{port}",
        settings=decisive(request.settings),
        pid=child.pid,
    )
    return StartedBroker(facts, child)
