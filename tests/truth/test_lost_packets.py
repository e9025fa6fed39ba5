"""A packet that overtook a lost one has not arrived before the lost one: its own stamp would hide the loss."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_loadtest.drivers.arrival_clock import stamps_work

HELPER = Path(__file__).parents[1] / "helpers" / "lossy_network.py"
ELSEWHERE, HERE = "10.9.9.1", "127.0.0.1"
NEEDED = ("unshare", "ip", "iptables")


def lossy(address: str, *how: str) -> dict[str, Any]:
    """Return what a reader made of a connection of one packet that is lost and one that overtakes it."""
    command = ["unshare", "--net", sys.executable, str(HELPER), address, *how]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def can_lose_packets() -> bool:
    """Return whether this process may make a network namespace with a firewall rule."""
    if os.geteuid() != 0 or not all(map(shutil.which, NEEDED)):
        return False
    rule = "iptables -A INPUT -p tcp -m length --length 829 -j DROP"
    return (
        subprocess.run(
            ["unshare", "--net", "sh", "-c", rule], capture_output=True, check=False
        ).returncode
        == 0
    )


pytestmark = [
    pytest.mark.skipif(not stamps_work(), reason="this kernel does not stamp packets"),
    pytest.mark.skipif(
        not can_lose_packets(),
        reason=f"a lossy network needs root, network namespaces, and {', '.join(NEEDED)}",
    ),
]


@pytest.mark.parametrize(
    "how",
    [("watch",), ()],
    ids=["a reader that looks all the time", "a reader that comes when all is there"],
)
def test_a_packet_that_overtook_a_lost_one_has_the_time_of_the_client(how: tuple[str, ...]) -> None:
    found = lossy(ELSEWHERE, "lose", *how)
    late = [(arrived, lag) for size, arrived, lag in found["reads"] if size]
    assert all(arrived > found["healed"] for arrived, _ in late), (
        "nothing could be read before the network was healed"
    )
    assert late[-1][1] == -1
    assert found["unusable"] >= 1


def test_packets_that_waited_without_a_loss_keep_their_stamps() -> None:
    """The same packets, reader and address."""
    found = lossy(ELSEWHERE)
    assert found["unusable"] == 0
    assert all(arrived < found["healed"] and lag > 0 for _, arrived, lag in found["reads"])


def test_the_stamp_of_a_packet_that_overtook_a_lost_one_is_early() -> None:
    """That is what the count of such packets is looked up for. It is not on connections to this machine, on which nothing is lost."""
    found = lossy(HERE, "lose")
    assert found["reads"][-1][1] < found["healed"]
