"""The conformance kit for drivers.

It has one check for each promise of a driver, and a clock that moves only on request.

A driver's own tests run the kit against a running target::

    @pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
    def test_keeps_the_promises_of_a_driver(check, subject):
        check(subject)

``subject`` is a :class:`Subject`. Each check opens a run of its own, so checks can run in any order
and in parallel. For tests of your own, :func:`rig` opens a driver together with messages to send
and the columns that it returned.
"""

from pytest_loadtest.testing.conformance import DRIVER_CHECKS, check_driver
from pytest_loadtest.testing.rig import FakeClock, Rig, Subject, rig

__all__ = ["DRIVER_CHECKS", "FakeClock", "Rig", "Subject", "check_driver", "rig"]
