"""Consumers leave with some of a message's chunks and return, or others take over.

Connections are cut too. Every message is accounted for.

PULSAR_VERSION=4.0.0 pytest loadtests/pulsar/test_chunk_churn.py -n 2
"""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pulsar_proxy import PulsarProxy

BEGUN = 8  # messages that another producer begins at a time
CHUNKS = 3  # chunks of each of them
CONSUMERS = {"exclusive": 1, "failover": 2, "shared": 3}
RATE = 4  # msg/s of the run itself
REST = 15  # s: limit of the wait until the broker is at rest
BROKER = (
    "apache/pulsar#26395, #26396: chunks go on to the Shared consumer that has left,"
    " and what is left of others is for nobody"
)
LIBRARY = "apache/pulsar-client-cpp#587: a first chunk that comes again is not taken"


def kind_of(request):
    return next(kind for kind in CONSUMERS if kind in request.node.name)


def known_of(request, *, cut=False):
    """Return the known fault of this case, if there is one.

    :param cut: consumers reconnect and get the first chunks again.
    """
    if kind_of(request) == "shared":
        return BROKER
    return LIBRARY if cut and "library" in request.node.name else None


def holds(done, seconds=60):
    """Return True if the condition holds before the time limit."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


@contextmanager
def begun(load, topic):
    """Begin large messages: consumers get the first chunk of each.

    The other chunks follow after the block.
    """
    with PulsarProxy(load.target.url) as proxy:
        proxy.entries = 1
        script = Path(__file__).with_name("abandoned.py")
        process = subprocess.Popen([sys.executable, script, proxy.url, topic.name, str(BEGUN)])
        try:
            assert holds(lambda: proxy.receipts == BEGUN)
            yield
            proxy.release()
            assert holds(lambda: proxy.receipts == BEGUN * CHUNKS)
        finally:
            process.kill()
            process.wait()


def have(load, topic, number):
    load.set_consumers(number)
    assert holds(lambda: topic.consumers() == number)


def rested(load, topic, request, *, known):
    """Check for entries that no consumer gets until all leave and the topic is unloaded.

    :param known: the reason; None: an error.
    """
    load.set_rate(0)
    left = 0
    if known is None:
        topic.until_read()
    elif not holds(lambda: not topic.backlog(), REST):
        left = topic.backlog()
        have(load, topic, 0)
        topic.ask(f"{topic.path}/unload", "PUT")
        have(load, topic, CONSUMERS[kind_of(request)])
        topic.until_read()
    load.set_rate(RATE)
    return left


def account(load, topic, record_property, **more):
    result = load.stop()
    counts = result.measurements.counts
    facts = {
        "acked": counts.acked,
        "lost": result.loss,
        "twice": result.duplicates,
        "resent": counts.resent,
        "corrupt": result.corrupt,
        **more,
    }
    facts |= {
        "out_of_order": counts.out_of_order,
        "foreign": result.foreign,
        "left": topic.backlog(topic.last),
    }
    for name, value in facts.items():
        record_property(f"chunking.{name}", str(value))
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    assert counts.out_of_order in (None, 0)  # None for a Shared subscription, which has no order
    return result


@pytest.mark.load(
    profile="pulsar/chunking-churn",
    live=True,
    judge=False,
    matrix={"kind": ["exclusive", "failover"]},
)
def test_consumers_leave(load, topic, request, record_property):
    """Some leave while others stay, or all leave at once.

    The other chunks come before and after they return.
    """
    check_leaving(load, topic, request, record_property)


@pytest.mark.soak
@pytest.mark.load(
    profile="pulsar/chunking-churn", live=True, judge=False, matrix={"kind": "shared"}
)
def test_shared_consumers_leave(load, topic, request, record_property):
    """Shared consumers leave.

    Each round waits for chunks that nobody gets until the topic is unloaded.
    """
    check_leaving(load, topic, request, record_property)


def check_leaving(load, topic, request, record_property):
    everyone, known, stuck = CONSUMERS[kind_of(request)], known_of(request), []
    rounds = sorted({everyone - 1, 0}, reverse=True)

    load.begin()
    for number in rounds:
        with begun(load, topic):
            have(load, topic, number)
        if number == 0:
            have(load, topic, everyone)
        stuck.append(rested(load, topic, request, known=known))
        have(load, topic, everyone)
        with begun(load, topic):
            have(load, topic, number)
            have(load, topic, everyone)
        stuck.append(rested(load, topic, request, known=known))
    result = account(load, topic, record_property, begun=2 * BEGUN * len(rounds), stuck=stuck)
    assert result.loss == result.corrupt == topic.backlog(topic.last) == 0
    if not any(stuck):
        assert (result.foreign, result.duplicates) == (2 * BEGUN * len(rounds), 0)
        return
    assert result.foreign >= 2 * BEGUN * len(
        rounds
    )  # an unloaded topic delivers again what it had not stored as read
    pytest.xfail(known)


def cut_connections(url):
    """Cut the connections of this process to that address. :returns: their number."""
    port = int(url.rpartition(":")[2])
    found = [
        one
        for one in psutil.Process().net_connections("tcp")
        if one.raddr and one.raddr.port == port and one.status == "ESTABLISHED"
    ]
    for one in found:
        with socket.socket(fileno=os.dup(one.fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)
    return len(found)


@pytest.mark.load(
    profile="pulsar/chunking-churn", live=True, judge=False, matrix={"kind": ["failover", "shared"]}
)
def test_connections_are_cut(load, topic, request, record_property):
    """One worker's unanswered messages are sent again, and unacknowledged ones arrive again."""
    load.begin()
    cut, stuck, known = 0, [], known_of(request, cut=True)
    for _ in range(3):
        load.wait("2s")
        cut += cut_connections(load.target.url)
        load.wait("1s")
        stuck.append(rested(load, topic, request, known=known))
    result = account(load, topic, record_property, cut=cut, stuck=stuck)
    assert cut
    assert result.loss == result.corrupt == result.foreign == topic.backlog(topic.last) == 0
    if any(stuck):
        pytest.xfail(known)


@pytest.mark.load(
    profile="pulsar/chunking-churn",
    live=True,
    judge=False,
    matrix={"client": "native", "kind": ["failover", "shared"]},
)
def test_topics_are_unloaded(load, topic, request, record_property):
    """Clients reconnect.

    Unanswered messages, and those that the broker had not stored as read, come again: duplicates,
    and no loss.
    """
    load.begin()
    for _ in range(2):
        load.wait("2s")
        topic.ask(f"namespaces/{topic.namespace}/unload", "PUT")
    load.wait("2s")
    result = account(load, topic, record_property)
    left = topic.backlog(topic.last)
    assert result.loss == result.corrupt == result.foreign == 0
    if left and kind_of(request) == "shared":
        pytest.xfail(BROKER)
    assert left == 0
