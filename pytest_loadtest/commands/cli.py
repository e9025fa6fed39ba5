"""``python -m pytest_loadtest {doctor,calibrate,aggregate,report,compare,trend,learn}``: what is done outside a pytest session.

Exit status, the same for all commands: see :data:`STATUSES`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_loadtest.commands import compare, report
from pytest_loadtest.errors import BrokenRun, GeneratorLimited, LoadtestError, NoData, UsageError
from pytest_loadtest.kinds.registry import shipped_costs
from pytest_loadtest.values.quantities import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from pytest_loadtest.fleet.measured_run import Custom

OK, MISSED, USAGE, NO_DATA = 0, 1, 2, 3
STATUSES = """\
exit status:
  0  done; every objective met
  1  doctor --fix: something is left to do by hand; aggregate: an objective was missed; compare: a bound on regression was
  2  the command line is wrong, or names no run, profile or topic
  3  no data, or generator-limited: nothing can be said
With several runs, the highest of 0, 1 and 3. A search is one run: 0 where it found a rate.
"""
_OUTCOMES = {"met": OK, "missed": MISSED}
_STEP = re.compile(r"step-\d+")  # how the folders of a search's steps are named
_LEARN = """\
 pulsar://host:6650 --admin-url http://host:8080 --topic persistent://shop/eu/orders -o profiles/orders.yaml
 mqtt://host:1883 --topic 'sensors/#' --for 5min --replay -o profiles/sensors.yaml"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. argparse exits with 2 by itself."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except LoadtestError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else NO_DATA
    return status


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    about = "Load tests, outside pytest."
    parser = argparse.ArgumentParser(prog="python -m pytest_loadtest", description=about, epilog=STATUSES, formatter_class=raw)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, purpose: str, examples: str) -> argparse.ArgumentParser:
        lines = "\n".join(f"  python -m pytest_loadtest {name}{example}" for example in examples.splitlines())
        made = commands.add_parser(
            name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.", epilog=f"examples:\n{lines}\n\n{STATUSES}",
            formatter_class=raw,
        )  # fmt: skip
        made.set_defaults(command=run)
        return made

    doctor = command("doctor", _doctor, "show what this machine has for load tests, and what each missing thing costs", "\n --fix")
    doctor.add_argument("--fix", action="store_true", help="install what is missing (Debian packages, when root) and fetch brokers' jars")
    measure = "measure this machine's CPU cost of a message, for plans and --load-scale auto"
    calibrate = command("calibrate", _calibrate, measure, "\n --driver mqtt-qos1")
    calibrate.add_argument(
        "--driver",
        metavar="ROW",
        action="append",
        type=_row,
        help="only this driver and client, such as pulsar-native or mqtt-qos1; may be repeated; up to a minute each",
    )
    again = " .loadtest/SESSION\n RUN_DIR --conftest conftest.py\n RUN_DIR --spark-master spark://host:7077"
    aggregate = command("aggregate", _aggregate, "aggregate and judge runs again from their samples, without new load", again)
    _add_aggregate(aggregate)
    shape = "look at real traffic, changing nothing, and write a profile that has its shape"
    learn = command("learn", _learn, shape, _LEARN)
    _add_learn(learn)
    again_page = command("report", _report, "make report.html again from results, of several sessions too", report.EXAMPLES)
    report.add_arguments(again_page)
    figures = "hold runs against earlier ones of the same tests, figure by figure"
    comparer = command("compare", _compare, figures, " .loadtest/SESSION .loadtest/LATER\n release-4.0/results.json results.json --json")
    compare.add_compare(comparer)
    trends = command("trend", compare.run_trend, "show how the runs in a history file went", " history.jsonl\n history.jsonl --test orders")
    compare.add_trend(trends)
    return parser


def _add_aggregate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="a run's folder (it holds run.json), or one with runs below it")
    parser.add_argument("--conftest", metavar="FILE", type=Path, help="have its pytest_loadtest_aggregate measure again too")
    parser.add_argument("--spark-master", metavar="URL", help="Spark master (default: local[*])")
    parser.add_argument("--spark-remote", metavar="URL", help="Spark Connect server, sc://host:port")
    parser.add_argument("--spark-conf", metavar="KEY=VALUE", action="append", default=[], type=_pair, help="Spark setting; may be repeated")


def _add_learn(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="pulsar://, pulsar+ssl://, mqtt:// or mqtts://")
    parser.add_argument("--topic", action="append", required=True, help="may be repeated; on MQTT with wildcards")
    parser.add_argument("--admin-url", metavar="URL", help="Pulsar's admin REST, http://host:8080")
    parser.add_argument("--like", metavar="PROFILE", type=Path, help="connect as this profile's driver section says (user, token, TLS)")
    parser.add_argument("--for", metavar="TIME", dest="duration", type=_duration, default="30s", help="how long at most (default: 30s)")
    parser.add_argument("--messages", metavar="N", type=_count, default="1000000", help="how many at most (default: 1000000)")
    parser.add_argument("--replay", action="store_true", help="write the rate of every second, not only the mean")
    parser.add_argument(
        "-o", metavar="FILE", dest="output", type=Path, help="write the profile here, where nothing is yet (default: print it)"
    )


def _row(text: str) -> str:
    if text not in (known := shipped_costs()):
        raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(known)})")
    return text


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


# --- doctor


