"""A command that delays what another command answers: ``python slow_channel.py MILLISECONDS COMMAND …``.

Its standard input reaches the command at once; each piece of the command's output is passed on after the delay, in order, so that the path
is as asymmetric as a path can be.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time


def main(arguments: list[str]) -> int:
    """Run the command until its output ends."""
    delay, command = int(arguments[0]) / 1000, arguments[1:]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)  # standard input is inherited
    assert process.stdout is not None
    pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout.fileno(), pieces), daemon=True).start()
    while True:
        came, piece = pieces.get()
        time.sleep(max(came + delay - time.monotonic(), 0))
        if not piece:
            return process.wait()
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def _read(descriptor: int, pieces: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    piece = b"x"
    while piece:
        piece = os.read(descriptor, 1 << 16)
        pieces.put((time.monotonic(), piece))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
