"""Messages beyond the broker's limit travel in chunks (PIP-37).

Each arrives whole and once, on both clients, and losses are counted.

PULSAR_VERSION=4.0.0 pytest loadtests/pulsar/test_chunking.py -n 2
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pulsar_proxy import PulsarProxy

MAX = 5 * 1024**2  # the broker's maxMessageSize
CHUNK = {
    "native": MAX - 1024,
    "library": MAX - 128,
}  # payload of a chunk; pulsar-client leaves some 100 bytes for its metadata
SMALL, LARGEST = "1024-1025", "20971520-20971521"
EXPIRY = 55  # s until pulsar-client begins to discard incomplete messages, which takes it a minute
ONE = {"client": "native", "use": "one-ordered"}


def size_of(bucket):
    return int(bucket.partition("-")[0])


def chunks_of(size, most):
    """Return the number of chunks; a message that fits with its metadata is one entry."""
    return -(-size // most)


def entries_of(load, client):
    """Return the number of entries of the acknowledged messages."""
    return sum(
        part.acked * chunks_of(size_of(part.name), CHUNK[client])
        for part in load.measurements.buckets
    )


def client_of(request):
    return "library" if "library" in request.node.name else "native"


def remember(record_property, **facts):
    for name, value in facts.items():
        record_property(f"chunking.{name}", str(value))
    print(", ".join(f"{name} {value}" for name, value in facts.items()))


def check_whole(load, topic, request, record_property, percentiles):
    """Check that messages arrived unchanged and exactly once.

    The broker has one entry for each chunk sent.
    """
    before = psutil.Process().memory_info().rss
    result = load.start()
    result.assert_slo()
    assert result.loss == result.duplicates == result.corrupt == result.foreign == 0
    assert result.bucket(SMALL).sent and result.bucket(LARGEST).sent
    published, expected = topic.last["msgInCounter"], entries_of(result, client_of(request))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    small, largest = result.bucket(SMALL).end_to_end, result.bucket(LARGEST).end_to_end
    remember(
        record_property,
        entries=published,
        expected=expected,
        backlog=topic.backlog(topic.last),
        **{f"small_p{p}": small.percentile(p) for p in percentiles},
        small_max=small.max,
        largest_max=largest.max,
        rss_before=f"{before >> 20} MiB",
        rss_peak=f"{peak >> 20} MiB",
    )
    assert published == expected
    assert topic.backlog(topic.last) == 0
    assert (
        peak < before + 1024**3
    )  # of the leading worker: payloads, 64 MB in flight, and its consumers' queues


@pytest.mark.load(profile="pulsar/chunking", live=True)
def test_chunks(load, topic, request, record_property):
    """Sizes are around the limit and up to 20 MB, mixed with small ones.

    There is one producer, several in turn, and several to a group.
    """
    check_whole(load, topic, request, record_property, percentiles=(50, 90))


@pytest.mark.soak
@pytest.mark.load(profile="pulsar/chunking", live=True, messages=1300, producerRate=10)
def test_chunks_for_long(load, topic, request, record_property):
    """A thousand small messages in addition, which a 99th percentile needs."""
    check_whole(load, topic, request, record_property, percentiles=(50, 90, 99))


def mixed(load, topic):
    """Mix another producer's small messages in chunks with those of the run for a while.

    :returns: their number.
    """
    command = [sys.executable, Path(__file__).with_name("mixing.py"), load.target.url, topic.name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "mixing\n"
        load.wait("2s")
        return int(process.communicate(timeout=150)[0])
    finally:
        process.kill()
        process.wait()


def check_incomplete(load, topic, request, record_property):
    """Check that incomplete messages stay, come again or are lost, as in the profile.

    Losses are counted.
    """
    load.begin()
    again, others, began = "comes-again" in request.node.name, 0, time.monotonic()
    while True:
        others += mixed(load, topic)
        load.set_rate(0)
        if again:
            topic.until_read(
                600
            )  # ten seconds a round, and still one mixed message a round is whole
        if again or topic.until_at_rest():
            break
        load.set_rate(2)  # no two of them were incomplete at the same time
    expired = time.monotonic() > began + EXPIRY
    result = load.stop()
    left, chunks = topic.backlog(topic.last), chunks_of(20 * 1024**2, CHUNK[client_of(request)])
    acked, unread = result.measurements.counts.acked, others - result.foreign
    remember(
        record_property,
        acked=acked,
        lost=result.loss,
        others=others,
        others_lost=unread,
        left=left,
        slowest=result.end_to_end.max,
    )
    assert result.corrupt == result.duplicates == 0
    if again:
        assert (result.loss, result.foreign, left) == (0, others, 0)
        return
    assert result.loss
    entries = chunks * result.loss + 2 * unread
    if "stays" in request.node.name:
        assert left == entries or (expired and client_of(request) == "library" and left < entries)
    else:
        assert left < entries  # chunks before it are acknowledged; later ones stay


@pytest.mark.load(
    profile="pulsar/chunking-incomplete", live=True, judge=False, matrix={"client": "native"}
)
def test_more_incomplete_messages_than_a_consumer_keeps(load, topic, request, record_property):
    """By default they stay.

    With unackedMessagesTimeout they come again; acknowledged, they are lost.
    """
    check_incomplete(load, topic, request, record_property)


@pytest.mark.load(
    profile="pulsar/chunking-incomplete",
    live=True,
    judge=False,
    matrix={"client": "library", "oldest": "stays"},
)
def test_more_incomplete_messages_than_the_library_keeps(load, topic, request, record_property):
    """They stay."""
    check_incomplete(load, topic, request, record_property)


@pytest.mark.soak
@pytest.mark.load(
    profile="pulsar/chunking-incomplete",
    live=True,
    judge=False,
    matrix={"client": "library", "oldest": ["comes-again", "dropped"]},
)
def test_what_becomes_of_those_that_the_library_does_not_keep(
    load, topic, request, record_property
):
    """They come again, after ten seconds each time, or they are lost."""
    check_incomplete(load, topic, request, record_property)


def abandon(load, topic, expiry_of):
    """Send only the first chunk of a message. :returns: the load's result."""
    load.begin()
    with PulsarProxy(load.target.url) as proxy:
        proxy.entries = 1
        script = Path(__file__).with_name("abandoned.py")
        process = subprocess.Popen([sys.executable, str(script), proxy.url, topic.name])
        try:
            assert proxy.held.wait(60) and proxy.stored.wait(60)
        finally:
            process.kill()
            process.wait()
    print(f"abandoned after one chunk; waiting for the consumer's {expiry_of} to be over")
    topic.until_read()
    return load.stop()


