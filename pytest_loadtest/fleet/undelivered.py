"""Questions to a target in a drain: which deliveries of the run it has yet to make.

The run controller calls :func:`ask_target` under the rendezvous' lock, once :meth:`Drain.asks
<pytest_loadtest.fleet.drain.Drain.asks>`; each question has a thread of its own. An answer that
proves nothing never ends a drain.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from pytest_loadtest.drivers import undelivered_function
from pytest_loadtest.errors import LoadtestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_loadtest.drivers.base import Undelivered
    from pytest_loadtest.fleet.drain import Drain
    from pytest_loadtest.fleet.workload_run import WorkloadRun


def ask_target(workload: WorkloadRun, drain: Drain) -> None:
    """Ask the workload's target in a thread of its own, which gives the answer to the drain."""
    from pytest_loadtest.drivers.base import DrainingRun
    from pytest_loadtest.fleet.targets import target_address, with_keys

    profile = workload.part.profile
    broker = workload.broker
    function = undelivered_function(profile.driver.name)
    assert function is not None
    assert broker is not None
    run = DrainingRun(
        target=target_address(broker.facts),
        settings=with_keys(profile, broker.facts).driver,
        run=workload.run,
        topology=workload.plan.topology,
    )
    # A daemon, because a target that does not answer must not hold up the end of the session.
    threading.Thread(
        target=_ask, args=(partial(function, run), drain), name="loadtest-undelivered", daemon=True
    ).start()


def _ask(function: Callable[[], Undelivered | None], drain: Drain) -> None:
    asked = time.monotonic_ns()
    answer = None
    try:
        answer = function()
    except (LoadtestError, OSError, LookupError, TypeError, ValueError):
        pass  # no proof: the drain waits as it does without the question, and asks again
    finally:
        drain.answered(answer, asked, time.monotonic_ns())
