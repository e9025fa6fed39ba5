"""A replacement for ``pyspark.daemon``, which forks Spark's Python workers, on this machine.

The rule: workers of a local session start as quickly as their cluster's would, with the same code.
Spark puts a zip file with pyspark in front of the path, from which Python compiles every module
anew: a second of CPU in the daemon, and half a second in each worker. This daemon imports the
installed pyspark. Spark starts it as a process of its own, see
:mod:`pytest_loadtest.pipeline.session`.
"""

import runpy
import sys

if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    # Workers use the code that is sent to them, as on a cluster, so that both behave alike.
    for name in [name for name in sys.modules if name.partition(".")[0] == "pytest_loadtest"]:
        del sys.modules[name]
    # Imported once here and not in each worker. It starts no thread, which a fork would lose.
    import pyspark.worker  # noqa: F401

    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
