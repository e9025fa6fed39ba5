"""A small process that removes a run's containers when the controller is done with them, or gone: also after SIGKILL, and without an
image of its own, which a reaper that runs as a container would have to pull first.

Its standard input is the read end of a pipe that only the controller holds. ``remove`` is the orderly end; an end of file means that the
controller is gone. Containers are known by their label, so that one is found, too, whose creation was still under way. What keeps it from
removing them it prints, and tries again for a minute: an engine that is restarted keeps its containers.

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

TICK = 0.5  # s between two looks
CREATION_SECONDS = 3.0  # how long a container may take to appear that the controller asked for before it died
ENGINE_SECONDS = 60.0  # how long an engine that does not answer is waited for


def main(argv: Sequence[str]) -> int:
    """Wait for the end of the controller's interest; 0 when nothing is left, 1 when something may be. :param argv: the label."""
    (label,) = argv
    orderly = _listen(os.getppid())
    now = time.monotonic()
    appears, answers = now + (0.0 if orderly else CREATION_SECONDS), now + ENGINE_SECONDS
    told = False
    while True:
        try:
            if remove(label) or time.monotonic() >= appears:
                return 0
        except (DockerException, OSError) as error:
            if not told:
                told = True
                with contextlib.suppress(OSError):  # nobody is left to read it
                    print(str(error)[:300], flush=True)
            if time.monotonic() >= answers:
                return 1
        time.sleep(TICK)


def _listen(parent: int) -> bool:
    """Until the controller says something, which is the orderly end, or is gone; a forked child of it may still hold the pipe."""
    while True:
        readable, _, _ = select.select([0], [], [], TICK)
        if readable:
            return os.read(0, 4096) != b""
        if os.getppid() != parent:
            return False


def remove(label: str) -> int:
    """Remove every container with this label, running or not; how many there were.

    :raises DockerException: the engine refuses, or does not answer.
    """
    client = docker.from_env()
    try:
        found = client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        for container in found:
            container.remove(force=True, v=True)
        return len(found)
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
