"""A small process that removes a run's containers when the controller ends.

It does so however the controller ends: SIGKILL too.

It needs no image, unlike a reaper that runs as a container. Its standard input is the read end of a
pipe that only the controller holds: ``remove`` asks it to remove them, an end of file means that
the controller died. It finds containers by their label, so also one whose creation was not
finished. If it cannot remove them, it prints the reason and retries for a minute: an engine that
restarts keeps its containers.

Run by its path. It leads its own session, so Ctrl-C does not reach it.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING

import docker
from docker.errors import DockerException

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK = 0.5  # s between two attempts
CREATION_SECONDS = (
    3.0  # for a container to appear whose creation the controller requested before it died
)
ENGINE_SECONDS = 60.0  # for an engine that does not answer, as during its restart


def main(argv: Sequence[str]) -> int:
    """Wait until the controller ends or sends ``remove``.

    :param argv: the label. :returns: 1 if a container may be left, else 0.
    """
    (label,) = argv
    orderly = _wait_for_controller(os.getppid())
    now = time.monotonic()
    created_by = now + (0.0 if orderly else CREATION_SECONDS)
    answered_by = now + ENGINE_SECONDS
    reported = False
    while True:
        try:
            if remove_containers(label) or time.monotonic() >= created_by:
                return 0
        except (DockerException, OSError) as error:
            if not reported:
                reported = True
                with contextlib.suppress(OSError):  # a dead controller does not read it
                    print(str(error)[:300], flush=True)
            if time.monotonic() >= answered_by:
                return 1
        time.sleep(TICK)


def _wait_for_controller(parent: int) -> bool:
    """Return True when the controller writes to the pipe, False when it has ended."""
    while True:
        readable, _, _ = select.select([0], [], [], TICK)
        if readable:
            return os.read(0, 4096) != b""
        if os.getppid() != parent:  # a forked child of the controller may still hold the pipe open
            return False


def remove_containers(label: str) -> int:
    """Remove every container with this label, running or not. :returns: their number.

    :raises DockerException: the engine rejects the request, or does not answer.
    """
    client = docker.from_env()
    try:
        containers = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        for container in containers:
            container.remove(force=True, v=True)
        return len(containers)
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
