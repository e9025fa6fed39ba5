"""YAML texts: their traps, and problems with line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_loadtest import profile
from pytest_loadtest.errors import ProfileError


def problems(text: str) -> str:
    with pytest.raises(ProfileError) as caught:
        profile.loads(text, "p.yaml")
    return str(caught.value)


YAML_TRAPS = [
    ("producerRate: 1e6", "p.yaml:1:15: producerRate: '1e6' is text, not a number (write 1000000)"),
    (
        "generator: {stalled: 25%}",
        "p.yaml:1:22: generator.stalled: '25%' is text, not a number (write 0.25)",
    ),
    ("topics: 50%", "p.yaml:1:9: topics: '50%' is text, not a whole number"),
    ('topics: "10"', "p.yaml:1:9: topics: '10' is text, not a whole number (write 10)"),
    ("topics: 2.5", "p.yaml:1:9: topics: 2.5 is not a whole number (write 2)"),
    ("topics: 010", "p.yaml:1:9: topics: YAML reads 010 as 8 (write 10, or 8 if that is meant)"),
    ("topics: 0x10", "p.yaml:1:9: topics: YAML reads 0x10 as 16 (write 16)"),
    ("topics: true", "p.yaml:1:9: topics: true is not a whole number"),
    (
        "testDuration: 1:30",
        "p.yaml:1:15: testDuration: YAML reads 1:30 as 90 (for minutes and seconds write 90s; for text quote it)",
    ),
    ("name: no", 'p.yaml:1:7: name: YAML reads no as false (write false, or "no" for the text)'),
    (
        "checksum: on",
        'p.yaml:1:11: checksum: YAML reads on as true (write true, or "on" for the text)',
    ),
    ("checksum: 1", "p.yaml:1:11: checksum: 1 is not true or false (write true or false)"),
    ("name: 2026", 'p.yaml:1:7: name: 2026 is not text (quote it: "2026")'),
    ("name: ''", "p.yaml:1:7: name is empty (give it a value, or remove the key)"),
    ("description:", "p.yaml:1:13: description: no value (give it one, or remove the key)"),
    ("producerRate: .inf", "p.yaml:1:15: producerRate: Input should be a finite number"),
    ("broker: {version: 4.10}", 'p.yaml:1:19: broker.version: 4.10 is not text (quote it: "4.10")'),
    ("name: !!python/none x", "p.yaml:1:7: name: tag !!python/none is not allowed (remove it)"),
    ("topics: !!int x", "p.yaml:1:9: topics: 'x' is not what its tag says (remove the tag)"),
    ("slo: !!set {loss}", "p.yaml:1:6: slo: tag !!set is not allowed (remove it)"),
    (
        "name: &x a\ndescription: *x",
        "p.yaml:2:1: description: aliases (*name) are not read (write the value out)",
    ),
    (
        "slo: &x {loss: *x}",
        "p.yaml:1:10: slo.loss: aliases (*name) are not read (write the value out)",
    ),
    (
        "broker: {<<: {version: a}}",
        "p.yaml:1:10: merge keys (<<) are not read (write the keys out)",
    ),
    ("? [a, b]\n: 1", "p.yaml:1:3: a key must be text, not a list"),
    (
        "topics: 1\nname: a\ntopics: 2",
        "p.yaml:3:1: duplicate key 'topics', first in line 1 (remove one)",
    ),
    (
        'name: a\ndescription: "\\ud83d"',
        'p.yaml:2:14: description: half of a surrogate pair is not a character (write the whole character, "\\U0001F600")',
    ),
    (
        'stages: {"\\udc00": 1}',
        "p.yaml:1:10: half of a surrogate pair is not a character (write the whole character)",
    ),
    ("slo: {loss: 0, loss: 1}", "p.yaml:1:16: duplicate key 'loss', first in line 1 (remove one)"),
]


@pytest.mark.parametrize(("text", "line"), YAML_TRAPS, ids=[text for text, _ in YAML_TRAPS])
def test_a_trap_of_yaml_1_1_is_an_error(text: str, line: str) -> None:
    """The message has what YAML reads."""
    assert line in problems(text + "\n").splitlines()


NOT_YAML = [
    ("", "p.yaml:1:1: the profile is empty"),
    ("# nothing\n", "p.yaml:1:1: the profile is empty"),
    ("- a\n- b\n", "p.yaml:1:1: a profile is a mapping, not a list"),
    ("prod-2m\n", "p.yaml:1:1: a profile is a mapping, not 'prod-2m'"),
    ("name: a\nslo:\n  loss: [0\n", "p.yaml:4:1: not valid YAML: while parsing a flow sequence"),
    (
        "slo:\n\tloss: 0\n",
        "p.yaml:2:1: not valid YAML: while scanning for the next token, found character '\\t'",
    ),
    ("slo:\n  throughput: >= 95%\n", "p.yaml:2:16: not valid YAML: while scanning a block scalar"),
    (
        "name: @home\n",
        "p.yaml:1:7: not valid YAML: while scanning for the next token, found character '@'",
    ),
    ("name: a\x00b\n", "p.yaml:1:8: character U+0000 is not allowed in YAML"),
    (
        "name: a\n---\nname: b\n",
        "p.yaml:2:1: not valid YAML: expected a single document in the stream",
    ),
    ("a: " + "[" * 600, "p.yaml:1:1: nested too deeply"),
]


@pytest.mark.parametrize(("text", "start"), NOT_YAML, ids=[repr(text[:20]) for text, _ in NOT_YAML])
def test_a_text_that_is_not_a_profile_is_an_error_with_a_place(text: str, start: str) -> None:
    assert problems(text).startswith(start)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("slo:\n\tloss: 0\n", "(indent with spaces, not with tabs)"),
        (
            "slo:\n  throughput: >= 95%\n",
            "(write the bound alone, 95%: each metric has a fixed direction)",
        ),
        ("name: @home\n", '(quote the value: "@home")'),
    ],
)
def test_broken_yaml_has_a_remedy(text: str, hint: str) -> None:
    assert problems(text).endswith(hint)


@given(st.text())
def test_any_text_is_a_profile_or_a_list_of_problems(text: str) -> None:
    """The only error is ProfileError."""
    with pytest.raises(ProfileError):
        profile.loads(text, "p.yaml")
