"""The native driver as the engine uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from native_rig import faulty
from pulsar_library_rig import context

from pytest_loadtest.drivers.pulsar.native.driver import NativePulsarDriver
from pytest_loadtest.drivers.pulsar.settings import Authentication, PulsarSettings
from pytest_loadtest.errors import TargetError, UsageError
from pytest_loadtest.message.samples import Status
from pytest_loadtest.values.quantities import MICROSECOND, MILLISECOND, SECOND

if TYPE_CHECKING:
    from fake_pulsar import FakeBroker


def test_a_driver_that_was_not_opened_has_nothing_and_closes() -> None:
    driver = NativePulsarDriver(context())
    assert driver.acks() is driver.take() is driver.attached() is driver.disconnected() is None
    driver.detach([])
    driver.close()
    driver.close()


def test_incomplete_credentials_are_an_error_before_a_connection() -> None:
    driver = NativePulsarDriver(
        context(PulsarSettings(authentication=Authentication(plugin="token")))
    )
    with pytest.raises(UsageError, match="token or tokenFile"):
        driver.open_producers([0])


def test_an_unreachable_target_is_named_with_a_remedy() -> None:
    driver = NativePulsarDriver(context(PulsarSettings(operation_timeout=SECOND)))
    with pytest.raises(
        TargetError, match=r"cannot connect to pulsar://127\.0\.0\.1:1: .*is the broker running"
    ):
        driver.open_consumers([0])
    driver.close()


def test_payloads_beyond_the_brokers_limit_are_an_error_before_load(broker: FakeBroker) -> None:
    """Unless they are split into chunks."""
    broker.max_message = 8192
    limit = "payloads of up to 8000 B: the broker takes messages of 8192 B"
    with pytest.raises(UsageError, match=limit), faulty(broker, streams=1, size=8000):
        pass
    with faulty(broker, streams=1, size=8000, chunking_enabled=True) as r:
        r.send(1)
        r.until(r.answers, "answered")


def test_an_existing_topic_is_used_at_each_of_its_partitions(broker: FakeBroker) -> None:
    broker.partitions = 3
    with faulty(broker, streams=1, consumers=1, name="persistent://a/b/c"):
        topics = [f"persistent://a/b/c-partition-{i}" for i in range(3)]
        assert sorted(made.topic for made in broker.of("PRODUCER")) == topics
        assert sorted(made.topic for made in broker.of("SUBSCRIBE")) == topics
        assert {made.initial_position for made in broker.of("SUBSCRIBE")} == {0}, (
            "what the topic holds is not the run's"
        )


def test_the_first_of_several_lost_connections_is_named(broker: FakeBroker) -> None:
    with faulty(broker, streams=1, consumers=2) as r:
        broker.peers[0].drop()
        r.until(r.driver.disconnected, "disconnected")
        assert (
            r.driver.disconnected()
            == f"producer of stream 0 ({broker.url}: the broker closed the connection) and 2 more"
        )


def test_facts_have_the_sizes_of_batches_once_messages_went(broker: FakeBroker) -> None:
    with faulty(broker, streams=1, batching_enabled=True, batching_max_messages=5) as r:
        assert "batches" not in r.driver.facts().applied
        r.send(10)
        r.until(lambda: len(r.answers()) == 10, "answered", step=MILLISECOND)
        assert (
            r.driver.facts().applied["batches"]
            == "2 batches of 5 to 5 messages, half of them of up to 5"
        )


def test_messages_beyond_the_window_fail_where_nothing_blocks(broker: FakeBroker) -> None:
    with faulty(broker, streams=1, block_if_queue_full=False, max_pending_messages=2) as r:
        assert r.send(3) == []
        r.until(lambda: len(r.answers()) == 3, "answered")
        assert sorted(status for _, status, _ in r.answers()) == sorted(
            [Status.ACKED, Status.ACKED, Status.FAILED]
        )


def test_a_batch_that_is_due_shortly_before_the_end_of_a_poll_leaves_with_the_next_messages(
    broker: FakeBroker,
) -> None:
    """Both then need one wake. A slow machine may be too late for that, but not each time."""
    with faulty(
        broker,
        streams=1,
        batching_enabled=True,
        batching_max_messages=0,
        batching_max_publish_delay_ms=1000,
    ) as r:
        for _ in range(20):
            r.turn()
            r.clock.advance(10 * SECOND)
            begun = r.clock()
            r.send(1, intended=begun)
            r.clock.advance(980 * MILLISECOND)
            r.driver.poll(begun + SECOND + 200 * MICROSECOND - r.clock())
            r.send(1, intended=r.clock())
            before = len(r.answers())
            r.until(lambda before=before: len(r.answers()) >= before + 2, "answered", step=SECOND)
            if broker.of("SEND")[-1].num_messages == 2:
                return
        pytest.fail("each message had a batch of its own")
