"""YAML text → frozen :class:`Profile`: strict, all problems at once, OMB's workload files as they stand."""

from __future__ import annotations

from pytest_loadtest.profile.files import find, load, payload
from pytest_loadtest.profile.model import BrokerSection, GeneratorLimits, Profile, TargetSection
from pytest_loadtest.profile.parse import from_document, loads
from pytest_loadtest.profile.schema import json_schema
from pytest_loadtest.profile.settings import LoopbackSettings, MqttSettings, PulsarSettings

__all__ = [
    "BrokerSection",
    "GeneratorLimits",
    "LoopbackSettings",
    "MqttSettings",
    "Profile",
    "PulsarSettings",
    "TargetSection",
    "find",
    "from_document",
    "json_schema",
    "load",
    "loads",
    "payload",
]
