"""Queues of the TCP connections between workers and target, on both sides where both are of this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from pytest_loadtest.observe.sock_diag import CLOSE_WAIT, ESTABLISHED, LISTEN, Sockets, dump, packed
from pytest_loadtest.values.quantities import SECOND

if TYPE_CHECKING:
    from numpy.typing import NDArray


STALE: Final = 500
"""ms since the last byte arrived, after which what is unread has stood there for at least as long."""


class ConnectionSource:
    """Samples the connections to a target.

    :param addresses: host and port, as clients dial them. :param pid: of the broker, where it is a process of this machine. Its ends of its
        connections are those of the ports on which it listens, which need not be the ports that are dialled.
    :param without: our own ports of connections that carry no load.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], pid: int | None, without: Collection[int] = ()) -> None:
        self._without, self.used = without, 0.0
        self.missing: list[str] = []
        self._dialled = [(address, port) for host, port in addresses for address in packed(host)]
        self._listening = None if pid is None else listening(pid)
        if pid is not None and self._listening is None:
            self.missing.append("broker's sockets: they are another user's, or in a network of their own (a container)")
        self._before: dict[str, tuple[float, float, float]] = {}
        self._at = 0

    def read(self, now: int) -> dict[str, float]:
        """Bytes in queues as they stand, rates since the last sample."""
        sockets, found = dump(ESTABLISHED | CLOSE_WAIT), dict[str, float]()
        without = list(self._without)
        sockets = sockets.where(~(np.isin(sockets.local_port, without) | np.isin(sockets.remote_port, without)))
        sides = {"workers": self._ours(sockets)}
        if self._listening is not None:
            sides["broker"] = np.isin(sockets.local_port, self._listening)
            found["broker.relayed"] = float(not any(port in self._listening for _, port in self._dialled))
        for side, chosen in sides.items():
            of_side = self._side(side, sockets.where(chosen), (now - self._at) / SECOND)
            found |= {f"{side}.{name}": value for name, value in of_side.items()}
        self._at = now
        return found

    def _ours(self, sockets: Sockets) -> NDArray[np.bool_]:
        ours = np.zeros(len(sockets.remote_port), np.bool_)
        for address, port in self._dialled:
            ours |= (sockets.remote_port == port) & (sockets.remote == address).all(axis=1)
        return ours

    def _side(self, side: str, mine: Sockets, seconds: float) -> dict[str, float]:
        found = {
            "connections": float(len(mine.inode)), "unread": float(mine.unread.sum()), "unsent": float(mine.unsent.sum()),
            "stale": float(np.count_nonzero((mine.unread > 0) & (mine.silent >= STALE))),
        }  # fmt: skip
        total = (float(mine.retransmits.sum()), float(mine.busy.sum()), float(mine.shut.sum()))
        if side in self._before:  # a connection that ended took its counters with it: then nothing is known of this second
            retransmits, busy, shut = (now - before for now, before in zip(total, self._before[side], strict=True))
            if retransmits >= 0:
                found["retransmits"] = retransmits / seconds
            if busy > 0 and shut >= 0:
                found["shut"] = min(shut / busy, 1.0)
        self._before[side] = total
        return found

    def close(self) -> dict[str, float]:
        """Nothing is held, and nothing left to say."""
        return {}


def listening(pid: int) -> NDArray[np.int64] | None:
    """The TCP ports on which a process of this network namespace listens; None where there are none or nobody tells."""
    sockets = dump(LISTEN)
    inodes = {f"socket:[{inode}]": at for at, inode in enumerate(sockets.inode.tolist())}
    mine = []
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                link = os.readlink(entry.path)  # noqa: PTH115  # there may be 20 000 of them
                mine += [inodes[link]] if link in inodes else []
    return np.unique(sockets.local_port[mine]) if mine else None
