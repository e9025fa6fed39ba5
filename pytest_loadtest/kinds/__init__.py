"""The descriptor that a package writes for a kind of broker: :class:`DriverKind`."""

from pytest_loadtest.kinds.costs import Cost
from pytest_loadtest.kinds.kind import (
    BrokerStart,
    Client,
    CostRow,
    DriverKind,
    MessageLimit,
    Scheme,
)

__all__ = ["BrokerStart", "Client", "Cost", "CostRow", "DriverKind", "MessageLimit", "Scheme"]
