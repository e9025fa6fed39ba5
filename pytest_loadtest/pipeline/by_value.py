"""Functions that travel to Spark's workers as code: those need not have the modules to import them from."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

from pyspark import cloudpickle

_LOCK = threading.Lock()
_USERS: Counter[str] = Counter()


@contextlib.contextmanager
def by_value(*modules: ModuleType) -> Iterator[None]:
    """Until the end of this, what these modules (and those below them) define is sent whole.

    Around the action, and not only where the frame is made: Spark Connect pickles functions when rows are asked for. Several threads may
    be in it; whoever is last leaves the registry, which is the whole process's, as it was.
    """
    register, unregister = cloudpickle.register_pickle_by_value, cloudpickle.unregister_pickle_by_value
    with _LOCK:
        others = cloudpickle.list_registry_pickle_by_value() - _USERS.keys()  # type: ignore[no-untyped-call]
        ours = [module for module in modules if module.__name__ not in others]
        for module in ours:
            _USERS[module.__name__] += 1
            register(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        with _LOCK:
            for module in ours:
                _USERS[module.__name__] -= 1
                if not _USERS[module.__name__]:
                    del _USERS[module.__name__]
                    unregister(module)  # type: ignore[no-untyped-call]
