"""The errors of pytest-loadtest.

::

    LoadtestError             the base: catches all of them
    ├── UsageError            a request that cannot be fulfilled: pytest's usage error
    │   ├── ProfileError      a profile is not valid; has all of its problems
    │   └── RunAborted        a live test would change a run that is lost and about to end
    └── BrokenRun             the run says nothing about the target: an *error*, never *failed*
        ├── NoData            a required measurement is missing
        │   ├── TargetError   the target was not reached, rejected the client, or went away
        │   └── WorkerError   a load worker failed or died
        └── GeneratorLimited  the generator, not the target, limited the load

Each error survives pickling, because errors cross from workers to the controller.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

Path = tuple[str | int, ...]
"""The keys, and indexes of lists, that lead to a value of a text."""
NOWHERE: Final = -1
"""The line of a problem that has no place in a text yet."""
MOST_SHOWN = 80
"""The most characters of a user's value in an error: enough to recognize it."""
_QUOTED = re.compile(
    rf"(?<!\w)(['\"])((?:\\.|(?!\1)[^\\]){{{MOST_SHOWN}}})(?:\\.|(?!\1)[^\\])+\1(?!\w)", re.DOTALL
)
# A path is never cut: it names the file.
_WORD = re.compile(rf"([^\s/]{{{MOST_SHOWN}}})[^\s/…][^\s/]*")


def _shortened(message: str) -> str:
    """Return the message with its long values cut: those in quotes, and long words."""
    return _WORD.sub(r"\1…", _QUOTED.sub(r"\1\2…", message))


class LoadtestError(Exception):
    """Base of all errors of this package."""


class UsageError(LoadtestError):
    """The request is wrong; nothing was started."""


class RunAborted(UsageError):
    """A live test would change a run that is lost and about to end."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a text that a user wrote: a profile, a driver file, a section of either.

    :param path: from the top of the text, or of the section that was read; empty once the problem
        has a line, because it may be secret.
    :param suggestion: what to write instead.
    :param at_key: the key is wrong, not its value.
    :param line: 1-based, as is ``column``. Once there is one, long values in message and suggestion
        are cut.
    """

    path: Path = field(compare=False)
    message: str
    suggestion: str = ""
    at_key: bool = field(default=False, compare=False)
    line: int = NOWHERE
    column: int = NOWHERE

    def __post_init__(self) -> None:
        if self.line != NOWHERE:
            object.__setattr__(self, "message", _shortened(self.message))
            object.__setattr__(self, "suggestion", _shortened(self.suggestion))

    @property
    def text(self) -> str:
        """The message with the suggestion."""
        return f"{self.message} ({self.suggestion})" if self.suggestion else self.message

    def below(self, *prefix: str | int) -> Self:
        """Return the problem as one of a larger text, which has the section at ``prefix``."""
        return replace(self, path=(*prefix, *self.path))

    def named(self) -> Self:
        """Return the problem with its path before the message: ``slo.loss: …``."""
        path = ".".join(map(str, self.path))
        return replace(self, message=f"{path}: {self.message}")

    def render(self, source: str) -> str:
        return f"{source}:{self.line}:{self.column}: {self.text}"


class Invalid(ValueError):
    """A value that cannot be read.

    It never reaches a user: the reader of the whole text catches it, and reports the problem with
    its place.

    :param problem: with its path inside the value.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def invalid(message: str, suggestion: str = "", *, at_key: bool = False) -> Invalid:
    """Make the error of a single value, whose reader does not know its path."""
    return Invalid(Problem((), message, suggestion, at_key))


def did_you_mean(word: str, known: Iterable[str], *, most: int = 1, listed: int = 12) -> str:
    """Suggest the known words most like a word, in any case: ``did you mean ioThreads?``.

    :param most: number of words to suggest.
    :param listed: without a similar word, all known ones are listed if there are at most so many.
    """
    spelled = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), spelled, n=most, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(spelled[name] for name in near)}?"
    if 0 < len(spelled) <= listed:
        return f"known: {', '.join(spelled.values())}"
    return ""


def sorted_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, in the order of the text."""
    different = dict.fromkeys(problems)
    return tuple(sorted(different, key=lambda problem: (problem.line, problem.column)))


class ProfileError(UsageError):
    """A profile is not valid.

    :param source: the file as the user named it.
    :param problems: all of them, in the order of the file.
    """

    def __init__(self, source: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(problem.render(self.source) for problem in self.problems)


class BrokenRun(LoadtestError):
    """The run cannot be judged."""


class NoData(BrokenRun):
    """A required measurement is missing."""


class TargetError(NoData):
    """The target could not be reached, rejected the client, or went away for good."""


class WorkerError(NoData):
    """A load worker failed or died."""


class GeneratorLimited(BrokenRun):
    """The generator, not the target, limited the load."""
