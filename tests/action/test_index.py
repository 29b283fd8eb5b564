"""Mode index as a step, on a staging folder: outputs, log, summary, exit codes; and what mode verify says of it."""

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
INPUTS = {"mode": "index", "staging_dir": "out"}
GROUP = "gfx94X-dcgpu"


@pytest.fixture
def runner(job: Callable[..., FakeRunner]) -> FakeRunner:
    """A job that has stored its build."""
    runner = job()
    stored = runner.run({"mode": "upload-build", "artifact_group": GROUP, "staging_dir": "out"})
    assert stored.succeeded, stored.log
    return runner


def folder(runner: FakeRunner) -> Path:
    return runner.workspace / "out" / P


def pages(runner: FakeRunner) -> set[str]:
    return {path.relative_to(folder(runner)).as_posix() for path in folder(runner).rglob("index.html")}


def test_the_pages_are_written_and_the_outputs_and_the_summary_name_the_runs(runner: FakeRunner) -> None:
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert result.annotations == ()
    assert {"index.html", "logs/index.html", f"logs/{GROUP}/index.html", "manifests/index.html"} <= pages(runner)
    assert result.outputs["index_url"].endswith(f"/{P}/index.html")
    assert result.outputs["url"] == result.outputs["index_url"]
    assert result.outputs["file_count"] == str(2 * len(pages(runner)))
    assert result.summary.startswith(f"### ✅ index · `{P}`")
    assert "Index pages" in result.summary
    files = json.loads((folder(runner) / f"logs/{GROUP}/index.json").read_bytes())["files"]
    assert all(len(entry["sha256"]) == 64 for entry in files)  # the job's record knows them


def test_mode_verify_finds_the_pages_as_recorded_and_nothing_extra(runner: FakeRunner) -> None:
    assert runner.run(INPUTS).succeeded
    write_tree(folder(runner), {"logs/x/a.log": "a"})
    assert runner.run(INPUTS).succeeded
    (folder(runner) / "logs/x/a.log").unlink()
    assert runner.run(INPUTS).succeeded
    result = runner.run({"mode": "verify", "staging_dir": "out", "check": "read"})
    assert result.succeeded, result.log
    assert {name: result.outputs[name] for name in ("missing_count", "differs_count", "extra_count")} == {
        "missing_count": "0",
        "differs_count": "0",
        "extra_count": "0",
    }


def test_a_subfolder_is_the_subject_and_its_page_the_output(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "subfolder": f"logs/{GROUP}"})
    assert result.succeeded, result.log
    assert result.outputs["index_url"].endswith(f"/{P}/logs/{GROUP}/index.html")
    assert not (folder(runner) / "manifests/index.html").exists()
    assert f"logs/{GROUP}" in result.summary


def test_a_page_of_another_program_is_told_as_text(runner: FakeRunner) -> None:
    write_tree(folder(runner), {"logs/::error::|](x)/index.html": "<h1>another's</h1>"})
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert "1 page was not made by this action and stays as it is (logs/::error::|](x)/index.html); " in result.log
    assert result.annotations == ()
    assert markdown.links(result.summary) == []  # a staged file is no link
    assert (folder(runner) / "logs/::error::|](x)/index.html").read_text() == "<h1>another's</h1>"
    forced = runner.run({**INPUTS, "force_index": "true"})
    assert forced.succeeded, forced.log


def test_a_run_without_outputs_is_exit_code_3_and_a_bad_subfolder_2(runner: FakeRunner) -> None:
    assert runner.run({**INPUTS, "run_id": "1"}).exit_code == 3
    assert runner.run({**INPUTS, "subfolder": "nothing"}).exit_code == 3
    refused = runner.run({**INPUTS, "subfolder": "../other"})
    assert refused.exit_code == 2
    assert "subfolder" in refused.log


def test_a_dry_run_writes_nothing(runner: FakeRunner) -> None:
    before = read_tree(folder(runner))
    result = runner.run({**INPUTS, "dry_run": "true"})
    assert result.succeeded, result.log
    assert read_tree(folder(runner)) == before
    assert result.outputs["index_url"] == ""
