"""Mode fetch-artifacts as a step, from a staging folder: outputs, summary, exit codes, and hostile archives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from fakes import markdown
from fakes.artifact_archives import make_archive, write_run
from fakes.runner import PROJECT, FakeRunner
from fakes.trees import digest, read_tree, write_tree

P = "15948739823-linux"
INPUTS = {"mode": "fetch-artifacts", "staging_dir": "out", "output_dir": "got"}
ARCHIVES = {
    "blas_lib_gfx1151.tar.zst": make_archive({"stage/lib/libblas.so": "blas"}),
    "hip_lib_generic.tar.xz": make_archive({"stage/lib/libhip.so": "hip"}, compression="xz"),
}


@pytest.fixture
def runner(tmp_path: Path) -> FakeRunner:
    runner = FakeRunner(root=tmp_path / "job")
    write_run(runner.workspace / "out" / P, ARCHIVES)
    return runner


def test_a_step_leaves_trees_outputs_a_summary_and_a_report(runner: FakeRunner) -> None:
    result = runner.run({**INPUTS, "stage": "all", "extract": "flatten"})
    assert result.succeeded, result.log
    assert read_tree(runner.workspace / "got") == {"lib/libblas.so": b"blas", "lib/libhip.so": b"hip"}
    outputs = result.outputs
    assert (outputs["download_path"], json.loads(outputs["artifacts"])) == (
        "got",
        ["blas_lib_gfx1151", "hip_lib_generic"],
    )
    assert (outputs["file_count"], outputs["total_bytes"]) == ("2", str(sum(map(len, ARCHIVES.values()))))
    assert (outputs["prefix"], outputs["url"]) == (P, "")
    assert result.summary.startswith("### ✅ fetch-artifacts · `all`\n")
    assert "in got" in result.summary
    report = json.loads((runner.workspace / outputs["report"]).read_text(encoding="utf-8"))
    assert [(item["key"], item["sha256"], item["verified"]) for item in report["objects"]] == [
        (f"{P}/{name}", digest(data), "sha256-single") for name, data in ARCHIVES.items()
    ]
    assert "fetched 2 objects" in result.log


def test_a_failed_archive_is_on_top_of_the_summary_and_fails_the_step(runner: FakeRunner) -> None:
    write_tree(runner.workspace / "out" / P, {"hip_lib_generic.tar.xz": "other bytes"})
    result = runner.run({**INPUTS, "stage": "all"})
    assert result.exit_code == 6
    (message,) = result.messages("error")
    assert digest(ARCHIVES["hip_lib_generic.tar.xz"]) in message
    assert digest("other bytes") in message
    assert result.summary.startswith("### ❌ fetch-artifacts")
    assert "1 of 2 not fetched" in result.summary
    assert "Not fetched: 1" in result.summary
    assert "`hip_lib_generic.tar.xz`" in result.summary
    assert (result.outputs["file_count"], result.outputs["artifacts"]) == ("1", '["blas_lib_gfx1151"]')
    assert [path.name for path in (runner.workspace / "got").iterdir()] == ["blas_lib_gfx1151"]


@pytest.mark.parametrize(
    ("inputs", "exit_code", "words"),
    [
        ({"stage": ""}, 2, "needs to be told which artifacts"),
        ({"output_dir": ""}, 2, "needs output_dir"),
        ({"stage": "math-libs"}, 2, "BUILD_TOPOLOGY.toml"),
        ({"artifacts": "solver"}, 3, "solver"),
        ({"platform": "windows"}, 3, "Set platform: linux."),
    ],
)
def test_what_stops_a_fetch_has_its_exit_code_and_is_in_the_summary(
    runner: FakeRunner, inputs: dict[str, str], exit_code: int, words: str
) -> None:
    result = runner.run({**INPUTS, "stage": "all", **inputs})
    assert result.exit_code == exit_code, result.log
    assert words in "".join(result.messages("error"))
    assert result.summary.startswith("### ❌ therock-outputs\n")
    assert not (runner.workspace / "got").exists()


def test_the_command_line_prints_outputs_as_json_and_talks_on_stderr(runner: FakeRunner) -> None:
    folder = runner.workspace
    command = ["fetch-artifacts", "--run-id", P.partition("-")[0], "--staging-dir", "out", "--output-dir", "got"]
    command += ["--artifacts", "hip", "--artifacts", "blas_lib", "--platform", "linux", "--json"]
    done = subprocess.run(
        [sys.executable, "-I", str(PROJECT / "entrypoint.py"), *command],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["artifacts"] == ["blas_lib_gfx1151", "hip_lib_generic"]
    assert "fetched 2 objects" in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_root_fetched_belongs_to_the_workspace_s_owner(runner: FakeRunner) -> None:
    os.chown(runner.workspace, 1234, 1234)
    result = runner.run({**INPUTS, "stage": "all", "extract": "bootstrap", "cache_dir": "kept/cache"})
    assert result.succeeded, result.log
    written = [
        path for name in ("got", "kept") for path in [runner.workspace / name, *(runner.workspace / name).rglob("*")]
    ]
    assert len(written) > 10
    assert {path.lstat().st_uid for path in written} == {1234}


# --- hostile archives -----------------------------------------------------------------------------------------------


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


HOSTILE = {
    "absolute": _member("/tmp/absolute-of-a-hostile-archive"),
    "above": _member("stage/../../above"),
    "link-out": _member("stage/out", tarfile.SYMTYPE, "../../../etc/passwd"),
    "device": _member("stage/null", tarfile.CHRTYPE),
    "pipe": _member("stage/pipe", tarfile.FIFOTYPE),
    "twice": _member("stage/lib/libhip.so"),
    "command": _member("stage/\n::error::pwned"),
}


@pytest.mark.parametrize("extract", ["extract", "flatten", "bootstrap"])
def test_hostile_archives_are_refused_by_their_members_names_and_leave_nothing(
    runner: FakeRunner, extract: str
) -> None:
    folder = runner.workspace / "out" / P
    for kind, member in HOSTILE.items():
        data = make_archive({"stage/lib/libhip.so": "hip"}, more=[member], compression="xz")
        write_run(folder, {f"{kind}_lib_generic.tar.xz": data})
    before = set(read_tree(runner.root))
    result = runner.run({**INPUTS, "stage": "all", "exclude_artifacts": "hip", "extract": extract})
    assert result.exit_code == 6, result.log
    assert (result.outputs["artifacts"], len(result.messages("error"))) == ('["blas_lib_gfx1151"]', 1)
    report = json.loads((runner.workspace / result.outputs["report"]).read_text(encoding="utf-8"))
    told = {item["path"].partition("_")[0]: item["error"] for item in report["failed"]}
    assert told.keys() == HOSTILE.keys()
    for kind, member in HOSTILE.items():
        assert ascii(member.name) in told[kind]
    got = {path.name for path in (runner.workspace / "got").rglob("*") if not path.is_dir()}
    assert got <= {"libblas.so", "artifact_manifest.txt", "stage.prebuilt"}
    assert not [name for name in set(read_tree(runner.root)) - before if "hostile" in name or "above" in name]
    assert not Path("/tmp/absolute-of-a-hostile-archive").exists()
    assert markdown.links(result.summary) == []


def test_a_bomb_is_refused_before_it_fills_the_disk(runner: FakeRunner) -> None:
    data = make_archive({"stage/zeros": bytes(30_000_000)}, compression="xz")
    assert len(data) < 30_000
    write_run(runner.workspace / "out" / P, {"hip_lib_generic.tar.xz": data})
    result = runner.run({**INPUTS, "stage": "all", "max_extracted_bytes": "10000000"})
    assert result.exit_code == 6
    assert "stage/zeros" in "".join(result.messages("error"))
    assert "raise max_extracted_bytes if you trust it" in "".join(result.messages("error"))
    assert [path.name for path in (runner.workspace / "got").iterdir()] == ["blas_lib_gfx1151"]
