"""Messages between the processes of a run."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders.measurements import made
from builders.plans import loopback
from builders.plans import made as planned

from pytest_loadtest.drivers.base import TargetAddress
from pytest_loadtest.fleet.messages import (
    Part,
    PhaseFinished,
    Request,
    RunResult,
    StartPhase,
    WorkloadAssignment,
)
from pytest_loadtest.results.load import Load
from pytest_loadtest.verdict.slo import Outcome, Verdict

if TYPE_CHECKING:
    from pathlib import Path


def messages(folder: Path) -> list[Any]:
    profile = loopback(topics=3)
    plan, part = planned(profile, workers=2), Part(profile=profile, files={"a": b"payload"})
    load = Load(
        profile_name="p", observed=made(), verdict=Verdict(outcome=Outcome.MET, findings=())
    )
    return [
        Request(nodeid="t", attempt=1, profile=profile, parts=(part,), source="p.yaml"),
        WorkloadAssignment(
            workload="", run="r", nonce=1, worker="gw1", profile=profile, files={}, assignment=plan.assignments[1],
            topology=plan.topology, target=TargetAddress(url="loopback://x"), ordered=True, bounds=(1,), opened=1, disk=1, rate=1.0,
        ),
        StartPhase(phase=plan.measure, start=5, folder=folder, wall=7),
        PhaseFinished(ends=np.array([1, 2]), marks=((5, np.array([1, 1])),), disconnected=None, answered=True),
        RunResult(load=load, properties=(("load.outcome", "met"),)),
    ]  # fmt: skip


def test_every_message_reaches_another_process_unchanged_and_cannot_be_modified(
    tmp_path: Path,
) -> None:
    """Workers of xdist get them pickled, the local fleet as they are."""
    for message in messages(tmp_path):
        received = pickle.loads(pickle.dumps(message))
        for field in fields(message):
            sent, arrived = getattr(message, field.name), getattr(received, field.name)
            assert repr(sent) == repr(arrived), (type(message), field.name)
        with pytest.raises(FrozenInstanceError):
            setattr(message, fields(message)[0].name, None)
