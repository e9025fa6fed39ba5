"""Workers as one load generator: one worker in this process, or all workers of xdist, which start each run together.

The controller's side is the :class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` (where workers wait for each other, when a phase ends)
and the :class:`~pytest_loadtest.fleet.run_controller.RunController` (plan, target, measurements, verdict). A worker's side is
:func:`~pytest_loadtest.fleet.member.take_part`. Both are the same with and without xdist; only the transport of the messages differs
(:mod:`~pytest_loadtest.fleet.local`, :mod:`~pytest_loadtest.fleet.xdist`). A run passes these meetings, in this order:

1. ``assign``: the lead brings the request; each worker gets its share of each workload.
2. ``prepared``, ``connect …``, ``subscribed``: topics are created, consumers connect, then producers.
3. ``next 0``, ``next 1``, …: each worker reports the phase that it finished and gets the next one, until there are no more.
4. ``closed``, ``judged``: all clients are closed; the lead gets the result.
"""
