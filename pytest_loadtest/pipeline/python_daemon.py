"""What Spark starts on this machine in place of ``pyspark.daemon``, which forks its Python workers.

Spark puts pyspark as a zip file in front of the path, from where Python compiles every module anew: a second of CPU in the daemon, and
half of one in each worker. Here it is taken from where it is installed.
"""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_loadtest"]:
        del sys.modules[name]  # workers have what is sent to them, as on a cluster, and nothing of ours
    import pyspark.worker  # noqa: F401 - once, and not in each worker; it starts no thread, which a fork would lose

    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
