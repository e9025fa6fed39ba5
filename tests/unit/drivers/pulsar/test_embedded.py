"""pulsar-lite, without starting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_loadtest.brokers.base import BrokerRequest, UnavailableError
from pytest_loadtest.drivers.pulsar import embedded

if TYPE_CHECKING:
    from pathlib import Path


def test_pulsar_lite_is_no_version_of_pulsar(tmp_path: Path) -> None:
    request = BrokerRequest(kind="pulsar", mode="embedded", folder=tmp_path, version="4.2.4")
    with pytest.raises(UnavailableError, match="pulsar-lite cannot stand in for Pulsar 4.2.4"):
        embedded.start_pulsar_lite(request, print)


def test_a_missing_wheel_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_binary", lambda: None)
    with pytest.raises(
        UnavailableError, match=r"pulsar-lite is not installed.*pytest-loadtest\[embedded\]"
    ):
        embedded.start_pulsar_lite(
            BrokerRequest(kind="pulsar", mode="embedded", folder=tmp_path), print
        )
