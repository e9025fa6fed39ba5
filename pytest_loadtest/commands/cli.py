"""The command line: ``pytest-loadtest COMMAND``, or ``python -m pytest_loadtest COMMAND``.

:data:`STATUSES` has the exit statuses of all commands.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_loadtest.commands import compare, report, starter
from pytest_loadtest.errors import BrokenRun, GeneratorLimited, LoadtestError, NoData, UsageError
from pytest_loadtest.kinds.registry import kinds, shipped_costs
from pytest_loadtest.values.addresses import masked
from pytest_loadtest.values.quantities import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from pytest_loadtest.fleet.measured_run import Custom
    from pytest_loadtest.profile.client import ClientSettings

OK = 0
MISSED = 1
USAGE = 2
NO_DATA = 3
CLOSED = 128 + signal.SIGPIPE
"""As a shell reports a program that wrote to a closed pipe."""
INTERRUPTED = 128 + signal.SIGINT
_WRONG = {2: "the command line is wrong, or a file or an address in it"}
_DONE = {0: "done", **_WRONG}
STATUSES: Final[Mapping[str, Mapping[int, str]]] = {
    "doctor": {
        0: "done",
        1: "--fix: something is left to do by hand; --hosts: a host cannot be used",
        **_WRONG,
    },
    "calibrate": {
        **_DONE,
        3: "a driver could not be measured; without --driver, none could",
    },
    "aggregate": {
        0: "every objective met; a search found a rate",
        1: "an objective was missed",
        **_WRONG,
        3: "no data, or generator-limited: no verdict; with 1, the higher counts",
    },
    "learn": {**_DONE, 3: "no message came, or the target cannot be reached"},
    "report": _DONE,
    "compare": {
        0: "done; every bound on regression met",
        1: "a bound on regression was missed",
        **_WRONG,
        3: "a bound could not be judged, results cannot be read, or no test is in both;"
        " with 1, the higher counts",
    },
    "trend": _DONE,
    "init": {0: "done; files that existed were kept", **_WRONG},
    "suite": _DONE,
    "schema": _DONE,
}
"""The exit statuses of each command."""
_OUTCOMES = {"met": OK, "missed": MISSED}
_STEP = re.compile(r"step-\d+")  # name of the folder of a search's step
_LEARN = """\
 pulsar://host:6650 --admin-url http://host:8080 --topic persistent://shop/eu/orders \
