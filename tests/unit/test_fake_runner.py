"""The runner's double obeys the runner's rules, so that the tests built on it mean something."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from typing import TYPE_CHECKING, Any

import pytest

from fakes.runner import FakeRunner, cancel_as_the_runner, image_launcher, python_launcher
from fakes.runner import Invocation as StepInvocation
from fakes.runner_protocol import (
    Command,
    FileCommandError,
    parse_command,
    parse_environment,
    parse_key_values,
    read_console,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ACTION = """
name: example
inputs:
  mode: {description: m, required: true}
  github-token: {description: t, default: "${{ github.token }}"}
  job_status: {description: s, default: "${{ job.status }}"}
  build dir: {description: b, default: build}
  dry_run: {description: d, default: false}
runs: {using: docker, image: Dockerfile}
"""


@pytest.fixture
def runner_of(tmp_path: Path) -> Callable[..., FakeRunner]:
    """Make a runner whose entry point is this source."""

    def make(source: str, **options: Any) -> FakeRunner:  # noqa: ANN401 - whatever FakeRunner takes
        action = tmp_path / "action.yml"
        action.write_text(ACTION, encoding="utf-8")
        script = tmp_path / "script.py"
        script.write_text("import os, pathlib, sys\n" + textwrap.dedent(source), encoding="utf-8")
        return FakeRunner(root=tmp_path / "job", action=action, launcher=python_launcher(script), **options)

    return make


def append(variable: str, text: str) -> str:
    return f"open(os.environ[{variable!r}], 'a', newline='').write({text!r})\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("::notice::hello", Command(name="notice", value="hello")),
        ("   ::notice::after spaces", Command(name="notice", value="after spaces")),
        ("::ERROR::names ignore case", Command(name="error", value="names ignore case")),
        ("::error file=a.c,line=3::x", Command(name="error", value="x", properties={"file": "a.c", "line": "3"})),
        (
            "::warning title=a%3Ab%2Cc::d%25e%0Af",
            Command(name="warning", value="d%e\nf", properties={"title": "a:b,c"}),
        ),
        ("::notice::100%2525", Command(name="notice", value="100%25")),
        ("::notice::a%3Ab", Command(name="notice", value="a%3Ab")),
        ("some text ##[error]anywhere", Command(name="error", value="anywhere")),
        ("##[error file=a%3Bb]x%5D", Command(name="error", value="x]", properties={"file": "a;b"})),
    ],
)
def test_a_command_is_found_where_the_runner_finds_it(line: str, expected: Command) -> None:
    assert parse_command(line) == expected


@pytest.mark.parametrize(
    "line", ["text ::error::later", "::unknown::x", "::error", "##[unknown]x", "##[error", "std::vector::x"]
)
def test_other_lines_are_no_commands(line: str) -> None:
    assert parse_command(line) is None


def test_a_carriage_return_ends_a_line_so_a_command_can_hide_behind_it() -> None:
    assert [command.name for command in read_console("progress\r::error::hidden\n").commands] == ["error"]


def test_a_unicode_line_separator_ends_no_line() -> None:
    assert read_console("a\u2028::error::x\x0b::error::y\n").commands == ()


def test_commands_between_stop_commands_and_its_token_are_text() -> None:
    console = read_console("::stop-commands::tok\n::error::text\n::tok::\n::notice::again\n")
    assert [command.name for command in console.commands] == ["stop-commands", "notice"]


def test_ten_annotations_of_a_level_are_kept() -> None:
    console = read_console("".join(f"::error::{n}\n" for n in range(12)) + "::notice::n\n")
    assert [a.message for a in console.annotations] == [*map(str, range(10)), "n"]
    assert len(console.commands) == 13


def test_a_mask_hides_each_of_its_lines_in_everything_after_it() -> None:
    console = read_console("early one\n::add-mask::one%0Atwo\nlate one\n::warning::two\n", "three one\n")
    assert console.log.splitlines() == ["early one", "late ***", "warning: ***", "three ***"]
    assert console.annotations[0].message == "***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\n\nb=x=y\n", {"a": "1", "b": "x=y"}),
        ("a=\n", {"a": ""}),
        ("a=1<<2\n", {"a": "1<<2"}),
        ("a<<E\nx\ny=z\n\nE\nb=2", {"a": "x\ny=z\n", "b": "2"}),
        ("a<<E=F\nx\nE=F\n", {"a": "x"}),
        ("a<<E\nE\n", {"a": ""}),
        ("a=1\r\n", {"a": "1\r"}),
        ("a=\u2028\n", {"a": "\u2028"}),
        ("a=1\na=2\n", {"a": "2"}),
    ],
)
def test_outputs_are_read_as_the_runner_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_key_values(text, file_name="GITHUB_OUTPUT") == expected


@pytest.mark.parametrize("text", ["no sign\n", "=value\n", "<<E\nE\n", "a<<\nx\n", "a<<E\nx\n", "a<<E\nx\nE \n"])
def test_a_bad_line_is_refused(text: str) -> None:
    with pytest.raises(FileCommandError, match="GITHUB_OUTPUT"):
        parse_key_values(text, file_name="GITHUB_OUTPUT")


def test_node_options_cannot_be_set_for_later_steps() -> None:
    with pytest.raises(FileCommandError, match="NODE_OPTIONS"):
        parse_environment("node_options=--inspect\n")


def test_every_declared_input_arrives_and_an_unset_one_is_empty(runner_of: Callable[..., FakeRunner]) -> None:
    source = "for n in sorted(os.environ):\n    if n.startswith('INPUT_'): print(n + '=' + os.environ[n])"
    result = runner_of(source, token="tok", job_status="failure").run({"Build Dir": "out"})
    assert result.stdout.splitlines() == [
        "INPUT_BUILD_DIR=out",
        "INPUT_DRY_RUN=false",
        "INPUT_GITHUB-TOKEN=tok",
        "INPUT_JOB_STATUS=failure",
        "INPUT_MODE=",
    ]
    assert "tok" not in result.log


def test_an_unknown_input_only_warns(runner_of: Callable[..., FakeRunner]) -> None:
    result = runner_of("print(os.environ['INPUT_TYPO'])").run({"typo": "x"})
    assert result.succeeded
    assert result.stdout == "x\n"
    assert "'typo'" in result.messages("warning")[0]


def test_the_step_starts_in_the_workspace_with_the_jobs_files(runner_of: Callable[..., FakeRunner]) -> None:
    runner = runner_of(
        """
        import json
        assert pathlib.Path.cwd() == pathlib.Path(os.environ["GITHUB_WORKSPACE"])
        assert pathlib.Path(os.environ["RUNNER_TEMP"]).is_dir()
        assert sys.flags.isolated
        print(json.load(open(os.environ["GITHUB_EVENT_PATH"]))["number"], os.environ["GITHUB_RUN_ID"])
        """,
        event={"number": 5},
        github={"run_id": "77"},
    )
    assert runner.run().stdout == "5 77\n"


def test_nothing_of_this_machines_environment_reaches_the_step(
    runner_of: Callable[..., FakeRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("GITHUB_TOKEN", "mine")
    assert runner_of("print([n for n in ('AWS_PROFILE', 'GITHUB_TOKEN') if n in os.environ])").run().stdout == "[]\n"


def test_results_are_read_although_the_step_failed(runner_of: Callable[..., FakeRunner]) -> None:
    source = append("GITHUB_OUTPUT", "a=1\n") + append("GITHUB_STEP_SUMMARY", "# T\n") + append("GITHUB_STATE", "s=1\n")
    source += append("GITHUB_PATH", "/opt/x\n") + "print('::error title=T,file=f,line=2::m')\nsys.exit(3)"
    result = runner_of(source).run()
    assert (result.exit_code, result.succeeded, result.outputs, result.summary) == (3, False, {"a": "1"}, "# T\n")
    assert (result.state, result.paths) == ({"s": "1"}, ("/opt/x",))
    (annotation,) = result.annotations
    assert (annotation.title, annotation.file, annotation.line, annotation.message) == ("T", "f", "2", "m")


def test_a_bad_line_fails_a_step_that_exits_with_zero(runner_of: Callable[..., FakeRunner]) -> None:
    result = runner_of(append("GITHUB_OUTPUT", "a=1\nbad\n")).run()
    assert (result.exit_code, result.succeeded, result.outputs) == (0, False, {})
    assert "bad" in result.faults[0]


def test_outputs_over_a_megabyte_fail_the_step(runner_of: Callable[..., FakeRunner]) -> None:
    result = runner_of("open(os.environ['GITHUB_OUTPUT'], 'w').write('a=' + 'x' * 1_048_576)").run()
    assert result.faults == ("GITHUB_OUTPUT: more than 1 MB",)


@pytest.mark.parametrize(("size_bytes", "dropped"), [(1_048_576, False), (1_048_577, True)])
def test_a_summary_over_the_limit_is_dropped_whole(
    runner_of: Callable[..., FakeRunner], size_bytes: int, *, dropped: bool
) -> None:
    result = runner_of(f"open(os.environ['GITHUB_STEP_SUMMARY'], 'w').write('x' * {size_bytes})").run()
    assert (result.summary_dropped, len(result.summary)) == (dropped, 0 if dropped else size_bytes)
    assert result.succeeded


def test_environment_and_masks_of_one_step_hold_for_the_next(runner_of: Callable[..., FakeRunner]) -> None:
    runner = runner_of(
        append("GITHUB_ENV", "LATER<<E\nx\nE\n")
        + "print(os.environ.get('LATER'), 's3cret')\nprint('::add-mask::s3cret')"
    )
    first, second = runner.run(), runner.run()
    assert (first.log, first.environment) == ("None s3cret\n", {"LATER": "x"})
    assert "s3cret" not in second.log
    assert second.stdout.startswith("x s3cret")


def test_commands_on_stderr_count(runner_of: Callable[..., FakeRunner]) -> None:
    assert runner_of("print('::notice::e', file=sys.stderr)").run().messages("notice") == ["e"]


def test_a_step_that_does_not_end_in_time_is_killed(runner_of: Callable[..., FakeRunner]) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    with pytest.raises(subprocess.TimeoutExpired):
        runner_of("import time; time.sleep(60)").run(
            timeout_seconds=0.1, while_running=lambda process, _: processes.append(process)
        )
    assert processes[0].returncode == -signal.SIGKILL


def test_a_cancel_sends_sigint_first(runner_of: Callable[..., FakeRunner]) -> None:
    def cancel_when_ready(process: subprocess.Popen[bytes], stdout: Path) -> None:
        while "ready" not in stdout.read_text(encoding="utf-8"):
            time.sleep(0.01)
        cancel_as_the_runner(process)

    source = """
        import signal, time
        signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
        print("ready")
        time.sleep(60)
        """
    assert runner_of(source).run(while_running=cancel_when_ready).exit_code == 130


def test_only_a_path_at_a_values_start_is_translated_for_the_image(tmp_path: Path) -> None:
    workspace = tmp_path / "repo"
    environment = {
        "INPUT_PATH": f"{workspace}/out",
        "INPUT_LISTED": f"{workspace}/a\n{workspace}/b",
        "INPUT_EXCLUDE": f"!{workspace}/c",
        "INPUT_SIBLING": f"{workspace}-other/d",
        "RUNNER_WORKSPACE": str(workspace.parent),
        "PATH": "/hostile",
    }
    launch = image_launcher("image:tag", ["engine"])(
        StepInvocation(environment=environment, workspace=workspace, mounts=((workspace, "/github/workspace"),))
    )
    assert launch.environment["INPUT_PATH"] == "/github/workspace/out"
    assert launch.environment["INPUT_LISTED"] == f"/github/workspace/a\n{workspace}/b"
    assert launch.environment["INPUT_EXCLUDE"] == f"!{workspace}/c"
    assert launch.environment["INPUT_SIBLING"] == f"{workspace}-other/d"
    assert launch.environment["RUNNER_WORKSPACE"] == str(workspace.parent)
    assert launch.environment["PATH"] != "/hostile"
    arguments = list(launch.arguments)
    assert arguments[-1] == "image:tag"
    assert "PATH=/hostile" in arguments
    assert f"{workspace}:/github/workspace" in arguments
    assert not {"--user", "--init", "-i", "-t"} & set(arguments)
