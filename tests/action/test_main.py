"""The process as a whole: faults of its own, the terminal, the room for the summary."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.runner import FakeRunner, python_launcher
from fakes.trees import write_tree
from therock_outputs.main import FAULT_EXIT_CODE
from therock_outputs.runner import MAX_SUMMARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import Invocation, Launch

_FAULTY = """
import sys
from therock_outputs import command_line, main
def load_settings(*_):
    raise KeyError("x\\n::error::y\\n##[error]z")
command_line.load_settings = load_settings
sys.exit(main.main())
"""


def test_a_fault_of_the_program_has_its_own_exit_code_and_a_harmless_traceback(tmp_path: Path) -> None:
    script = tmp_path / "faulty.py"
    script.write_text(_FAULTY, encoding="utf-8")
    result = FakeRunner(root=tmp_path / "job", launcher=python_launcher(script)).run({"mode": "locate"})
    assert result.exit_code == FAULT_EXIT_CODE
    assert [command.name for command in result.commands] == ["group", "endgroup", "error"]
    assert "load_settings" in result.log


def test_a_step_in_whose_summary_nothing_fits_any_more_keeps_what_is_there(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    as_before = runner.launcher

    def launch(invocation: Invocation) -> Launch:
        Path(invocation.environment["GITHUB_STEP_SUMMARY"]).write_bytes(b"x" * (MAX_SUMMARY_BYTES - 10))
        return as_before(invocation)

    runner.launcher = launch
    result = runner.run({"mode": "locate"})
    assert result.succeeded, result.log
    assert not result.summary_dropped
    assert result.summary == "x" * (MAX_SUMMARY_BYTES - 10)


_PROGRAM = "import sys; from therock_outputs.main import main; sys.exit(main())"


def at_a_terminal(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no variable of a job."""
    return subprocess.run(
        [sys.executable, "-I", "-c", _PROGRAM, *arguments],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_at_a_terminal_results_go_to_stdout_and_words_to_stderr(tmp_path: Path) -> None:
    write_tree(tmp_path / "build" / "logs", {"Grüße.log": "x"})
    done = at_a_terminal(tmp_path, "upload-stage", "--stage", "math-libs", "--staging-dir", "out")
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert outputs["file_count"] == "1"
    assert outputs["log_url"].endswith("/logs/math-libs/index.html")
    assert outputs["report"] == ""
    assert "staged 1 object" in done.stderr
    assert not (tmp_path / ".therock-outputs").exists()
    assert not any(line.startswith("::") for line in done.stdout.splitlines() + done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [["upload-sage"], ["locate", "--rnu-id", "5"], []])
def test_at_a_terminal_an_error_is_words_on_stderr(tmp_path: Path, arguments: list[str]) -> None:
    done = at_a_terminal(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