-o profiles/orders.yaml
 mqtt://host:1883 --topic 'sensors/#' --for 5min --replay -o profiles/sensors.yaml"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. :returns: its exit status. argparse itself exits with 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None if it is closed
        sys.stdout.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except LoadtestError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else NO_DATA
    except OSError as error:
        closed = isinstance(error, BrokenPipeError)  # the reader, such as head, has seen enough
        if not closed:
            print(f"error: {error}", file=sys.stderr)
        # Python flushes standard output, unless it is closed, once more when it ends.
        with contextlib.suppress(AttributeError, OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED if closed else USAGE
    except KeyboardInterrupt:
        return INTERRUPTED


_DOCTOR = """
 --fix
 --hosts hosts.yaml --target pulsar://broker:6650
 --hosts hosts.yaml --target mqtt://broker --bandwidth"""


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    # The console script and `python -m` are the same program; its help shows what the user typed.
    script = Path(sys.argv[0]).name
    program = script if script == "pytest-loadtest" else "python -m pytest_loadtest"
    parser = argparse.ArgumentParser(
        prog=program,
        description="Commands for results and machines of load tests. Load itself is driven by"
        " pytest: pytest -n 2 loadtests/",
        epilog=f"{program} COMMAND --help shows its arguments, examples and exit statuses.",
        formatter_class=raw,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def command(name: str, run: Any, purpose: str, examples: str) -> argparse.ArgumentParser:
        lines = "\n".join(f"  {program} {name}{example}" for example in examples.splitlines())
        statuses = "\n".join(f"  {status}  {meaning}" for status, meaning in STATUSES[name].items())
        subparser = commands.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            epilog=f"examples:\n{lines}\n\nexit status:\n{statuses}",
            formatter_class=raw,
        )
        subparser.set_defaults(command=run)
        return subparser

    show = "show what this machine has for load tests, and the effect of each missing thing"
    _add_doctor(command("doctor", _doctor, show, _DOCTOR))
    measure = "measure the CPU cost of a message on this machine, for plans and --load-scale auto"
    calibrate = command("calibrate", _calibrate, measure, "\n --driver mqtt-qos1")
    calibrate.add_argument(
        "--driver",
        metavar="ROW",
        action="append",
        choices=shipped_costs(),
        help="only this driver and client, such as mqtt-qos1; may be repeated; up to a minute each",
    )
    _add_aggregate(
        command(
            "aggregate",
            _aggregate,
            "aggregate and judge runs again from their samples, without new load",
            " .loadtest/SESSION\n RUN_DIR --conftest conftest.py\n"
            " RUN_DIR --spark-master spark://host:7077",
        )
    )
    _add_learn(
        command(
            "learn",
            _learn,
            "sample real traffic, without changing anything, and write a profile with its shape",
            _LEARN,
        )
    )
    report.add_arguments(
        command(
            "report",
            _report,
            "make report.html again from the results of one or more sessions",
            report.EXAMPLES,
        )
    )
    compare.add_compare(
        command(
            "compare",
            _compare,
            "compare runs with earlier ones of the same tests, figure by figure",
            compare.EXAMPLES,
        )
    )
    compare.add_trend(
        command(
            "trend",
            compare.run_trend,
            "show the trend of the runs in a history file",
            " history.jsonl\n history.jsonl --test orders",
        )
    )
    _add_starters(command)
    return parser


def _add_starters(command: Callable[..., argparse.ArgumentParser]) -> None:
    _add_init(
        command(
            "init",
            _init,
            "write a first profile, its test and pytest.ini, never over an existing file",
            "\n loadtests --broker mqtt --ci github\n loadtests --service --broker mqtt",
        )
    )
    suite = command(
        "suite",
        _suite,
        "copy an acceptance suite of load tests into a new folder",
        " pulsar loadtests/pulsar",
    )
    suite.add_argument("name", choices=starter.suites(), help="the suite")
    suite.add_argument("folder", metavar="DIR", type=Path, help="a folder that does not exist yet")
    schema = command(
        "schema", _schema, "print a JSON schema, for editors and validators", "\n results"
    )
    schema.add_argument(
        "name",
        nargs="?",
        choices=starter.SCHEMAS,
        default="profile",
        help="of profiles (default), or of results.json",
    )


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        type=Path,
        default=Path(),
        help="where to write (default: here); made if it does not exist",
    )
    parser.add_argument(
        "--broker",
        choices=tuple(kinds()),
        help="the kind of broker (default: a built-in relay that needs nothing)",
    )
    parser.add_argument(
        "--service",
        action="store_true",
        help="load through a service: a profile with its route and template, the service, a test",
    )
    parser.add_argument("--ci", choices=starter.CI_FILES, help="also write its repository's CI job")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        action="store_true",
        help="install what is missing (Debian packages, when root) and fetch brokers' jars",
    )
    parser.add_argument(
        "--hosts",
        metavar="FILE",
        help="check these hosts instead (as for pytest --load-hosts): versions, limits, clocks",
    )
    parser.add_argument(
        "--target",
        metavar="URL",
        help="with --hosts: check that each host can connect to this broker",
    )
    parser.add_argument(
        "--bandwidth",
        action="store_true",
        help="with --target: let each host in turn send to the broker for some seconds,"
        " as fast as it accepts; at most 5 GiB each",
    )
    parser.add_argument(
        "--admin-url",
        metavar="URL",
        help="with --bandwidth: Pulsar's admin REST, http://host:8080, to remove the topic",
    )
    parser.add_argument(
        "--like",
        metavar="PROFILE",
        type=Path,
        help="with --bandwidth: connect with this profile's driver section",
    )


def _add_aggregate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_dir",
        metavar="RUN_DIR",
        type=Path,
        help="a run's folder (it holds run.json), or one with runs below it",
    )
    parser.add_argument(
        "--conftest", metavar="FILE", type=Path, help="call its pytest_loadtest_aggregate, too"
    )
    parser.add_argument("--spark-master", metavar="URL", help="Spark master (default: local[*])")
    parser.add_argument(
        "--spark-remote", metavar="URL", help="Spark Connect server, sc://host:port"
    )
    parser.add_argument(
        "--spark-conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        type=_pair,
        help="Spark setting; may be repeated",
    )


