"""The descriptor of the loopback relay."""

from __future__ import annotations

from importlib import import_module

import pytest

from pytest_loadtest.drivers.loopback.kind import KIND


@pytest.mark.parametrize(
    "name",
    [KIND.settings, KIND.clients["library"].driver, KIND.brokers["loopback"].ways["process"]],
)
def test_every_name_in_the_descriptor_exists(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(import_module(module), attribute)
