"""The files that ``init`` writes, and the suites that it copies."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from helpers.comments_api import TOKEN, serve_comments

from pytest_loadtest import profile
from pytest_loadtest.commands import cli, starter
from pytest_loadtest.errors import UsageError
from pytest_loadtest.fleet import option_rows
from pytest_loadtest.kinds.registry import kinds
from pytest_loadtest.pipeline import java_process
from pytest_loadtest.plan.plan import profile_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from helpers.comments_api import Comments

PAGE = Path(__file__).parents[3] / "docs/howto/run-in-ci.md"
MARKER = "<!-- pytest-loadtest -->\n"
UPDATE = {"github": "PATCH", "gitlab": "PUT"}


def scripts(node: Any) -> Iterator[str]:
    """Yield every shell script in a job: ``run`` of a step of GitHub, a line of GitLab's script."""
    if isinstance(node, list):
        for entry in node:
            yield from scripts(entry)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "run" and isinstance(value, str):  # defaults have a run of their own
                yield value
            elif key == "script":
                yield from value
            else:
                yield from scripts(value)


def templates() -> dict[str, list[str]]:
    """Return the scripts of each job that ``init`` writes."""
    found = {}
    for ci, path in starter.CI_FILES.items():
        files = starter.starter_files(Path("/nowhere"), None, ci, service=False)
        found[ci] = list(scripts(yaml.safe_load(files[f"/nowhere/{path}"])))
    return found