def _doctor(options: argparse.Namespace) -> int:
    from pytest_loadtest.commands import doctor

    found = doctor.collect()
    _print_line(doctor.render(doctor.rows(found)))
    if not options.fix:
        return OK
    _print_line("")
    done = doctor.fix(found, _print_line)
    _print_line("nothing is left to do" if done else "not everything could be done here: see above")
    return OK if done else MISSED


# --- calibrate


def _calibrate(options: argparse.Namespace) -> int:
    from pytest_loadtest.commands import calibrate

    measured, failed = {}, 0
    for key in dict.fromkeys(options.driver or calibrate.rows()):
        try:
            measured[key] = calibrate.calibrate(key, _print_line)
        except BrokenRun as error:
            failed += 1
            print(f"{key}: not measured: {error}", file=sys.stderr, flush=True)
    if measured:
        path = calibrate.keep(measured)
        _print_line("\n".join(["", *calibrate.table(measured), f"kept in {path}"]))
    return NO_DATA if failed and (options.driver or not measured) else OK


# --- aggregate


def _aggregate(options: argparse.Namespace) -> int:
    folders = runs_in(options.run_dir)
    from pytest_loadtest.pipeline.session import SparkHost
    from pytest_loadtest.plugin.aggregate_hook import hook_of_conftest

    custom = None if options.conftest is None else hook_of_conftest(options.conftest)
    logs = Path(tempfile.mkdtemp(prefix="pytest-loadtest-spark-"))
    host = SparkHost(logs, dict(options.spark_conf), options.spark_master, options.spark_remote)
    try:
        session = host.session()  # where it cannot start, its log stays: the error names it
        status = max(_status(search, {folder: _judge(session, folder, custom) for folder in search}) for search in searches(folders))
    finally:
        host.stop()
    shutil.rmtree(logs, ignore_errors=True)
    return status


def runs_in(folder: Path) -> list[Path]:
    """The run folder itself, or every one below it, in order of name.

    :raises UsageError: there is none.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    root = Path(os.path.abspath(folder))  # noqa: PTH100  # as results name it: absolute, symbolic links left as they are
    found = [root] if (root / "run.json").is_file() else sorted(path.parent for path in root.rglob("run.json"))
    if not found:
        raise UsageError(f"{folder}: no run here or below; a run's folder holds run.json, and a report names it after 'results'")
    return found


def searches(folders: Sequence[Path]) -> list[list[Path]]:
    """The runs that have one answer together: the steps of a search for the highest rate. Any other run stands for itself."""
    found: dict[Path, list[Path]] = {}
    for folder in folders:
        found.setdefault(folder.parent if _STEP.fullmatch(folder.name) else folder, []).append(folder)
    return list(found.values())


def _status(search: Sequence[Path], outcomes: Mapping[Path, str]) -> int:
    """Of one run, or of a search: that of the step which stands for the answer, for what the others missed is how it was found.

    The answer was worked out while load ran; the samples do not hold it.
    """
    from pytest_loadtest.fleet.judge import read_results

    best = [folder for folder in search if not _STEP.fullmatch(folder.name) or read_results(folder).get("peak") is not None]
    if not best:
        _print_line(f"{search[0].parent}: NO DATA\n  no step has the rate that the search found: it broke off, or results.json is gone")
    return max([_OUTCOMES.get(outcomes[folder], NO_DATA) for folder in best], default=NO_DATA)


def _judge(session: SparkSession, folder: Path, custom: Custom | None) -> str:
    """The outcome of the samples in a folder."""
    from pytest_loadtest.fleet.judge import conclude_run, read_results
    from pytest_loadtest.fleet.measured_run import measure_run, read_run
    from pytest_loadtest.report.terminal import summary_lines

    try:
        if not read_run(folder).get("ended"):
            raise NoData("the load of this run did not come to its end; results.json, where there is one, says why")
        _, document = conclude_run(measure_run(session, folder, custom), before=read_results(folder))
    except BrokenRun as error:
        outcome = "generator-limited" if isinstance(error, GeneratorLimited) else "no data"
        _print_line(f"{folder}: {outcome.upper()}\n  {error}")
        return outcome
    _print_line("\n".join(summary_lines(document, unicode=compare.unicode())))
    found: str = document["verdict"]["outcome"]
    return found


# --- report


def _report(options: argparse.Namespace) -> int:
    _print_line(report.make(options.folders, options.output, options.history))
    return OK


# --- compare


def _compare(options: argparse.Namespace) -> int:
    return max([_OUTCOMES.get(outcome, NO_DATA) for outcome in compare.run_compare(options)], default=OK)


# --- learn


def _learn(options: argparse.Namespace) -> int:
    from pytest_loadtest import profile
    from pytest_loadtest.commands.learn import learn

    if options.output is not None and options.output.exists():
        raise UsageError(f"{options.output} is there already: name another file, or remove it")
    if options.output is not None and not options.output.parent.is_dir():
        raise UsageError(f"{options.output} cannot be written: no folder {options.output.parent}")
    settings = None if options.like is None else profile.load(options.like).driver
    text = learn(
        options.url, options.topic, admin_url=options.admin_url, settings=settings, duration=options.duration, most=options.messages,
        replay=options.replay, announce=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    if options.output is None:
        _print_line(text.rstrip("\n"))
        return OK
    try:
        options.output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{options.output} cannot be written: {error.strerror}") from error
    _print_line(f"{options.output} written; look at its comments before you run it")
    return OK
