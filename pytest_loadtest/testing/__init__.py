"""The conformance kit for drivers: the promises of a driver, one check each, and a clock that stands still.

A driver's own tests run the kit against a running target::

    @pytest.mark.parametrize("check", DRIVER_CHECKS, ids=lambda check: check.__name__)
    def test_keeps_the_promises_of_a_driver(check, subject):
        check(subject)

Each check opens a run of its own, so that checks can be run in any order and side by side.
"""

from pytest_loadtest.testing.conformance import DRIVER_CHECKS, check_driver
from pytest_loadtest.testing.rig import FakeClock, Rig, Subject, rig

__all__ = ["DRIVER_CHECKS", "FakeClock", "Rig", "Subject", "check_driver", "rig"]
