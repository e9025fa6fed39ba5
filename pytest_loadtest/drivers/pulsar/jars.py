"""The jars of Pulsar."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pytest_loadtest.brokers.java import Jars

PULSAR: Final = Jars("Pulsar", "4.2.4", "some 320 jars, 240 MB", Path(__file__).with_name("pulsar-pom.xml"))