def _add_learn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="pulsar://, pulsar+ssl://, mqtt:// or mqtts://")
    parser.add_argument(
        "--topic", action="append", required=True, help="may be repeated; on MQTT with wildcards"
    )
    parser.add_argument("--admin-url", metavar="URL", help="Pulsar's admin REST, http://host:8080")
    parser.add_argument(
        "--like",
        metavar="PROFILE",
        type=Path,
        help="connect with this profile's driver section (user, token, TLS)",
    )
    parser.add_argument(
        "--for",
        metavar="TIME",
        dest="duration",
        type=_duration,
        default="30s",
        help="how long at most (default: 30s)",
    )
    parser.add_argument(
        "--messages",
        metavar="N",
        type=_count,
        default="1000000",
        help="how many at most (default: 1000000)",
    )
    parser.add_argument(
        "--replay", action="store_true", help="write the rate of every second, not only the mean"
    )
    parser.add_argument(
        "-o",
        metavar="FILE",
        dest="output",
        type=Path,
        help="write the profile to this new file (default: print it)",
    )


def _duration(text: str) -> int:
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not duration:
        raise argparse.ArgumentTypeError(f"{text!r}: write more than 0")
    return duration


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number above 0")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE")
    return key, value


def _print_line(text: str) -> None:
    print(text, flush=True)


def _doctor(options: argparse.Namespace) -> int:
    from pytest_loadtest.commands import doctor

    if (options.admin_url or options.like) and not options.bandwidth:
        raise UsageError("doctor: --admin-url and --like are for --bandwidth: add it")
    if options.bandwidth and not (options.hosts and options.target):
        raise UsageError(
            "doctor --bandwidth needs --hosts and --target: add --hosts FILE --target URL"
        )
    if options.hosts:
        from pytest_loadtest.commands.hosts import bandwidth_request, check_hosts

        probe = None
        if options.bandwidth:
            probe = bandwidth_request(
                options.target, options.admin_url, _settings_like(options.like)
            )
        return OK if check_hosts(options.hosts, options.target, _print_line, probe) else MISSED
    if options.target:
        raise UsageError(
            f"doctor --target {masked(options.target)}: only hosts are checked against a broker:"
            " name them with --hosts FILE"
        )
    machine = doctor.take_inventory()
    _print_line(doctor.render(doctor.inspect(machine)))
    if not options.fix:
        return OK
    _print_line("")
    done = doctor.fix(machine, _print_line)
    _print_line("nothing is left to do" if done else "something is left to do by hand: see above")
    return OK if done else MISSED


def _settings_like(path: Path | None) -> ClientSettings | None:
    """Return the driver section of a profile; None without one."""
    from pytest_loadtest import profile

    return None if path is None else profile.load(path).driver


def _calibrate(options: argparse.Namespace) -> int:
    from pytest_loadtest.commands import calibrate

    measured = {}
    failed = 0
    for key in dict.fromkeys(options.driver or calibrate.measurable_rows()):
        try:
            measured[key] = calibrate.calibrate(key, _print_line)
        except BrokenRun as error:
            failed += 1
            print(f"{key}: not measured: {error}", file=sys.stderr, flush=True)
    if measured:
        _print_line("\n".join(["", *calibrate.table(measured)]))
        _print_line(f"kept in {calibrate.keep(measured)}")
    return NO_DATA if failed and (options.driver or not measured) else OK


def _aggregate(options: argparse.Namespace) -> int:
    folders = runs_in(options.run_dir)
    from pytest_loadtest.pipeline.session import SparkHost
    from pytest_loadtest.plugin.aggregate_hook import hook_of_conftest

    custom = None
    if options.conftest is not None:
        custom = hook_of_conftest(options.conftest)
    logs = Path(tempfile.mkdtemp(prefix="pytest-loadtest-spark-"))
    host = SparkHost(logs, dict(options.spark_conf), options.spark_master, options.spark_remote)
    try:
        session = host.session()  # if it cannot start, its log is kept: the error names it
        statuses = []
        for search in searches(folders):
            statuses.append(_status({folder: _judge(session, folder, custom) for folder in search}))
    finally:
        host.stop()
    shutil.rmtree(logs, ignore_errors=True)
    return max(statuses)


