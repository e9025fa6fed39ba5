"""The Spark session of a pytest session: started once, restarted once for each run. ``tests/faults`` kills a real one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from builders.measurements import made

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.fleet import measured_run, spark_service
from pytest_loadtest.fleet.measured_run import MeasuredRun
from pytest_loadtest.fleet.spark_service import SparkService

if TYPE_CHECKING:
    from pathlib import Path


class Host:
    """A Java process that dies in the next ``deaths`` measurements, or fails to start ``failures`` times."""

    def __init__(self, *_: object) -> None:
        self.calls: list[str] = []
        self.deaths = self.failures = 0
        self.is_alive = True

    def warm(self) -> None:
        self.calls.append("warm")
        if self.failures:
            self.failures -= 1
            raise UsageError("no Java")

    def session(self) -> Host:
        return self

    def alive(self, _wait: float = 0.0) -> bool:
        return self.is_alive

    def ended_by(self) -> str:
        return "killed by signal 9"

    def forget(self) -> None:
        self.calls.append("forget")
        self.is_alive = True

    def kill(self) -> None:
        self.calls.append("kill")

    def stop(self) -> None:
        self.calls.append("stop")


class Service(SparkService):
    """A service on a :class:`Host`, which keeps its announcements."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        monkeypatch.setattr(spark_service, "SparkHost", Host)
        monkeypatch.setattr(measured_run, "measure_run", self._measured)
        options: Any = SimpleNamespace(spark_conf={}, spark_master=None, spark_remote=None)
        super().__init__(folder, options, self.lines.append)
        self.host: Any = self._host
        self.failure = ""

    def _measured(self, spark: Host, folder: Path, _custom: object) -> MeasuredRun:
        if spark.deaths:
            spark.deaths -= 1
            spark.is_alive = False
            raise RuntimeError("connection refused")
        return MeasuredRun(
            folder=folder, run={}, measurements=made(), stages=(), failure=self.failure
        )


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)


def test_spark_is_started_once_and_again_after_a_failed_start(service: Service) -> None:
    """Each run that needs it gets the error of its own start."""
    service.host.failures = 1
    with pytest.raises(UsageError, match="no Java"):
        service.wait_until_ready()
    service.start()
    service.wait_until_ready()
    service.wait_until_ready()
    assert service.host.calls == ["warm", "warm"]


def test_a_process_that_died_between_two_runs_is_restarted_without_a_note(
    service: Service, tmp_path: Path
) -> None:
    service.wait_until_ready()
    service.host.is_alive = False
    service.wait_until_ready()
    assert service.host.calls == ["warm", "forget", "warm"]
    assert service.measure(tmp_path).notes == ()


def test_a_process_that_dies_while_it_measures_is_restarted_once_a_run(
    service: Service, tmp_path: Path
) -> None:
    """The samples are on disk, so nothing is lost; a second death in the run is no data, and the next run may restart it again."""
    service.host.deaths = 1
    (note,) = service.measure(tmp_path).notes
    assert (
        note
        == "Spark's Java process died (killed by signal 9) and was restarted; the samples were on disk, nothing is missing"
    )
    assert service.lines == ["Spark's Java process died (killed by signal 9): restarting it"]
    service.host.deaths = 1
    with pytest.raises(
        NoData, match=rf"died again: killed by signal 9\n.*\n?.*aggregate {tmp_path}"
    ):
        service.measure(tmp_path)
    service.host.forget()
    service.wait_until_ready()
    service.host.deaths = 1
    assert service.measure(tmp_path).notes == (note,)
    service.wait_until_ready()
    service.host.deaths = 2
    with pytest.raises(NoData, match="was restarted, and died again"):
        service.measure(tmp_path)


def test_an_error_of_a_process_that_lives_is_raised_as_it_is(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Missing samples do not restart Spark."""

    def missing(*_: object) -> MeasuredRun:
        raise NoData("samples are missing")

    monkeypatch.setattr(measured_run, "measure_run", missing)
    with pytest.raises(NoData, match="^samples are missing$"):
        service.measure(tmp_path)
    assert service.host.calls == []


def test_a_failure_of_users_code_counts_only_if_spark_lives(
    service: Service, tmp_path: Path
) -> None:
    """Otherwise Spark's death caused it: the run is measured again."""
    service.failure = "IndexError"
    assert service.measure(tmp_path).failure == "IndexError"
    service.host.is_alive = False
    measured = service.measure(tmp_path)
    assert (measured.failure, len(measured.notes)) == ("IndexError", 1)


def test_an_interrupt_kills_spark_and_nothing_starts_it_again(
    service: Service, tmp_path: Path
) -> None:
    service.interrupt()
    service.start()
    service.wait_until_ready()
    service.host.deaths = 1
    with pytest.raises(RuntimeError, match="connection refused"):
        service.measure(tmp_path)
    service.stop()
    service.stop()
    assert service.host.calls == ["kill", "stop"]


def test_a_start_that_is_not_finished_is_given_up_when_spark_is_stopped(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stop() of a host that has nothing yet would let the start go on, without anybody who ends it."""
    warming, killed = threading.Event(), threading.Event()

    def warm() -> None:
        warming.set()
        assert killed.wait(60)

    monkeypatch.setattr(service.host, "warm", warm)
    monkeypatch.setattr(service.host, "kill", killed.set)
    service.start()
    assert warming.wait(60)
    service.stop()
    assert killed.is_set()
    assert "stop" not in service.host.calls
