"""Topics that differ: ``skew``, and keys that it cannot be combined with."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from pytest_loadtest import profile
from pytest_loadtest.commands.starter import schema_text
from pytest_loadtest.errors import ProfileError
from pytest_loadtest.values.quantities import SECOND

SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_text("profile")))
SIX = Path(__file__).parents[3] / "profiles" / "pulsar" / "bundle-split.yaml"


def text_of(skew: str, **keys: object) -> str:
    """A profile of three topics; None leaves a key out."""
    whole = {
        "name": "a",
        "topics": 3,
        "producerRate": 900,
        "testDuration": "9s",
        "messageSize": 100,
    } | keys
    return "".join(
        f"{key}: {value}\n" for key, value in {**whole, "skew": skew}.items() if value is not None
    )


def loads(skew: str, **keys: object) -> profile.Profile:
    return profile.loads(text_of(skew, **keys), "p.yaml")


def wrong(skew: str, **keys: object) -> str:
    with pytest.raises(ProfileError) as error:
        loads(skew, **keys)
    return str(error.value)


def test_a_skewed_profile_has_the_rates_bytes_and_hashes_of_its_topics() -> None:
    """The first example of PIP-169 at a tenth."""
    found = profile.load(SIX)
    assert found.skew is not None
    weights, sizes = found.skew.shares(6), found.skew.message_sizes
    assert weights == (1, 2, 3, 4, 5, 20) and sizes is not None
    rates = [found.producer_rate * weight / sum(weights) for weight in weights]
    assert rates == [10, 20, 30, 40, 50, 200]
    assert [round(rate * size / 1024**2, 4) for rate, size in zip(rates, sizes, strict=True)] == [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        19.0001,
    ]
    assert found.skew.hashes == (10, 20, 80, 90, 100, 110)
    assert [(bucket.name, bucket.low, bucket.weight) for bucket in found.buckets or ()] == [
        ("10486", 10486, 15),
        ("99615", 99615, 20),
    ]


def test_a_skew_of_hashes_alone_changes_neither_shares_nor_sizes() -> None:
    found = loads("{hashes: [1, 2, 4294967295]}")
    assert found.skew is not None
    assert found.skew.shares(3) == (1, 1, 1)
    assert found.buckets is None
    assert found.skew.period(900) == 0


def test_sizes_are_buckets_by_their_share_of_messages() -> None:
    """Topics of one size are one bucket; with swing each topic has the same share in the long run."""
    sizes = "messageSizes: [100, 1KB, 100]"
    found = loads(f"{{weights: [1, 2, 3], {sizes}}}", messageSize=None)
    assert [(bucket.name, bucket.weight) for bucket in found.buckets or ()] == [
        ("100", 4),
        ("1024", 2),
    ]
    swinging = loads(f"{{weights: [1, 2, 3], swing: 1s, {sizes}}}", messageSize=None)
    assert [(bucket.name, bucket.weight) for bucket in swinging.buckets or ()] == [
        ("100", 2),
        ("1024", 1),
    ]
    assert profile.from_document(json.loads(json.dumps(found.document()))).buckets == found.buckets


@pytest.mark.parametrize(("power", "wanted"), [(1, [5455, 2727, 1818]), (10, [9990, 10, 1])])
def test_zipf_1_gives_the_first_topic_twice_the_share_of_the_second(
    power: float, wanted: list[int]
) -> None:
    """Every topic has a share."""
    found = loads(f"{{zipf: {power}}}")
    assert found.skew is not None
    assert list(found.skew.shares(3)) == wanted


def test_the_period_of_a_swing_is_a_number_of_messages() -> None:
    """At the rate of the profile."""
    found = loads("{weights: [2, 1, 1], swing: 500ms}")
    assert found.skew is not None
    assert found.skew.swing == SECOND // 2
    assert found.skew.period(900) == 450


@pytest.mark.parametrize(
    ("skew", "keys", "place", "said"),
    [
        ("{weights: [1, 2]}", {}, "6:17", "skew.weights: 2 values for 3 topics (write one for each topic, or topics: 2)"),
        ("{hashes: [1, 2]}", {}, "6:16", "skew.hashes: 2 values for 3 topics (write one for each topic, or topics: 2)"),
        ("{hashes: [1, 2, 1]}", {}, "6:16", "skew.hashes: 1 occurs twice: no split of bundles could separate those topics (write different hashes)"),
        ("{hashes: [1, 2, 4294967296]}", {}, "6:23", "skew.hashes.2: 4294967296 must be at most 4294967295"),
        ("{weights: [1, 2, 0]}", {}, "6:24", "skew.weights.2: 0 must be at least 1"),
        ("{weights: [1, 2, 3], zipf: 1}", {}, "6:28", "skew.weights and skew.zipf exclude each other"),
        ("{messageSizes: [100, 100, 100]}", {}, "5:1", "skew.messageSizes and messageSize exclude each other"),
        ("{swing: 1s}", {}, "6:8", "skew.swing: all topics have the same share (write weights or zipf)"),
        ("{weights: [999999, 1, 1]}", {}, "6:17", "skew.weights: 1,000,001 messages in one cycle of the shares, at most 1,000,000 are possible"),
        ("{weights: [2, 1, 1], swing: 1h}", {}, "6:35", "skew.swing: 9,720,000 messages in one cycle"),
        ("{zipf: 1}", {"producersPerTopic": 1000}, "7:14", "skew.zipf: 10,000,000 messages in one cycle"),
        ("{zipf: 1}", {"topics": 1, "topic": "persistent://a/b/c"}, "7:1", "skew: cannot be combined with topic"),
        ("{zipf: 1, swing: 1s}", {"producerRate": "9MB/s"}, "3:15", "skew.swing: needs a rate in messages; producerRate is in bytes"),
        ("{zipf: 1}", {"scalable": "[topics]"}, "6:11", "skew: needs all topics, but scalable allows fewer"),
        ("{zipf: 1, swing: 1s}", {"producerRate": 0, "testDuration": None}, "5:17", "skew.swing: needs a constant rate, but a search changes it"),
        ("{zipf: 1, swing: 1s}", {"testDuration": None, "stages": "[{duration: 1s}]"}, "6:17", "skew.swing: needs a constant rate, but stages change it"),
        ("{messageSizes: [99, 99, 99]}", {"messageSize": None, "testDuration": None, "stages": '[{duration: 1s, messageSizeDistribution: {"32-64": 1}}]'}, "5:8", "skew.messageSizes: cannot be combined with messageSizeDistribution of a stage"),
        ("{hashes: [1, 2, 3]}", {"driver": "{name: mqtt}"}, "7:8", "skew.hashes: only Pulsar has bundles"),
        ("{hashes: [1, 2, 3]}", {"partitionsPerTopic": 2}, "6:21", "skew.hashes: each partition has a hash of its own"),
        ("{messageSizes: [31, 99, 99]}", {"messageSize": None}, "5:22", "skew.messageSizes: 31 B is below the 32 B that topics with different rates need (write 32 or more)"),
        ("{messageSizes: [35, 99, 99]}", {"messageSize": None, "checksum": "true"}, "6:22", "skew.messageSizes: 35 B is below the 36 B"),
        ("{messageSizes: [6MB, 99, 99]}", {"messageSize": None}, "5:22", "skew.messageSizes: 6291456 B is above what the broker takes, 5241856 B"),
        ("{zipf: 1}", {"messageSize": 31}, "5:14", "messageSize: 31 B is below the 32 B that topics with different rates need (write 32 or more, or remove skew)"),
        ("{zipf: 1}", {"messageSize": None, "messageSizeDistribution": '{"20-40": 1}'}, "5:27", "size range '20-40' has payloads of 30 B, below the 32 B that topics with different rates need (begin it at 32, or remove skew)"),
        ("{zipf: 1}", {"messageSize": None, "messageSizeDistribution": '{"32-38": 1}', "checksum": "true"}, "5:27", "size range '32-38' has payloads of 35 B, below the 36 B"),
        ("{zipf: 1}", {"testDuration": None, "stages": '[{duration: 1s}, {duration: 1s, messageSizeDistribution: {"16-24": 1}}]'}, "5:67", "size range '16-24' has payloads of 20 B, below the 32 B"),
        ("{zipf: 1}", {"messages": 0}, "7:1", "skew: has no effect, because the run sends no messages"),
    ],
)  # fmt: skip
def test_a_wrong_skew_is_an_error_at_its_place(
    skew: str, keys: dict[str, object], place: str, said: str
) -> None:
    """With what to write."""
    lines = wrong(skew, **keys).splitlines()
    assert any(said in line for line in lines), lines
    assert any(line.startswith(f"p.yaml:{place}: {said}") for line in lines), lines


def test_topics_have_at_most_as_many_sizes_as_the_envelope_can_number() -> None:
    text = "name: p\nproducerRate: 1000\ntestDuration: 1s\ntopics: 300\n"

    def sized(different: int) -> profile.Profile:
        sizes = [100 + topic % different for topic in range(300)]
        return profile.loads(f"{text}skew: {{messageSizes: {sizes}}}\n", "p.yaml")

    assert len(sized(256).buckets or ()) == 256
    limit = "p.yaml:5:22: skew.messageSizes: 257 different sizes, more than 256"
    with pytest.raises(ProfileError, match=limit):
        sized(257)


def test_the_schema_accepts_sizes_by_topic_without_message_size() -> None:
    assert not list(SCHEMA.iter_errors(yaml.safe_load(SIX.read_text(encoding="utf-8"))))
    assert list(SCHEMA.iter_errors(yaml.safe_load(text_of("{weights: [0, 1, 2]}"))))
