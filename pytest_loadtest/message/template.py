"""Bodies rendered from templates, with fields that differ for each message.

The rule: a template is rendered ahead, once for each payload of the pool, with draws that follow
from the profile's seed, so every worker makes the same payloads. What differs for every message is
filled in without rendering, as text of a fixed width, so that a payload has one size. Controller
and workers call this when they make the pool; workers fill in fields for each burst.
"""

from __future__ import annotations

import json
import re
import traceback
from operator import mod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pytest_loadtest.errors import UsageError
from pytest_loadtest.message import draws
from pytest_loadtest.message.envelope import HEAD
from pytest_loadtest.message.route import Carrier, EnvelopePlace
from pytest_loadtest.message.token import PREFIX, TOKEN, Pointer, encode_tokens, field_at
from pytest_loadtest.values.records import immutable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


HEADS: Final = "head"
"""The field of the binary envelope, which begins a body."""
TOKENS: Final = "envelope"
"""The field of the envelope as a token."""
_SEQ: Final = (
    13  # digits; a stream that sends a million messages a second needs them after 115 days
)
_MS: Final = 13  # digits of milliseconds since the epoch, from 2001 to 2286
_ISO: Final = len("2026-11-26T21:57:55.123456Z")
_KEY: Final = 10  # digits of a 32-bit number
WIDTHS: Final = {
    HEADS: HEAD,
    TOKENS: TOKEN,
    "seq": _SEQ,
    "intended": _ISO,
    "intended_ms": _MS,
    "key": _KEY,
}
"""Field → its bytes in a message."""

_BEGIN: Final = "\ue000"
_END: Final = "\ue001"
_FIELD: Final = re.compile(f"{_BEGIN}([a-z_]+){_END}".encode())
_SHOWN: Final = 200  # characters
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_NO_TOKEN: Final = PREFIX.ljust(TOKEN, b"0")
_EPOCH: Final = b"1970-01-01T00:00:00.000000Z"
_MICROSECOND: Final = 1_000
_MILLISECOND: Final = 1_000_000


class Pattern(NamedTuple):
    """A payload with its fields left open.

    :param text: the bytes of the message, with ``%b`` for each field and ``%%`` for each percent
        sign.
    :param fields: the names of the fields, in their order.
    """

    text: bytes
    fields: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the message."""
        constant = len(self.text % ((b"",) * len(self.fields)))
        return constant + sum(WIDTHS[name] for name in self.fields)

    def filled(self, values: Mapping[str, bytes]) -> bytes:
        """Return the message with these values of its fields."""
        return self.text % tuple(values[name] for name in self.fields)


PADDING: Final = "padding"
"""The member of a message's JSON object that fills it to its size."""


@immutable
class JsonShape:
    """The JSON object of a message without a template: the token's field, and padding.

    :param pointer: the field that has the token.
    """

    pointer: Pointer

    @property
    def smallest(self) -> int:
        """Bytes of the smallest message."""
        return self.pattern(0, b"").size

    def pattern(self, size: int, padding: bytes) -> Pattern:
        """Return a message of this size.

        :param size: bytes.
        :param padding: characters that need no escape; zeros follow them up to the size.
        """
        token = f"{_BEGIN}{TOKENS}{_END}"
        document: Any = token
        for name in reversed(self.pointer):
            document = {name: document}
        # A member of this name may lead to the token.
        padding_name = PADDING
        while padding_name in document:
            padding_name += "_"
        document[padding_name] = ""
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        missing = max(size - len(text.encode()) + len(token.encode()) - TOKEN, 0)
        filled = padding.ljust(missing, b"0")[:missing].decode()
        return _pattern(f"{text[:-2]}{filled}{text[-2:]}")


class _Field:
    """Stands for a field while a template is rendered."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"{_BEGIN}{self._name}{_END}"


class _Draws:
    """The functions of a template that draw: the same for one seed, template and payload."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._number = 0

    def _draw(self, below: int) -> int:
        if below < 1:
            raise ValueError("nothing to draw from: the list or the range is empty")
        drawn = int(draws.draw_range(self._key, self._number, 1)[0])
        self._number += 1
        return drawn * below >> 64

    def pick(self, *values: Any) -> Any:
        """Return one of the values, or of the only list."""
        if len(values) == 1 and isinstance(values[0], list | tuple):
            values = tuple(values[0])
        return values[self._draw(len(values))]

    def integer(self, first: int, last: int) -> int:
        """Return a number from ``first`` to ``last``, both included."""
        return first + self._draw(last - first + 1)

    def text(self, length: int) -> str:
        """Return as many lower-case letters."""
        return "".join([_LETTERS[self._draw(len(_LETTERS))] for _ in range(length)])


def render_template(text: str, name: str, *, seed: int, count: int) -> tuple[Pattern, ...]:
    """Render a template for each of ``count`` payloads.

    :param name: the template's file, for errors.
    :param seed: of the draws of all payloads.
    :raises UsageError: the template is wrong, with its line.
    """
    import jinja2
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=False
    )
    fields = {field: _Field(field) for field in WIDTHS if field != HEADS}
    try:
        template = environment.from_string(text)
        rendered = []
        for number in range(count):
            drawn = _Draws(draws.subkey(seed, number))
            functions = {"pick": drawn.pick, "integer": drawn.integer, "text": drawn.text}
            rendered.append(template.render(**fields, **functions))
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{name}:{error.lineno}: {error.message}") from None
    except Exception as error:
        raise UsageError(f"{name}:{_line_of(error)}: {_reason(error)}") from None
    return tuple(map(_pattern, rendered))


