"""Lose a packet in a network namespace, and print what a reader of the connection made of it: ``unshare --net python lossy_network.py …``.

A firewall rule drops one packet and its repetitions until it is deleted. The packet that was sent next overtakes it, and waits in the kernel.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time

from pytest_loadtest.drivers.arrival_clock import RESOLUTION, ArrivalClock, SocketReader

LOST = 777  # bytes, a size that no other packet has
LATER = 100  # of the packet that overtakes it; a sender that has lost one sends few others
HEADERS = 52  # of IPv4, and of TCP with timestamps
RULE = ("INPUT", "-p", "tcp", "-m", "length", "--length", str(LOST + HEADERS), "-j", "DROP")
SECONDS = 30


def main(address: str, lose: bool, watch: bool) -> None:
    """Print the reads, and the instant before which nothing was readable.

    :param address: of both ends. :param watch: the reader looks at the socket all the time; otherwise it comes when all is there.
    """
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    if not address.startswith("127."):
        subprocess.run(("ip", "address", "add", f"{address}/32", "dev", "lo"), check=True)
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
    ):
        receiver, _ = server.accept()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver.setblocking(False)
        clock = ArrivalClock(time.monotonic_ns, kernel=True)
        reader, space, reads = (
            SocketReader(receiver, clock),
            memoryview(bytearray(1 << 16)),
            list[tuple[int, int, int]](),
        )

        def look() -> int:
            clock.look(time.monotonic_ns())
            try:
                count = reader.read(space)
            except BlockingIOError:
                return 0
            reads.append((count, reader.arrived, reader.lag))
            return count

        end = time.monotonic() + SECONDS
        while (
            not reads or reads[-1][2] < 0
        ):  # Linux begins to stamp some time after the first socket wants it
            assert time.monotonic() < end, "nothing was stamped"
            sender.send(b"stamp")
            while not look():
                pass
        if lose:
            subprocess.run(("iptables", "-A", *RULE), check=True)
        clock.unusable, begun = 0, len(reads)
        for size in (LOST, LATER):
            sender.send(b"m" * size)
            until = time.monotonic_ns() + 5 * RESOLUTION
            while time.monotonic_ns() < until:
                if watch:
                    look()
        healed = time.monotonic_ns()
        if lose:
            subprocess.run(("iptables", "-D", *RULE), check=True)
        total = sum(size for size, *_ in reads[begun:])
        while total < LOST + LATER:
            assert time.monotonic() < end, "the lost packet was not repeated"
            if watch or waiting(receiver) == LOST + LATER:
                total += look()
        print(json.dumps({"reads": reads[begun:], "healed": healed, "unusable": clock.unusable}))


def waiting(receiver: socket.socket) -> int:
    """Return the number of bytes that can be read."""
    try:
        return len(receiver.recv(1 << 16, socket.MSG_PEEK))
    except BlockingIOError:
        return 0


if __name__ == "__main__":
    main(sys.argv[1], "lose" in sys.argv, "watch" in sys.argv)
