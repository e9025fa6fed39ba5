"""How workers become one load generator: one worker in this process, or all workers of xdist as a gang.

The controller's side is the :class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` (who meets where, when a drain ends) and the
:class:`~pytest_loadtest.fleet.run_controller.RunController` (plan, target, aggregation, verdict). A worker's side is
:func:`~pytest_loadtest.fleet.member.take_part`. Both are the same with and without xdist; only the link between them differs.
"""
