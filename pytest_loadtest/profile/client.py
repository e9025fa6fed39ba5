"""What the ``driver`` section has of every driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_loadtest.profile.fields import Section

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClientSettings(Section):
    """What every driver has."""

    client: Literal["library", "native"] | None = None
    """library: the broker's own Python client. native: ours, on the wire protocol. Left out, the plan chooses, and says why."""
    strict_tuning: bool = False
    """A key that the client cannot apply is an error instead of a note in plan and report."""

    @property
    def memory_limit(self) -> int | None:
        """Bytes in flight over all producers of a worker; None: only the number of messages bounds them."""
        return None

    def unchecked_host(self, urls: Iterable[str]) -> str | None:
        """A note that TLS connections to these addresses may have ended at another host; None if names are checked, or without TLS."""
        return None