def runs_in(folder: Path) -> list[Path]:
    """Return the run folder itself, or every one below it, in order of name.

    :raises UsageError: there is none.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    # As in results: absolute, with symbolic links.
    root = Path(os.path.abspath(folder))  # noqa: PTH100
    if (root / "run.json").is_file():
        return [root]
    runs = sorted(path.parent for path in root.rglob("run.json"))
    if not runs:
        raise UsageError(
            f"{folder}: no run here or below; a run's folder holds run.json,"
            " and a report names it after 'results'"
        )
    return runs


def searches(folders: Sequence[Path]) -> list[list[Path]]:
    """Group the steps of a search for the highest rate, as they have one result.

    Any other run is a group of one.
    """
    groups: dict[Path, list[Path]] = {}
    for folder in folders:
        group = folder.parent if _STEP.fullmatch(folder.name) else folder
        groups.setdefault(group, []).append(folder)
    return list(groups.values())


def _status(outcomes: Mapping[Path, str]) -> int:
    """Return the exit status of a run, or of the steps of a search.

    A search has that of the step with the rate that it found, as other steps may miss
    objectives.

    The rate comes from results.json: it was found while load ran and is not in the samples.
    """
    from pytest_loadtest.fleet.judge import read_results

    def has_answer(folder: Path) -> bool:
        step = read_results(folder)
        return step is not None and step.peak is not None

    best = [folder for folder in outcomes if not _STEP.fullmatch(folder.name) or has_answer(folder)]
    if not best:
        _print_line(
            f"{next(iter(outcomes)).parent}: NO DATA\n  no step has the rate that the search found:"
            " it was cut short, or results.json is missing"
        )
    return max([_OUTCOMES.get(outcomes[folder], NO_DATA) for folder in best], default=NO_DATA)


def _judge(session: SparkSession, folder: Path, custom: Custom | None) -> str:
    """Print the summary of the samples in a folder. :returns: their outcome."""
    from pytest_loadtest.fleet.judge import conclude_run, read_results
    from pytest_loadtest.fleet.measured_run import measure_run
    from pytest_loadtest.pipeline.run_file import RunFile
    from pytest_loadtest.report.terminal import summary_lines

    try:
        if not RunFile.read(folder).ended:
            raise NoData(
                "the load of this run did not end normally; results.json, if it exists,"
                " has the reason"
            )
        run = measure_run(session, folder, custom)
        _, document = conclude_run(run, before=read_results(folder))
    except BrokenRun as error:
        outcome = "generator-limited" if isinstance(error, GeneratorLimited) else "no data"
        _print_line(f"{folder}: {outcome.upper()}\n  {error}")
        return outcome
    _print_line("\n".join(summary_lines(document, unicode=compare.prints_unicode())))
    return document.verdict.outcome.value


def _report(options: argparse.Namespace) -> int:
    _print_line(report.rebuild_report(options.folders, options.output, options.history))
    return OK


def _compare(options: argparse.Namespace) -> int:
    outcomes = compare.run_compare(options)
    return max([_OUTCOMES.get(outcome, NO_DATA) for outcome in outcomes], default=OK)


def _learn(options: argparse.Namespace) -> int:
    from pytest_loadtest.commands.learn import learn

    output = options.output
    if output is not None:
        try:
            output.touch(exist_ok=False)  # not after an hour of sampling
        except OSError as error:
            raise UsageError(f"cannot make {output}: {error.strerror}: name another file") from None
    shown = ""
    try:
        shown = learn(
            options.url,
            options.topic,
            admin_url=options.admin_url,
            settings=_settings_like(options.like),
            duration=options.duration,
            most=options.messages,
            replay=options.replay,
            announce=lambda line: print(line, file=sys.stderr, flush=True),
        )
        if output is not None:
            output.write_text(shown, encoding="utf-8")
            shown = f"{output} written; read its comments before you run it\n"
    except BaseException:
        # Another process may have removed the empty file, or written one of its own.
        with contextlib.suppress(OSError):
            if output is not None and not output.stat().st_size:
                output.unlink()
        raise
    finally:
        print(shown, end="", flush=True)  # the profile too, if it cannot be written
    return OK


def _init(options: argparse.Namespace) -> int:
    files = starter.starter_files(
        options.folder, options.broker, options.ci, service=options.service
    )
    starter.write_starter(options.folder, files, _print_line)
    place = "" if options.folder == Path() else f"cd {shlex.quote(str(options.folder))} && "
    broker = " --load-broker-mode process" if options.broker else ""
    starter.show_next(f"{place}pytest -n 2{broker}", _print_line)
    return OK


def _suite(options: argparse.Namespace) -> int:
    starter.copy_suite(options.name, options.folder)
    command = f"pytest {shlex.quote(str(options.folder))} -n 2 --load-broker-mode process"
    starter.show_next(command, _print_line)
    return OK


def _schema(options: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # JSON has no escape such as \xb5
    _print_line(starter.schema_text(options.name).rstrip("\n"))
    return OK
