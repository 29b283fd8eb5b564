"""Mode verify as a step, on a staging folder: outputs, table, exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fakes import markdown
from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakes.runner import FakeRunner

P = "15948739823-linux"
INPUTS = {"mode": "verify", "staging_dir": "out"}
GROUP = "gfx94X-dcgpu"
LOG = f"logs/{GROUP}/rocBLAS_build.log"


@pytest.fixture
def runner(job: Callable[..., FakeRunner]) -> FakeRunner:
    """A job that has stored its build."""
    runner = job()
    stored = runner.run({"mode": "upload-build", "artifact_group": GROUP, "staging_dir": "out"})
    assert stored.succeeded, stored.log
    return runner


def folder(runner: FakeRunner) -> Path:
    return runner.workspace / "out" / P


@pytest.mark.parametrize("check", ["size", "stored", "read"])
def test_what_was_stored_is_verified_and_nothing_is_written(runner: FakeRunner, check: str) -> None:
    before = read_tree(folder(runner))
    result = runner.run({**INPUTS, "check": check})
    assert result.succeeded, result.log
    assert result.annotations == ()
    number = str(len(before) - 1)  # the record itself does not count
    assert {name: result.outputs[name] for name in ("verified", "same_count", "file_count", "extra_count")} == {
        "verified": "true",
        "same_count": number,
        "file_count": number,
        "extra_count": "0",
    }
    assert result.summary.startswith(f"### ✅ verify · `{P}`\n")
    assert f"checked {number} objects" in result.log
    assert "staged, not uploaded" not in result.log
    assert read_tree(folder(runner)) == before


def test_what_changed_is_told_with_its_sign_in_log_and_summary(runner: FakeRunner) -> None:
    (folder(runner) / LOG).write_text("changed\n")
    (folder(runner) / f"logs/{GROUP}/empty.log").unlink()
    write_tree(folder(runner), {"logs/new|](x).log": "x", "::error::.log": "x"})
    result = runner.run(INPUTS)
    assert result.exit_code == 6, result.log
    (message,) = result.messages("error")
    assert message.startswith("1 object of the run is not what records and digests say\n")
    assert f"the first: {LOG}: it has 8 bytes, and 10 were recorded; 1 object missing, too" in message
    outputs = result.outputs
    assert (outputs["verified"], outputs["differs_count"], outputs["missing_count"], outputs["extra_count"]) == (
        "false",
        "1",
        "1",
        "2",
    )
    lines = [line.strip() for line in result.log.splitlines() if line.strip().startswith("Checked ")]
    assert [line.split()[1] for line in lines[:4]] == ["*", "-", "+", "+"]
    cells = ["".join(token.content for token in cell) for cell in markdown.cells(result.summary)]
    assert {LOG, f"logs/{GROUP}/empty.log", "::error::.log", "logs/new|](x).log"} <= set(cells)
    assert markdown.links(result.summary) == []
    rows = [line for line in result.summary.splitlines() if line.startswith(("| `*`", "| `-`", "| `+`"))]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("change", "exit_code", "verified"),
    [
        (lambda run: (run / LOG).unlink(), 3, "false"),
        (lambda run: (run / "x.log").write_text("extra"), 0, "true"),
        (lambda run: (run / "blas_lib_gfx1151.tar.zst").write_text("archivE\n"), 6, "false"),
    ],
    ids=["missing", "extra", "differs"],
)
def test_the_exit_code_says_what_was_found(
    runner: FakeRunner, change: Callable[[Path], object], exit_code: int, verified: str
) -> None:
    change(folder(runner))
    result = runner.run(INPUTS)
    assert (result.exit_code, result.outputs["verified"]) == (exit_code, verified), result.log


@pytest.mark.parametrize(
    ("inputs", "exit_code", "words"),
    [
        ({"run_id": "999"}, 3, "run 999 has no outputs"),
        ({"platform": "windows"}, 3, "Set platform: linux."),
        ({"check": "everything"}, 2, "check"),
    ],
)
def test_what_stops_it_has_its_exit_code(
    runner: FakeRunner, inputs: dict[str, str], exit_code: int, words: str
) -> None:
    result = runner.run({**INPUTS, **inputs})
    assert result.exit_code == exit_code, result.log
    assert words in "".join(result.messages("error"))


def test_a_run_of_other_programs_has_nothing_to_verify_with(runner: FakeRunner) -> None:
    write_tree(runner.workspace / "out/300-linux", {"logs/a.log": "a"})
    result = runner.run({**INPUTS, "run_id": "300"})
    assert result.exit_code == 3
    assert "there is nothing to verify s3://therock-ci-artifacts/300-linux with" in result.messages("error")[0]


def test_a_hostile_record_is_refused_and_does_not_act(runner: FakeRunner) -> None:
    record = {"format": "::error::x\n::add-mask::y", "objects": [{"key": "../../etc/passwd"}]}
    write_tree(folder(runner), {"reports/upload-build/::warning::.json": json.dumps(record)})
    result = runner.run(INPUTS)
    assert result.exit_code == 6, result.log
    assert len(result.messages("error")) == 1
    assert result.messages("warning") == []
    assert result.masks == runner.run({**INPUTS, "check": "size"}).masks
    assert "its format is '::error::x\\n::add-mask::y'" in result.messages("error")[0]
