"""Workers as one load generator: one worker in this process, or all workers of xdist.

The controller's side is the :class:`~pytest_loadtest.fleet.rendezvous.Rendezvous` (where workers
wait for each other, when a phase ends), the
:class:`~pytest_loadtest.fleet.run_controller.RunController` (what the runs of a session share:
targets, Spark, results) and a :class:`~pytest_loadtest.fleet.planned_run.PlannedRun` for each run.
A worker's side is a :class:`~pytest_loadtest.fleet.member.WorkerRun`, with a
:class:`~pytest_loadtest.fleet.workload_share.WorkloadShare` for each workload. Both sides are the
    same with and without xdist; only the transport of the messages differs
    (:mod:`~pytest_loadtest.fleet.local`, :mod:`~pytest_loadtest.fleet.xdist`). The steps of a run
    are in
:mod:`~pytest_loadtest.fleet.messages`, its states in :mod:`~pytest_loadtest.fleet.run_states`, and
what may happen in each in :mod:`~pytest_loadtest.fleet.transitions`.

Who runs what:

=============================  ==========  =======================================================
class                          process     thread, and the rendezvous' lock
=============================  ==========  =======================================================
``Run`` (pure)                 controller  any, always under the lock
``Drain``, watches (pure)      controller  as ``Run``; ``Drain.answered`` in the thread that asked
                                           the target
``Rendezvous.receive``         controller  takes the lock; local: the thread that drives load;
                                           xdist: execnet's receiver, and xdist's main loop for
                                           ``Arrive`` and ``Again``
``RunController.answer``       controller  a thread for each step, without the lock; with it
                                           ``PlannedRun``, ``WorkloadRun``, ``RunClocks`` and
                                           ``RunResults``
``RunController.check``        controller  ``loadtest-watch``, without the lock
``HostClocks.ask_under_load``  controller  ``loadtest-clocks``, without the lock
other methods of the same      controller  that of ``receive``, with the lock held; with it
                                           ``PlannedRun.look`` and ``Display.show``
``WorkerRun``, ``Link``,       worker      the one that sets fixtures up, then the one that drives
``WorkloadShare``                          load; a live body sends commands from its own
``SampleTransfer``             worker      as ``WorkloadShare``, and ``loadtest-samples``
``HostSampler``                worker      as ``WorkloadShare``; it samples in a child process
=============================  ==========  =======================================================

What happens when one of them dies or falls silent, in each state of the run:

================  ==============================  ================================================
who               in which state                  what happens, and its test
================  ==============================  ================================================
a worker          Gathering                       it is not waited for:
                                                  ``test_a_worker_that_is_gone_is_not_waited_for``
a member          Working, Meeting, Answering,    the run is given up with an error that names it:
                  DrivingLoad                     ``test_a_row_of_the_table_does_what_it_says``,
                                                  fault ``worker-killed``
a member          Concluded, GivenUp, Ended       nothing:
                                                  ``test_a_run_with_results_is_not_given_up``
the lead          Working, Meeting, Answering,    given up and ended, the others are released:
                  DrivingLoad                     ``test_a_lead_that_dies_releases_the_others``,
                                                  fault ``lead-killed``
the lead          Concluded, GivenUp              ended; results remain:
                                                  ``test_a_run_with_results_is_not_given_up``
the lead          Ended                           nothing:
                                                  ``test_a_row_of_the_table_does_what_it_says``
the lead          between two attempts            nothing starts:
                                                  ``test_what_a_dead_worker_sent_last_starts_nothing``
a silent member   Meeting                         given up after the timeout, and killed after
                                                  another one, unless its fixtures take so long:
                                                  ``test_a_worker_that_misses_a_meeting_is_an_error``,
                                                  ``test_a_worker_that_stays_silent_is_killed``
a silent member   DrivingLoad                     given up after the timeout, and killed:
                                                  ``test_a_worker_that_sends_nothing_is_named_and_killed``
a silent member   Working, a Meeting of the       no limit but the test's own timeout:
                  setup before the lead,          ``test_the_body_of_a_live_test_may_prepare_for_long``
                  Answering
another host      any                             its workers are lost, as above: fault
                                                  ``host-lost``; if it is only silent,
                                                  ``test_a_host_that_does_not_answer_is_named``
Spark             any                             started anew once; then the answer fails and the
                                                  run is given up: fault ``spark-killed-load``,
                                                  fault ``spark-killed-twice``
the target        Working, Meeting, Answering,    given up within a second:
                  DrivingLoad                     ``test_a_target_that_is_gone_aborts_the_run``
the target        Concluded, GivenUp, Ended       not looked at any more:
                                                  ``test_a_run_that_is_over_is_not_watched``
a service         before the load                 the load does not begin:
                                                  ``test_a_load_does_not_begin_without_services``
a service         DrivingLoad                     the report says so:
                                                  ``test_a_dead_service_is_a_cause_of_a_miss``
the controller    any                             the channel's end is ``SessionClosed``, workers
                                                  end:
                                                  ``test_the_end_of_a_run_is_raised_at_a_meeting_and_while_load_runs``
================  ==============================  ================================================
"""
