"""Mode copy-artifacts as a step, in a staging folder: outputs, summary, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from fakes import markdown
from fakes.artifact_archives import make_archive, write_run
from fakes.runner import PROJECT, FakeRunner
from fakes.trees import digest, read_tree, write_tree

if TYPE_CHECKING:
    from pathlib import Path

P, SOURCE = "15948739823-linux", "200-linux"
INPUTS = {"mode": "copy-artifacts", "staging_dir": "out", "source_run_id": "200"}
BLAS, RCCL = "blas_lib_gfx942.tar.zst", "rccl_lib_generic.tar.xz"
ARCHIVES = {
    BLAS: make_archive({"stage/lib/libblas.so": "blas"}),
    RCCL: make_archive({"stage/lib/librccl.so": "rccl"}, compression="xz"),
}
BLAS_ARTIFACT, RCCL_ARTIFACT = "blas_lib_gfx942", "rccl_lib_generic"
TOPOLOGY = """\
[build_stages.math-libs]
artifact_groups = ["math"]
[build_stages.comm-libs]
artifact_groups = ["comm"]
[artifact_groups.math]
[artifact_groups.comm]
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
[artifacts.rccl]
artifact_group = "comm"
"""


@pytest.fixture
def runner(tmp_path: Path) -> FakeRunner:
    runner = FakeRunner(root=tmp_path / "job")
    write_run(runner.workspace / "out" / SOURCE, ARCHIVES)
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    return runner


def copied(runner: FakeRunner) -> set[str]:
    return {name for name in read_tree(runner.workspace / "out" / P) if not name.startswith("reports/")}


def test_a_step_leaves_objects_outputs_a_summary_and_a_record(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "stage": "math-libs, comm-libs"})
    assert result.succeeded, result.log
    assert result.annotations == ()
    names = {BLAS, f"{BLAS}.sha256sum", RCCL, f"{RCCL}.sha256sum"}
    assert copied(runner) == names
    outputs = result.outputs
    assert json.loads(outputs["artifacts"]) == [BLAS_ARTIFACT, RCCL_ARTIFACT]
    assert json.loads(outputs["per_stage"]) == {"math-libs": [BLAS_ARTIFACT], "comm-libs": [RCCL_ARTIFACT]}
    assert (outputs["file_count"], outputs["prefix"]) == ("4", P)
    assert outputs["url"] == "", "no server makes a page in a folder; mode index does"
    assert "the server makes this page" not in result.summary
    assert result.summary.startswith("### ✅ copy-artifacts · `math-libs,comm-libs`\n")
    assert "staged 4 objects" in result.log
    assert f"staged, not uploaded: {runner.workspace / 'out'}" in result.log
    assert "Staged, not uploaded: `out`" in result.summary
    assert f"| `out/{P}` · from out/{SOURCE}" in result.summary
    assert markdown.links(result.summary) == [], "nothing is there to be opened"
    document = json.loads((runner.workspace / outputs["report"]).read_text(encoding="utf-8"))
    assert {item["key"]: item["sha256"] for item in document["objects"]} == {
        f"{P}/{name}": digest((runner.workspace / "out" / SOURCE / name).read_bytes()) for name in names
    }
    (record,) = (runner.workspace / "out" / P / "reports/copy-artifacts").iterdir()
    assert record.name.startswith("math-libs_comm-libs-build-1-")


def test_without_a_stage_nothing_is_told_per_stage(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "families": "gfx94X-dcgpu"})
    assert result.succeeded, result.log
    assert result.outputs["per_stage"] == "{}"
    assert json.loads(result.outputs["artifacts"]) == [BLAS_ARTIFACT, RCCL_ARTIFACT]


def test_stage_all_is_told_as_one_stage(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "stage": "all"})
    assert result.succeeded, result.log
    assert json.loads(result.outputs["per_stage"]) == {"all": [BLAS_ARTIFACT, RCCL_ARTIFACT]}


@pytest.mark.parametrize(
    ("inputs", "exit_code", "words"),
    [
        ({"stage": ""}, 2, "needs to be told which artifacts to copy"),
        ({"source_run_id": ""}, 2, "needs source_run_id"),
        ({"source_run_id": "15948739823"}, 2, "cannot be copied to itself"),
        ({"stage": "maths-lib"}, 2, "is not in the topology"),
        ({"artifacts": "solver"}, 3, "nothing for solver"),
        ({"source_run_id": "999"}, 3, "Check source_run_id"),
        ({"exclude_artifacts": "*"}, 3, "nothing to copy"),
    ],
)
def test_what_stops_a_copy_has_its_exit_code_and_is_in_the_summary(
    runner: FakeRunner, inputs: dict[str, str], exit_code: int, words: str
) -> None:
    result = runner.run({**INPUTS, "stage": "all", **inputs})
    assert result.exit_code == exit_code, result.log
    assert words in "".join(result.messages("error"))
    assert result.summary.startswith("### ❌ therock-outputs\n")
    assert not (runner.workspace / "out" / P).exists()


def test_what_fails_is_on_top_of_the_summary_and_the_rest_is_copied(runner: FakeRunner) -> None:
    write_tree(runner.workspace / "out" / SOURCE, {RCCL: "other bytes"})
    write_tree(runner.workspace / "out" / P, {RCCL: "what lay there"})
    result = runner.run({**INPUTS, "stage": "all"})
    assert result.exit_code == 6, result.log
    assert result.summary.startswith("### ❌ copy-artifacts · `all`\n")
    assert "Not copied: 1" in result.summary
    assert f"- `{RCCL}`" in result.summary
    assert result.outputs["artifacts"] == json.dumps([BLAS_ARTIFACT])
    assert (runner.workspace / "out" / P / RCCL).read_text() == "what lay there"
    assert result.messages("warning") == []


def test_a_record_that_is_none_does_not_fail_the_copy(runner: FakeRunner) -> None:
    (runner.workspace / "BUILD_TOPOLOGY.toml").unlink()
    step = runner.run({**INPUTS, "stage": "all", "run_id": "300"})
    assert step.succeeded, step.log
    write_tree(runner.workspace / "out/300-linux/reports/upload-artifacts", {"junk.json": '{"a":1}'})
    result = runner.run({**INPUTS, "source_run_id": "300", "stage": "math-libs"})
    assert result.exit_code == 6, result.log
    assert "it is not known which artifacts stage math-libs makes" in result.messages("error")[0]
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    assert runner.run({**INPUTS, "stage": "math-libs", "run_id": "300"}).succeeded
    (runner.workspace / "BUILD_TOPOLOGY.toml").unlink()
    result = runner.run({**INPUTS, "source_run_id": "300", "stage": "math-libs"})
    assert result.succeeded, result.log
    (message,) = result.messages("warning")
    assert message.startswith("the record reports/upload-artifacts/junk.json cannot be used (its format is null, ")
    assert json.loads(result.outputs["per_stage"]) == {"math-libs": [BLAS_ARTIFACT]}


def test_other_bytes_are_overwritten_with_a_warning(runner: FakeRunner) -> None:
    write_run(runner.workspace / "out" / P, {BLAS: b"old"})
    result = runner.run({**INPUTS, "stage": "all"})
    assert result.succeeded, result.log
    (message,) = result.messages("warning")
    assert message == f"{P}/{BLAS} was overwritten: other bytes lay there"


def test_a_dry_run_says_what_it_would_do_and_does_nothing(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "stage": "all", "dry_run": "true"})
    assert result.succeeded, result.log
    assert "would copy 4 objects" in result.log
    assert "Dry run: nothing was copied." in result.summary
    assert not (runner.workspace / "out" / P).exists()


def test_hostile_names_in_the_source_run_do_not_act(runner: FakeRunner) -> None:
    write_tree(runner.workspace / "out" / SOURCE, {"::error::x_lib_a.tar.zst": "x", "a_b_](javascript:x).tar.zst": "x"})
    result = runner.run({**INPUTS, "stage": "all"})
    assert result.succeeded, result.log
    assert result.messages("error") == []
    assert all(not url.startswith("javascript") for url in markdown.links(result.summary))
    assert "::error::x_lib_a" in json.loads(result.outputs["artifacts"])


def test_the_command_line_takes_the_flags_of_the_script_it_replaces(runner: FakeRunner) -> None:
    arguments = ["copy-artifacts", "--json", "--run-id", "100", "--platform", "linux", "--source-run-id", "200"]
    arguments += ["--stage", "math-libs,comm-libs", "--local-staging-dir", "out"]
    environment = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", str(PROJECT / "entrypoint.py"), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=runner.workspace, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["per_stage"] == {"math-libs": [BLAS_ARTIFACT], "comm-libs": [RCCL_ARTIFACT]}
