"""What a connection knows of who uses it."""

from __future__ import annotations


class ConnectionUser:
    """Who uses a connection; does nothing here."""

    __slots__ = ()

    def came_up(self, session: bool) -> None:
        """It is established. :param session: the broker still had ours."""

    def was_lost(self) -> None:
        """It is gone; another attempt follows unless it has ended."""

    def was_written(self) -> None:
        """The kernel took more of what waited."""

    def answered(self, _kind: int, _packet_id: int, _reason: int, _time: int) -> bool:
        """PUBACK, PUBREC or PUBCOMP came. :returns: whether PUBREL is the next step."""
        return False


NOBODY = ConnectionUser()
"""Of a connection that only receives."""
