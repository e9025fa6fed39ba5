"""The plugin's cost for every pytest run: ``python benchmarks/bench_import.py``.

Runs ``pytest --version`` with and without the plugin, alternating, and prints the median of the
differences in CPU time of the process.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

ROUNDS = 15


def cpu(*options: str) -> float:
    """Return the ms of CPU time of one ``pytest --version``, which loads all plugins."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-VV", "-p", "no:cacheprovider", *options],
        check=True,
        capture_output=True,
        env=environment,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def main() -> None:
    cpu(), cpu("-p", "pytest_loadtest.plugin.hooks")  # warm the caches
    pairs = [(cpu(), cpu("-p", "pytest_loadtest.plugin.hooks")) for _ in range(ROUNDS)]
    difference = statistics.median(with_plugin - bare for bare, with_plugin in pairs)
    bare = statistics.median(bare for bare, _ in pairs)
    print(
        f"bare pytest {bare:.0f} ms of CPU; the plugin adds {difference:.1f} ms (median of"
        f" {ROUNDS})"
    )


if __name__ == "__main__":
    main()