def _line_of(error: Exception) -> int:
    """Return the line of the template at which it failed, 1 if that is unknown."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == "<template>" and frame.lineno
    ]
    return lines[-1] if lines else 1


def _reason(error: Exception) -> str:
    if "_Field" in str(error):
        names = ", ".join(name for name in WIDTHS if name != HEADS)
        return f"{names} are filled in for each message: write them alone, as in {{{{ seq }}}}"
    return str(error) or type(error).__name__


def _pattern(rendered: str) -> Pattern:
    data = rendered.encode().replace(b"%", b"%%")
    fields = tuple(name.decode() for name in _FIELD.findall(data))
    return Pattern(_FIELD.sub(b"%b", data), fields)


def with_head(pattern: Pattern) -> Pattern:
    """Return the pattern with the binary envelope before it."""
    return Pattern(b"%b" + pattern.text, (HEADS, *pattern.fields))


def example_of(pattern: Pattern) -> bytes:
    """Return a message of a pattern, without a binary envelope and with zeros in its fields."""
    values = {name: b"%*d" % (width, 0) for name, width in WIDTHS.items()}
    return pattern.filled({**values, HEADS: b"", TOKENS: _NO_TOKEN, "intended": _EPOCH})


def check_pattern(pattern: Pattern, text: str, name: str, place: EnvelopePlace) -> None:
    """Check where a pattern has its envelope.

    :param text: the template. :param name: its file, for errors.
    :raises UsageError: it has none, or has it elsewhere, or is no JSON.
    """
    if place.carrier is not Carrier.JSON:
        if TOKENS in pattern.fields:
            why = f"has {{{{ envelope }}}}, and the envelope is in {place}"
            remedy = 'remove it, or write route: {envelope: {in: "json:/meta/ref"}}'
            raise UsageError(f"{name}:{_token_line(text)}: {why}: {remedy}")
        return
    example = example_of(pattern)
    try:
        document = json.loads(example)
    except ValueError as error:
        raise UsageError(f"{name}: renders no JSON ({error}): {excerpt(example)}") from None
    if field_at(document, place.pointer) != _NO_TOKEN.decode() or TOKENS not in pattern.fields:
        why = f"{place} is not {{{{ envelope }}}}"
        raise UsageError(f"{name}:{_token_line(text)}: {why}: {excerpt(example)}")


def _token_line(text: str) -> int:
    """Return the first line of a template that has the token, 1 without one."""
    import jinja2

    names = jinja2.Environment().parse(text).find_all(jinja2.nodes.Name)
    return min([each.lineno for each in names if each.name == TOKENS], default=1)


def excerpt(message: bytes) -> str:
    """Return the beginning of a message as text of one line."""
    text = " ".join(message.decode(errors="replace").split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"


class Filler:
    """Fills the fields of messages in.

    :param patterns: those of the pool.
    :ivar wall: wall clock minus the clock of intended times, ns; set when a phase begins.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.wall = 0
        self._patterns = patterns
        self._texts = [pattern.text for pattern in patterns]
        self._needed = {name for pattern in patterns for name in pattern.fields}
        orders = {pattern.fields for pattern in patterns}
        # The fields of all patterns, if they have the same: then all messages are made in one call.
        self._order = orders.pop() if len(orders) == 1 else ()

    def messages(
        self,
        heads: NDArray[np.uint8],
        payload: NDArray[np.uint16],
        key: NDArray[np.int32] | None,
    ) -> list[bytes]:
        """Return the messages of a burst.

        :param heads: ``(n, 32)``, as of ``envelope.encode_heads``.
        :param payload: index of each pattern.
        :param key: number of each message's key; None: it has none, and the field is blank.
        """
        columns = {name: _WRITERS[name](heads, key, self.wall) for name in self._needed}
        numbers = payload.tolist()
        if self._order:
            texts = [self._texts[number] for number in numbers]
            values = zip(*[columns[name] for name in self._order], strict=True)
            return list(map(mod, texts, values))
        messages = []
        for position, number in enumerate(numbers):
            pattern = self._patterns[number]
            filled = tuple([columns[name][position] for name in pattern.fields])
            messages.append(pattern.text % filled)
        return messages


def _heads(heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int) -> list[bytes]:
    data = heads.tobytes()
    return [data[start : start + HEAD] for start in range(0, len(data), HEAD)]


def _tokens(heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int) -> list[bytes]:
    return encode_tokens(heads)


def _seqs(heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int) -> list[bytes]:
    return [b"%*d" % (_SEQ, seq) for seq in _words(heads)[:, 2].tolist()]


def _keys(heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int) -> list[bytes]:
    if key is None:
        return [b" " * _KEY] * len(heads)
    return [b"%*d" % (_KEY, number) for number in key.tolist()]


def _milliseconds(
    heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int
) -> list[bytes]:
    instants = (_words(heads)[:, 3] + wall) // _MILLISECOND
    return [b"%*d" % (_MS, instant) for instant in instants.tolist()]


def _instants(heads: NDArray[np.uint8], key: NDArray[np.int32] | None, wall: int) -> list[bytes]:
    instants = ((_words(heads)[:, 3] + wall) // _MICROSECOND).astype("datetime64[us]")
    written = np.datetime_as_string(instants, unit="us", timezone="UTC")
    return [text.encode() for text in written.tolist()]


def _words(heads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the 64-bit words of full envelopes, ``(n, 4)``: sequences are word 2, intended times
    word 3.
    """
    return np.ascontiguousarray(heads).view(np.dtype("<i8"))


_WRITERS: Final[Mapping[str, Callable[..., list[bytes]]]] = {
    HEADS: _heads,
    TOKENS: _tokens,
    "seq": _seqs,
    "intended": _instants,
    "intended_ms": _milliseconds,
    "key": _keys,
}
"""Field → its texts in the messages of a burst."""