def check_abandoned(load, topic, expiry_of):
    result = abandon(load, topic, expiry_of)
    result.assert_slo()
    assert result.loss == result.duplicates == result.corrupt == 0
    assert (
        result.foreign == 0
    )  # a part of the message would count as foreign: it is not from this run
    assert topic.backlog(topic.last) == 0


@pytest.mark.load(
    profile="pulsar/chunking",
    live=True,
    matrix=ONE,
    messages=3000,
    producerRate=5,
    messageSizeDistribution={SMALL: 9, "5242881-5242882": 1},
    **{"driver.expireTimeOfIncompleteChunkedMessage": "5s"},
)
def test_a_producer_is_killed_after_its_first_chunk(load, topic):
    """The chunk is never delivered, messages after it are.

    The backlog is empty once the incomplete message has expired.
    """
    check_abandoned(load, topic, "5 s")


@pytest.mark.soak
@pytest.mark.load(
    profile="pulsar/chunking",
    live=True,
    matrix=ONE | {"client": "library"},
    messages=3000,
    producerRate=5,
    messageSizeDistribution={SMALL: 9, "5242881-5242882": 1},
)
def test_a_producer_is_killed_after_its_first_chunk_for_the_library(load, topic):
    """The library waits its fixed minute."""
    check_abandoned(load, topic, "minute")
