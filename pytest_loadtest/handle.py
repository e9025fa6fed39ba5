"""What ``load`` is in the body of a ``live=True`` test: the load runs beside the body, which changes it on the way.

::

    @pytest.mark.load("orders", live=True)
    def test_a_slow_consumer(load):
        load.begin()
        load.wait("5s")
        load.pause_consumers()
        load.wait("10s")
        load.resume_consumers()
        load.set_rate(500)
        result = load.finish()
        assert result.lost == 0
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from pytest_loadtest.errors import NoData, UsageError
from pytest_loadtest.quantities import SECOND, parse_duration, parse_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_loadtest.fleet.link import Link
    from pytest_loadtest.result import Load
    from pytest_loadtest.search import Peak

    Run = Callable[[Mapping[str, Any], Callable[[Link], None] | None], Any]

_LOOK = 0.05  # s between two looks at whether the load is still there


class LiveLoad:
    """The handle of one run. One test is one run: ``start``, ``find_peak`` or ``begin`` and ``finish``, once."""

    def __init__(self, run: Run) -> None:
        self._run, self._began = run, False
        self._thread: threading.Thread | None = None
        self._link: Link | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def start(self) -> Load:
        """Drive the load to its end and return the result.

        :raises BrokenRun: the run cannot be judged: pytest's *error*, not *failed*. :raises UsageError: it was started before.
        """
        __tracebackhide__ = True
        self._once("start")
        result: Load = self._run({}, None)
        return result

    def find_peak(self, **search: Any) -> Peak:
        """Search the highest rate at which all objectives hold.

        :param search: keys of the profile's ``search`` section: ``start=1000, hold="30s", precision="2%"``.
        :raises UsageError: the profile has no objectives, or a key is wrong. :raises BrokenRun: a step could not be judged.
        """
        __tracebackhide__ = True
        self._once("find_peak")
        result: Load = self._run({"producerRate": 0, **({"search": search} if search else {})}, None)
        assert result.peak is not None
        return result.peak

    def begin(self) -> None:
        """Begin to drive the load; return when its first measured message is due.

        :raises BrokenRun, UsageError: it did not come to that.
        """
        __tracebackhide__ = True
        self._once("begin")
        self._thread = threading.Thread(target=self._drive, name="loadtest-live", daemon=True)
        self._thread.start()
        while self._link is None or self._link.measured_since is None:
            self._still_there()
            time.sleep(_LOOK)
        self._sleep_until(self._link.measured_since)

    def wait(self, duration: str) -> None:
        """Let the load go on for a while: ``"10s"``.

        :raises BrokenRun: it broke meanwhile.
        """
        __tracebackhide__ = True
        self._running("wait")
        self._sleep_until(time.monotonic_ns() + parse_duration(duration))

    def set_rate(self, rate: float | str) -> None:
        """A new rate, all producers together: messages per second, or ``"200MB/s"`` where the profile paces by bytes.

        All workers take it at one agreed instant, two seconds from now; returns then.

        :raises UsageError: no rate, or too late.
        """
        __tracebackhide__ = True
        value = parse_rate(rate) if isinstance(rate, str) else rate
        if not 0 <= value < 9e9:
            raise UsageError(f"load.set_rate({rate!r}): a rate is 0 or more, and below 9e9 per second")
        self._command("set_rate", "rate", value)

    def set_distribution(self, weights: Mapping[str, int]) -> None:
        """New weights for the size buckets of the profile, by their keys; one that is not named gets none.

        :raises UsageError: an unknown bucket, or no weight.
        """
        __tracebackhide__ = True
        self._command("set_distribution", "distribution", dict(weights))

    def pause_consumers(self) -> None:
        """No consumer takes messages until :meth:`resume_consumers`."""
        __tracebackhide__ = True
        self._command("pause_consumers", "paused", True)

    def resume_consumers(self) -> None:
        """They go on."""
        __tracebackhide__ = True
        self._command("resume_consumers", "paused", False)

    def stop(self) -> Load:
        """End the measured phase early, drain, and return the result."""
        __tracebackhide__ = True
        self._command("stop", "end", None)
        return self.finish()

    def finish(self) -> Load:
        """Wait until the measured phase and its drain are over; return the result.

        :raises BrokenRun: the run cannot be judged.
        """
        __tracebackhide__ = True
        thread = self._thread
        if thread is None:
            raise UsageError("load.finish() ends what load.begin() began: call that first")
        while thread.is_alive():
            thread.join(_LOOK)  # in pieces, so that Ctrl-C is heard
        if self._error is not None:
            raise self._error
        result: Load = self._result
        return result

    def close(self) -> None:
        """The test is over; a load that still runs is given up.

        :raises UsageError: there was one.
        """
        if self._thread is None or not self._thread.is_alive():
            return
        if self._link is not None:
            self._link.fail(NoData("the test ended while its load was running"))
        self._thread.join(10)
        raise UsageError("the test ended while its load was running: call load.finish() or load.stop() and assert on what it returns")

    def _drive(self) -> None:
        try:
            self._result = self._run({}, self._take)
        except BaseException as error:
            self._error = error

    def _take(self, link: Link) -> None:
        self._link = link

    def _once(self, name: str) -> None:
        if self._began:
            raise UsageError(f"load.{name}(): the load was started before; one test is one run: write a second test for a second run")
        self._began = True

    def _running(self, name: str) -> Link:
        if self._thread is None or self._link is None:
            raise UsageError(f"load.{name}(): no load is running; call load.begin() first")
        self._still_there()
        return self._link

    def _still_there(self) -> None:
        if self._thread is not None and not self._thread.is_alive():
            raise self._error or UsageError("the load is over: make testDuration longer, or do less in the test's body")

    def _command(self, method: str, kind: str, argument: Any) -> None:
        link = self._running(method)
        link.command(kind, argument)
        while True:
            try:
                answer = link.answers.get(timeout=_LOOK)
            except queue.Empty:
                self._still_there()
                continue
            if isinstance(answer, Exception):
                raise answer
            assert link.measured_since is not None
            if kind != "end":
                self._sleep_until(link.measured_since + answer)
            return

    def _sleep_until(self, moment: int) -> None:
        while (left := moment - time.monotonic_ns()) > 0:
            self._still_there()
            time.sleep(min(left / SECOND, _LOOK))
