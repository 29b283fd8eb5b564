"""The command lines of the README do what it says, in a fresh copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from fakes.runner import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.needs("git", "python3")]

_NOT_A_PERSONS = ("COVERAGE", "COV_", "GITHUB_", "INPUT_", "PYTEST_", "RUNNER_", "TEST_", "THEROCK_")


def command_lines() -> list[str]:
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (PROJECT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What a clone would hold, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    folder = tmp_path / "project"
    for name in filter(None, listed.split("\0")):
        source = PROJECT / name
        if source.is_file():  # deleted ones are still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


def at_a_terminal(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `line` as a person would who has just cloned the project, with no AWS account."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith((*_NOT_A_PERSONS, "AWS_")) and name not in {"PYTHONPATH", "VIRTUAL_ENV", "RELEASE_TYPE"}
    }
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_readme_has_these_command_lines() -> None:
    first, *others, last = command_lines()
    assert "upload-stage" in first
    modes = ["upload-artifacts", "fetch-artifacts", "verify", "wheel", "upload-python", "download", "index"]
    assert [line.split()[1] for line in others] == modes
    assert last == ".ci/test"


def test_the_lines_install_store_the_example_build_and_bring_its_artifacts_back(copy: Path) -> None:
    line = command_lines()[0]
    done = at_a_terminal(line, copy)
    assert done.returncode == 0, done.stderr
    folder = copy / "out" / "local-linux" / "logs" / "math-libs" / "gfx1151"
    stored = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {"ninja_logs.tar.gz", "ccache_logs.tar.zst", "comp-summary.html", "rocBLAS_build.log"} <= stored
    outputs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    page = "https://therock-ci-artifacts.s3.amazonaws.com/local-linux/logs/math-libs/gfx1151/index.html"
    assert outputs["log_url"] == page
    assert outputs["file_count"] == str(len(stored))
    assert str(folder) in done.stderr
    store, fetch, verify, *packages = command_lines()[1:-1]
    done = at_a_terminal(store, copy)
    assert done.returncode == 0, done.stderr
    done = at_a_terminal(fetch, copy)
    assert done.returncode == 0, done.stderr
    program = copy / "rocm/bin/rocblas-bench"
    assert program.is_symlink()
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout == "rocblas-bench 5.1.0\n"
    done = at_a_terminal(verify, copy)
    assert done.returncode == 0, done.stderr
    assert dict(line.split("=", 1) for line in done.stdout.splitlines())["verified"] == "true"
    for line in packages:
        done = at_a_terminal(line, copy)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    (wheel,) = (copy / "packages").iterdir()
    assert (copy / "fetched" / wheel.name).read_bytes() == wheel.read_bytes()
    assert f'href="./{wheel.name}#sha256=' in (copy / "out/local-linux/python/index.html").read_text(encoding="utf-8")
    assert 'href="./python/index.html"' in (copy / "out/local-linux/index.html").read_text(encoding="utf-8")


def test_the_last_line_makes_its_environment_and_finds_the_tests(copy: Path) -> None:
    done = at_a_terminal(f"{command_lines()[-1]} --collect-only -q", copy)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "tests/unit/test_text_safety.py::" in done.stdout
