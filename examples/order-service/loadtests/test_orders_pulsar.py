"""An order in is a confirmation out: load through orders_pulsar.py, which the run starts."""

import sys
from pathlib import Path

import pytest

from pytest_loadtest import Load, LoadService, Service

SERVICE = Path(__file__).parents[1] / "orders_pulsar.py"


@pytest.fixture
def orders(load_service: LoadService) -> Service:
    """Return the service, which has subscribed to its topics."""
    return load_service([sys.executable, SERVICE, "--url", "{url}"], ready="ready")


@pytest.mark.load("orders_pulsar.yaml")
def test_orders_are_confirmed(load: Load, orders: Service) -> None:
    load.assert_slo()