def shown() -> list[str]:
    """Return the scripts of the documentation's page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    documents = [yaml.safe_load(block) for block in blocks]
    found = []
    for document in documents:
        # The lines of GitLab's script are shown without their job.
        plain = isinstance(document, list) and any(isinstance(line, str) for line in document)
        found += document if plain else scripts(document)
    return found


def posting(ci: str) -> str:
    (script,) = [script for script in templates()[ci] if "curl" in script]
    return script


def post(ci: str, api: Comments, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script that writes the comment, as the CI's runner does."""
    environment = {
        "PATH": os.environ["PATH"],
        "TOKEN": TOKEN,
        "NUMBER": "7",
        "GITHUB_API_URL": api.url,
        "GITHUB_REPOSITORY": "shop/orders",
        "LOADTEST_TOKEN": TOKEN,
        "CI_API_V4_URL": api.url,
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "7",
    }
    command = ["bash", "-e", "-o", "pipefail", "-c", posting(ci)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("broker", kinds())
def test_the_profile_of_a_new_project_is_valid_for_every_broker(
    broker: str, tmp_path: Path
) -> None:
    assert cli.main(["init", str(tmp_path), "--broker", broker]) == cli.OK
    assert profile.load(tmp_path / "profiles/orders.yaml").driver.name == broker


@pytest.mark.parametrize("broker", [None, "loopback", "mqtt", "pulsar"])
def test_a_new_project_with_a_service_is_valid(broker: str | None, tmp_path: Path) -> None:
    """For a broker the test starts the service that is written next to it."""
    chosen = ["--broker", broker] if broker else []
    assert cli.main(["init", str(tmp_path), "--service", *chosen]) == cli.OK
    loaded = profile.load(tmp_path / "profiles/confirmed.yaml")
    assert loaded.driver.name == (broker or "loopback")
    assert loaded.route is not None
    assert profile_pool(loaded).patterns
    services = [path.name for path in tmp_path.glob("orders_*.py")]
    test = (tmp_path / "test_confirmed.py").read_text(encoding="utf-8")
    assert [name for name in services if f'"{name}"' in test] == services
    assert services == ([f"orders_{broker}.py"] if broker in ("mqtt", "pulsar") else [])
    for file in tmp_path.glob("*.py"):
        compile(file.read_text(encoding="utf-8"), str(file), "exec")


def test_a_broker_without_a_service_is_a_usage_error() -> None:
    """That of a package, say."""
    with pytest.raises(UsageError, match="no service for redis .* choose loopback or mqtt or pul"):
        starter.starter_files(Path(), "redis", None, service=True)


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_job_installs_what_brokers_need(ci: str, tmp_path: Path) -> None:
    assert cli.main(["init", str(tmp_path), "--ci", ci]) == cli.OK
    text = (tmp_path / starter.CI_FILES[ci]).read_text(encoding="utf-8")
    assert yaml.safe_load(text)
    assert "default-jre-headless maven mosquitto\n" in text


@pytest.mark.parametrize("ci", starter.CI_FILES)
@pytest.mark.parametrize("git", ["folder", "file"])
def test_a_job_is_written_where_the_ci_reads_it(
    git: str, ci: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the root of the work tree, whose ``.git`` may be a file; the job runs in the folder."""
    mark = tmp_path / ".git"
    if git == "folder":
        mark.mkdir()
    else:
        mark.write_text("gitdir: /elsewhere\n", encoding="utf-8")
    below = tmp_path / "some tests"
    below.mkdir()
    monkeypatch.chdir(below)
    assert cli.main(["init", "load", "--ci", ci]) == cli.OK
    assert not (below / "load" / starter.CI_FILES[ci]).exists()
    text = (tmp_path / starter.CI_FILES[ci]).read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    inside = "some tests/load/"
    if ci == "github":
        job = document["jobs"]["load"]
        assert job["defaults"]["run"]["working-directory"] == f"./{inside}"
        results = job["steps"][-1]["with"]["path"].splitlines()
    else:
        job = document["load"]
        assert job["script"][0] == f'cd "./{inside}"'
        results = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]
    assert all(path.startswith(inside) for path in results)
    lines = [line for script in scripts(document) for line in script.splitlines()]
    assert [line for line in lines if ".base/" in line and f'".base/{inside}' not in line] == []


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_job_finds_the_requirements_that_it_installs(ci: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "load"
    assert cli.main(["init", str(folder), "--ci", ci]) == cli.OK
    job = (tmp_path / starter.CI_FILES[ci]).read_text(encoding="utf-8")
    (named,) = re.findall(r"pip install -r (\S+)", job)
    lines = (folder / named).read_text(encoding="utf-8").splitlines()
    requirements = [line for line in lines if not line.startswith("#")]
    assert requirements == [f"pytest-loadtest=={version('pytest-loadtest')}"]


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_job_for_the_root_of_a_repository_names_no_folder(ci: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert cli.main(["init", str(tmp_path), "--ci", ci]) == cli.OK
    text = (tmp_path / starter.CI_FILES[ci]).read_text(encoding="utf-8")
    assert "FOLDER" not in text
    assert re.search(r"^ +load\.xml$|junit: \"load\.xml\"", text, re.MULTILINE)


def test_jobs_and_examples_install_and_start_what_exists() -> None:
    """The package is on no index, and former spellings of options are hidden."""
    root = PAGE.parents[2]
    found = [line for lines in templates().values() for line in lines]
    readme = (root / "examples/order-service/README.md").read_text(encoding="utf-8")
    text = "\n".join([*found, *shown(), readme])
    installed = re.findall(r"pip install (\S+(?: requirements\S*)?)", text)
    assert set(installed) == {"-r requirements-load.txt", "../.."}
    former = [row.former for row in option_rows.ROWS if row.former]
    assert former
    assert [name for name in former if re.search(rf"{name}(?![\w-])", text)] == []


def test_the_job_of_a_repository_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".git").mkdir()
    own = tmp_path / ".gitlab-ci.yml"
    own.write_text("mine", encoding="utf-8")
    assert cli.main(["init", str(tmp_path / "load"), "--ci", "gitlab"]) == cli.OK
    assert own.read_text(encoding="utf-8") == "mine"
    assert f"kept   {own}: it exists" in capsys.readouterr().out


def test_a_folder_that_a_job_cannot_name_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written."""
    (tmp_path / ".git").mkdir()
    assert cli.main(["init", str(tmp_path / "a$b"), "--ci", "github"]) == cli.USAGE
    assert "no job for a$b/: name a folder of" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [".git"]


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "pytest.ini"
    own.write_text("[pytest]\n", encoding="utf-8")
    service = tmp_path / "orders_mqtt.py"
    service.write_text("mine", encoding="utf-8")
    assert cli.main(["init", str(tmp_path), "--service", "--broker", "mqtt"]) == cli.OK
    assert own.read_text(encoding="utf-8") == "[pytest]\n"
    assert service.read_text(encoding="utf-8") == "mine"
    output = capsys.readouterr().out
    assert f"kept   {own}: it exists" in output
    assert f"kept   {service}: it exists" in output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.toml", ""),
        (".pytest.ini", "[pytest]\n"),
        ("setup.cfg", "[metadata]\nauthor = B\xfc\n[tool:pytest]\n"),
        ("pyproject.toml", "[project]\n\n[tool.pytest.ini_options]\n"),
        ("pyproject.toml", "[tool.pytest]\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
        ("pytest.toml", "[pytest]\n"),
    ],
)
def test_the_configuration_of_a_project_stays_in_force(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pytest would ignore it next to a new pytest.ini. It need not be UTF-8."""
    own = tmp_path / name
    own.write_text(text, encoding="latin-1")
    assert cli.main(["init", str(tmp_path)]) == cli.OK
    assert own.read_text(encoding="latin-1") == text
    assert not (tmp_path / "pytest.ini").exists()
    output = capsys.readouterr().out
    assert f"kept   {own}: it exists\n       its load_profiles, if set, must be profiles" in output


@pytest.mark.parametrize("name", ["pyproject.toml", "tox.ini", "setup.cfg"])
def test_a_file_without_pytests_configuration_does_not_count(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("[tool.ruff]\n# [pytest]\n", encoding="utf-8")
    assert cli.main(["init", str(tmp_path)]) == cli.OK
    assert (tmp_path / "pytest.ini").exists()


def test_the_next_command_is_quoted_for_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["init"], ["suite", "pulsar"]):
        folder = str(tmp_path / f"{command[0]} of 'mine'")
        assert cli.main([*command, folder]) == cli.OK
        line = capsys.readouterr().out.splitlines()[-1]
        assert shlex.split(line.removeprefix("next: "))[1] == folder


def test_a_folder_that_cannot_be_made_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert cli.main(["init", str(file / "below")]) == cli.USAGE
    assert cli.main(["suite", "pulsar", str(file)]) == cli.USAGE
    error = capsys.readouterr().err
    assert "cannot be written: Not a directory" in error
    assert f"{file} exists: name a new folder" in error


def test_a_suite_is_copied_into_a_new_folder(tmp_path: Path) -> None:
    assert cli.main(["suite", "pulsar", str(tmp_path / "new")]) == cli.OK
    assert (tmp_path / "new/conftest.py").is_file()


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_the_shell_of_a_job_is_valid(ci: str) -> None:
    for script in templates()[ci]:
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), script


def test_the_shell_shown_is_valid_and_writes_comments_like_the_jobs() -> None:
    found = shown()
    for script in found:
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), script
    for ci in starter.CI_FILES:
        assert posting(ci) in found


def test_the_shell_of_a_reused_checkout_can_add_the_target_branch_again(tmp_path: Path) -> None:
    """Git still has the worktree of the last job, whose folder the runner has removed."""
    commands = [
        line.strip()
        for script in [*shown(), *(line for lines in templates().values() for line in lines)]
        for line in script.splitlines()
        if "git worktree" in line
    ]
    assert len(commands) == 4
    setup = """\
git init --quiet
git -c user.name=a -c user.email=a@b.example commit --quiet --allow-empty --message one
git -c user.name=a -c user.email=a@b.example commit --quiet --allow-empty --message two
export CI_MERGE_REQUEST_DIFF_BASE_SHA=HEAD^
"""
    for number, command in enumerate(commands):
        folder = tmp_path / str(number)
        folder.mkdir()
        script = f"{setup}{command}\nrm -r .base\n{command}"
        done = subprocess.run(
            ["bash", "-ec", script], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


needs_clients = pytest.mark.skipif(
    not (which("curl") and which("jq")), reason="no curl or jq here: apt-get install curl jq"
)


@needs_clients
@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_job_writes_one_comment_and_updates_it(ci: str, tmp_path: Path) -> None:
    """Comments of people, and those that only quote it, are left alone."""
    file = tmp_path / "comparison.md"
    others = ["looks good", f"> {MARKER}"]
    with serve_comments() as api:
        api.add(MARKER, author=5)
        for number in range(150):
            api.add(others[number % 2])
        for text in ('## one\n"quoted" `code` ↑\n', "## two\n"):
            file.write_text(text, encoding="utf-8")
            done = post(ci, api, tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert api.comments[-1]["body"] == MARKER + text
        assert api.writes == ["POST", UPDATE[ci]]
        assert len(api.comments) == 152
        assert api.comments[0]["body"] == MARKER


@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_without_a_comparison_no_comment_is_written(ci: str, tmp_path: Path) -> None:
    """The target branch may have no load tests yet."""
    with serve_comments() as api:
        assert post(ci, api, tmp_path).returncode == 0
        assert api.writes == []


@needs_clients
@pytest.mark.parametrize("ci", starter.CI_FILES)
def test_a_comment_that_cannot_be_written_fails_the_job(ci: str, tmp_path: Path) -> None:
    (tmp_path / "comparison.md").write_text("## one\n", encoding="utf-8")
    with serve_comments() as api:
        api.denied = True
        done = post(ci, api, tmp_path)
    assert done.returncode != 0
    assert "403" in done.stderr


def test_the_archive_of_spark_is_named_until_it_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the command to run next."""
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(java_process, "path", lambda: archive)
    once = "once: pytest-loadtest doctor --fix lets Spark start in a third of the time"
    for there in (False, True):
        if there:
            archive.touch()
        assert cli.main(["suite", "pulsar", str(tmp_path / f"suite-{there}")]) == cli.OK
        *before, following = capsys.readouterr().out.splitlines()
        assert following.startswith("next: pytest ")
        assert (once in before) is not there
