"""The gang's scheduler around xdist's own ones, with nodes that keep what they were sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import (
    LoadFileScheduling,
    LoadScheduling,
    LoadScopeScheduling,
    WorkStealingScheduling,
)

from pytest_loadtest.fleet.scheduling import GangScheduling


class Node:
    """A worker that runs its queue in order and, like xdist's, one item behind."""

    def __init__(self, name: str) -> None:
        self.name, self.queue, self.shut, self.shutting_down = name, list[int](), False, False
        self.stolen: list[int] = []
        self.gateway: Any = type("Gateway", (), {"id": name, "spec": name})()

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        assert not self.shut
        self.queue += indices

    def send_steal(self, indices: Sequence[int]) -> None:
        self.stolen = list(indices)

    def shutdown(self) -> None:
        self.shut = self.shutting_down = True


def gang(
    pytester: pytest.Pytester,
    scheduler: Any,
    collection: list[str],
    load_items: list[int],
    leads: tuple[str, int] | None = None,
    nodes: int = 2,
) -> Any:
    config = pytester.parseconfig("--tx", f"{nodes}*popen", "--dist", "load")
    return GangScheduling(
        scheduler(config, None),
        config,
        lambda: load_items,
        lambda node, item: (node.name, item) == leads,
    )


def join(sched: Any, node: Node, collection: list[str]) -> None:
    sched.add_node(node)
    sched.add_node_collection(node, collection)
    if sched.collection_is_completed:
        sched.schedule()


def play(sched: Any, nodes: list[Node], collection: list[str]) -> list[tuple[str, str]]:
    """Let every node run its queue to the end, as xdist's main loop would; return the items that each ran."""
    ran: list[tuple[str, str]] = []
    for _ in range(1000):
        if not any(node.queue for node in nodes):
            return ran
        for node in nodes:
            _answer_steal(sched, node)
            if len(node.queue) > 1 or (node.queue and node.shut):
                item = node.queue.pop(0)
                ran.append((node.name, collection[item]))
                sched.mark_test_complete(node, item, 0.1)
            if sched.tests_finished:
                for other in nodes:
                    other.shutdown()
    pytest.fail(
        f"no end in sight: {ran}, left {[(node.name, node.queue, node.shut) for node in nodes]}"
    )


def _answer_steal(sched: Any, node: Node) -> None:
    stolen, node.stolen = node.stolen, []
    if stolen:
        given = stolen if set(stolen) <= set(node.queue[1:]) else []
        node.queue = [item for item in node.queue if item not in given]
        sched.remove_pending_tests_from_node(node, given)


ITEMS = ["a.py::g1", "a.py::t1", "a.py::t2", "b.py::g2", "b.py::t3", "b.py::t4", "c.py::t5"]
GANGS = [0, 3]


@pytest.mark.parametrize(
    "scheduler", [LoadScheduling, LoadScopeScheduling, LoadFileScheduling, WorkStealingScheduling]
)
@pytest.mark.parametrize("load_items", [GANGS, [], list(range(7))])
def test_ordinary_tests_run_once_and_load_tests_on_every_node(
    pytester: pytest.Pytester, scheduler: Any, load_items: list[int]
) -> None:
    """Ordinary tests come first; load tests run in the same order everywhere; then all nodes end."""
    nodes = [Node("gw0"), Node("gw1")]
    sched = gang(pytester, scheduler, ITEMS, load_items)
    for node in nodes:
        join(sched, node, ITEMS)
    ran = play(sched, nodes, ITEMS)
    load = [ITEMS[i] for i in load_items]
    assert sorted(item for _, item in ran if item not in load) == sorted(set(ITEMS) - set(load))
    for node in nodes:
        mine = [item for name, item in ran if name == node.name]
        assert mine[len(mine) - len(load) :] == load
        assert node.shut
    assert sched.tests_finished


def test_a_replacement_gets_the_load_tests_that_are_left(pytester: pytest.Pytester) -> None:
    """The session is not over before, so that xdist does not shut it down."""
    nodes, only = [Node("gw0"), Node("gw1")], ["a.py::g1", "a.py::g2"]
    sched = gang(pytester, LoadScheduling, only, [0, 1])
    for node in nodes:
        join(sched, node, only)
    for node in nodes:
        sched.mark_test_complete(node, node.queue.pop(0))
    assert sched.remove_node(nodes[1]) is None
    assert not sched.tests_finished
    fresh = Node("gw2")
    join(sched, fresh, only)
    assert fresh.queue == [1]
    assert [item for _, item in play(sched, [nodes[0], fresh], only)] == ["a.py::g2", "a.py::g2"]
    assert sched.tests_finished


def test_the_crash_of_a_lead_is_reported_for_its_load_test(pytester: pytest.Pytester) -> None:
    """It is not run again; the crash of a member is reported by the lead."""
    nodes, only = [Node("gw0"), Node("gw1")], ["a.py::g1", "a.py::g2"]
    sched = gang(pytester, LoadScheduling, only, [0, 1], leads=("gw0", 0))
    for node in nodes:
        join(sched, node, only)
    assert sched.remove_node(nodes[0]) == "a.py::g1"
    fresh = Node("gw2")
    join(sched, fresh, only)
    assert fresh.queue == [1]


def test_the_crash_of_an_ordinary_test_is_reported_by_its_own_index(
    pytester: pytest.Pytester,
) -> None:
    nodes = [Node("gw0"), Node("gw1")]
    sched = gang(pytester, LoadScheduling, ITEMS, GANGS)
    for node in nodes:
        join(sched, node, ITEMS)
    first = ITEMS[nodes[0].queue[0]]
    assert first not in ("a.py::g1", "b.py::g2")
    assert sched.remove_node(nodes[0]) == first


def test_an_item_cannot_be_put_back(pytester: pytest.Pytester) -> None:
    """pytest-rerunfailures handles NotImplementedError, and reads ``config``."""
    sched = gang(pytester, LoadScheduling, ITEMS, GANGS)
    assert sched.config is not None
    with pytest.raises(NotImplementedError):
        sched.mark_test_pending("a.py::g1")
