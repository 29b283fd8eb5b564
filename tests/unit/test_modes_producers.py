"""Whether a producing stage is done: archives say so for what they hold, records for everything of their stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from _therock_utils.artifact_names import ArtifactName
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from fakes.trees import write_tree
from therock_outputs.modes._producers import has_finished, lacking_artifacts, record_names
from therock_outputs.topology import parse_topology

if TYPE_CHECKING:
    from pathlib import Path

TOPOLOGY = parse_topology(b"""
[build_stages.comm]
artifact_groups = ["comm"]
[build_stages.comm-libs]
artifact_groups = ["comm-libs"]
[build_stages.math-libs]
artifact_groups = ["math"]
[artifact_groups.comm]
[artifact_groups.comm-libs]
[artifact_groups.math]
[artifacts.rccl]
artifact_group = "comm-libs"
[artifacts.mpi]
artifact_group = "comm"
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
""")
RCCL, MPI, BLAS = (TOPOLOGY.artifacts[name] for name in ("rccl", "mpi", "blas"))
END = "-build-1-0123456789abcdef.json"


def record(subject: str) -> str:
    return f"{subject}{END}"


@pytest.mark.parametrize(
    ("stage", "records", "finished"),
    [
        ("comm", [], False),
        ("comm", ["comm"], True),
        ("comm", ["comm-libs"], False),
        ("comm-libs", ["comm-libs"], True),
        ("comm-libs", ["comm"], False),
        ("math-libs", ["comm", "math-libs-gfx1151"], True),
        ("math-libs", ["all"], True),
        ("math-libs", ["", "maths", "other-math-libs"], False),
    ],
)
def test_a_record_counts_for_the_longest_stage_that_its_name_begins_with(
    stage: str, records: list[str], finished: bool
) -> None:
    assert has_finished([stage], topology=TOPOLOGY, records=map(record, records)) == finished


@pytest.mark.parametrize(
    ("family", "meanings", "finished"),
    [
        ("-gfx1151", ["gfx1151"], True),
        ("-gfx1151", ["gfx942"], False),
        ("-gfx94X-dcgpu", ["gfx942"], True),
        ("-gfx942", ["gfx94X-dcgpu", "gfx942"], True),
        ("-gfx110X-all", ["gfx1100"], True),
        ("-gfx9999", ["gfx942"], False),
        ("-gfx9999", ["gfx9999"], True),
        ("", ["gfx942"], True),
    ],
)
def test_a_family_s_record_counts_for_the_targets_of_that_family(
    family: str, meanings: list[str], finished: bool
) -> None:
    records = [record(f"math-libs{family}")]
    assert has_finished(["math-libs"], topology=TOPOLOGY, records=records, meanings=meanings) == finished


def test_what_is_not_there_and_can_still_come_is_named_with_its_stage() -> None:
    present = [ArtifactName.parse("blas_lib_gfx1151"), ArtifactName.parse("blas_lib_generic")]
    lacking = lacking_artifacts(
        [RCCL, MPI, BLAS],
        topology=TOPOLOGY,
        present=[name for name in present if name is not None],
        records=[record("comm-libs")],
        asked_targets=[("gfx94X-dcgpu", ("gfx94X-dcgpu", "gfx942")), ("gfx1151", ("gfx1151",))],
    )
    assert lacking == ("mpi (stage comm)", "blas for gfx94X-dcgpu (stage math-libs)")


def test_without_asked_targets_one_archive_is_enough() -> None:
    name = ArtifactName("blas", "lib", "gfx942:xnack+")
    assert lacking_artifacts([BLAS], topology=TOPOLOGY, present=[name], records=[]) == ()
    assert lacking_artifacts([BLAS], topology=TOPOLOGY, present=[], records=[]) == ("blas (stage math-libs)",)


def test_a_variant_of_an_asked_target_is_there() -> None:
    name = ArtifactName("blas", "lib", "gfx942:xnack+")
    asked = [("gfx942", ("gfx942",))]
    assert lacking_artifacts([BLAS], topology=TOPOLOGY, present=[name], records=[], asked_targets=asked) == ()


def test_only_records_of_artifact_uploads_of_this_run_are_looked_at(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            f"1-linux/reports/upload-artifacts/{record('comm')}": "{}",
            f"1-linux/reports/upload-artifacts/deeper/{record('a')}": "{}",
            f"1-linux/reports/upload-stage/{record('b')}": "{}",
            f"2-linux/reports/upload-artifacts/{record('c')}": "{}",
        },
    )
    root = WorkflowOutputRoot("local", "", "1", "linux")
    assert record_names(LocalStorageBackend(tmp_path), root) == {record("comm")}
