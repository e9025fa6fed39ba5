"""What a package says of a kind of broker so that load can be driven on it: see :class:`DriverKind`."""

from __future__ import annotations

from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.kind import BrokerStart, Client, CostRow, DriverKind, MessageLimit, Scheme

__all__ = ["BrokerStart", "Client", "Cost", "CostRow", "DriverKind", "MessageLimit", "Scheme"]
