"""Mode copy-artifacts: what is chosen, what is in the way, and what one failure costs."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
)
from _therock_utils._transfer_types import FailedItem, ObjectFacts, StoredBytes, UploadResult
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.contexts import STAGED, make_context
from fakes.trees import digest, read_tree, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
from therock_outputs.modes._copy_conflicts import Unit, overshadowed, plan_copies
from therock_outputs.modes._copy_plan import stages_by_records
from therock_outputs.modes._fetch_plan import RunContents
from therock_outputs.run_records import RecordedObject, RunRecord, parse_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P, SOURCE = "100-linux", "200-linux"
BLAS, BLAS_OTHER = "blas_lib_gfx942.tar.zst", "blas_lib_gfx1151.tar.zst"
RCCL, LLVM = "rccl_lib_generic.tar.zst", "amd-llvm_run_generic.tar.xz"
NAMES = (BLAS, BLAS_OTHER, RCCL, LLVM)
A = "a" * 64
TOPOLOGY = """\
[build_stages.compiler]
artifact_groups = ["compiler"]
[build_stages.math-libs]
artifact_groups = ["math"]
[build_stages.comm-libs]
artifact_groups = ["comm"]
[build_stages.windows-only]
artifact_groups = ["tools"]
[artifact_groups.compiler]
[artifact_groups.math]
[artifact_groups.comm]
[artifact_groups.tools]
[artifacts.amd-llvm]
artifact_group = "compiler"
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
[artifacts.solver]
artifact_group = "math"
type = "target-specific"
[artifacts.rccl]
artifact_group = "comm"
[artifacts.wsl]
artifact_group = "tools"
platform = "windows"
"""


def sidecar(name: str, data: str) -> dict[str, str]:
    return {f"{name}.sha256sum": f"{digest(data)}  {name}\n"}


def with_sidecars(*names: str, data: str = "bytes of {}") -> dict[str, str]:
    """Archives and their sidecars."""
    files: dict[str, str] = {}
    for name in names:
        text = data.format(name)
        files |= {name: text} | sidecar(name, text)
    return files


def lay(workspace: Path, prefix: str, files: Mapping[str, str]) -> None:
    write_tree(workspace / STAGED / prefix, files)


def lay_record(workspace: Path, mode: str, subject: str, names: Sequence[str], **changes: Any) -> None:  # noqa: ANN401 - any JSON
    document = {
        "format": "therock-outputs/report/1",
        "mode": mode,
        "subject": subject,
        "complete": True,
        "dry_run": False,
        "objects": [{"key": f"{SOURCE}/{name}", "size_bytes": 1, "sha256": ""} for name in names],
        **changes,
    }
    path = f"reports/{mode}/{subject.replace('/', '-')}-job-1-00ff.json"
    lay(workspace, SOURCE, {path: json.dumps(document)})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A source run with four archives; what lies deeper, or beside it, is none of its artifacts."""
    lay(tmp_path, SOURCE, with_sidecars(*NAMES))
    lay(tmp_path, SOURCE, {"logs/x_lib_generic.tar.zst": "log", "index.html": "page"})
    lay(tmp_path, f"{SOURCE}2", {"other_lib_generic.tar.zst": "x"})
    return tmp_path


@pytest.fixture
def with_topology(workspace: Path) -> Path:
    write_tree(workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    return workspace


def copy(workspace: Path, **options: Any) -> Report:  # noqa: ANN401 - make_context's
    inputs = {"source_run_id": "200", "staging_dir": STAGED} | options
    return load_mode(Mode.COPY_ARTIFACTS).run(make_context(workspace, Mode.COPY_ARTIFACTS, **inputs))


def arrived(workspace: Path) -> dict[str, str]:
    """What lies at the destination, but for records."""
    tree = read_tree(workspace / STAGED / P) if (workspace / STAGED / P).exists() else {}
    return {name: data.decode() for name, data in tree.items() if not name.startswith("reports/")}


def artifacts(report: Report) -> list[str]:
    return json.loads(report.outputs["artifacts"])


def per_stage(report: Report) -> dict[str, list[str]]:
    return json.loads(report.outputs["per_stage"])


def artifact(archive: str) -> str:
    """What the outputs call an archive."""
    return archive.rpartition(".tar.")[0]


def named(*archives: str) -> list[str]:
    """What the outputs say of these archives."""
    return sorted(map(artifact, archives))


# What is chosen


@pytest.mark.parametrize(
    ("selectors", "chosen"),
    [
        ({"stage": "all"}, NAMES),
        ({"artifacts": "blas"}, (BLAS, BLAS_OTHER)),
        ({"artifacts": "*_run"}, (LLVM,)),
        ({"families": "gfx94X-dcgpu"}, (BLAS, RCCL, LLVM)),
        ({"families": "gfx94X-dcgpu", "exclude_artifacts": "rccl"}, (BLAS, LLVM)),
        ({"targets": "gfx1151", "artifacts": "blas"}, (BLAS_OTHER,)),
        ({"artifact_group": "gfx94X-dcgpu"}, (BLAS, RCCL, LLVM)),
        ({"generic_only": "true"}, (RCCL, LLVM)),
        ({"generic_only": "true", "exclude_components": "run"}, (RCCL,)),
    ],
)
def test_selectors_choose_and_sidecars_go_along(
    workspace: Path, selectors: dict[str, str], chosen: tuple[str, ...]
) -> None:
    report = copy(workspace, **selectors)
    assert report.error is None
    assert artifacts(report) == named(*chosen)
    assert arrived(workspace) == with_sidecars(*chosen)
    assert (report.verb, report.warnings) == ("copied", ())
    assert {item.location.name: item.sha256 for item in report.result.stored} == {
        name: digest(data) for name, data in with_sidecars(*chosen).items()
    }


@pytest.mark.parametrize(
    ("stages", "archives"),
    [
        ("math-libs", {"math-libs": [BLAS_OTHER, BLAS]}),
        ("comm-libs, compiler", {"comm-libs": [RCCL], "compiler": [LLVM]}),
        ("comm-libs;comm-libs", {"comm-libs": [RCCL]}),
        ("all", {"all": sorted(NAMES)}),
    ],
)
def test_stages_stand_for_what_the_topology_says_they_make(
    with_topology: Path, stages: str, archives: dict[str, list[str]]
) -> None:
    report = copy(with_topology, stage=stages)
    assert per_stage(report) == {stage: named(*names) for stage, names in archives.items()}
    assert artifacts(report) == named(*(name for names in archives.values() for name in names))
    assert report.subject == ",".join(archives)


def test_without_stages_there_is_nothing_per_stage(workspace: Path) -> None:
    report = copy(workspace, artifacts="blas")
    assert (report.outputs["per_stage"], report.subject) == ("{}", "artifacts")


def test_what_a_stage_should_have_and_the_run_has_not_is_told_and_is_no_failure(with_topology: Path) -> None:
    report = copy(with_topology, stage="math-libs")
    assert report.error is None
    assert "stage math-libs should also have solver: the source run has no archive of that" in report.notices


def test_without_a_topology_the_records_of_the_source_say_which_stage_an_archive_is_of(workspace: Path) -> None:
    lay_record(workspace, "upload-artifacts", "math-libs/gfx942", [BLAS, f"{BLAS}.sha256sum", "gone_lib_x.tar.zst"])
    lay_record(workspace, "upload-artifacts", "math-libs/gfx1151", [BLAS_OTHER])
    lay_record(workspace, "upload-artifacts", "math-libs-2", [LLVM])
    lay_record(workspace, "upload-stage", "math-libs", [RCCL])
    stages = json.dumps({"comm-libs": ["rccl_lib_generic", "no artifact"], "math-libs": []})
    lay_record(workspace, "copy-artifacts", "comm-libs,math-libs", [RCCL], outputs={"per_stage": stages})
    report = copy(workspace, stage="math-libs;comm-libs")
    assert report.error is None
    assert per_stage(report) == {"math-libs": named(BLAS, BLAS_OTHER), "comm-libs": named(RCCL)}
    assert report.notices[-1] == "stage math-libs should also have gone_lib_x: the source run has no archive of that"


def test_a_copied_run_can_be_copied_on_by_its_record(with_topology: Path) -> None:
    copy(with_topology, stage="math-libs;comm-libs")
    (with_topology / "BUILD_TOPOLOGY.toml").unlink()
    report = copy(with_topology, run_id="300", source_run_id="100", stage="comm-libs")
    assert per_stage(report) == {"comm-libs": named(RCCL)}
    assert (with_topology / STAGED / "300-linux" / RCCL).read_text() == f"bytes of {RCCL}"


def test_an_incomplete_record_of_the_source_is_warned_of(workspace: Path) -> None:
    lay_record(workspace, "upload-artifacts", "math-libs", [BLAS], complete=False)
    report = copy(workspace, stage="math-libs")
    assert artifacts(report) == named(BLAS)
    assert "these records say that not all was stored: reports/upload-artifacts/math-libs-" in report.warnings[0]


JUNK = "reports/upload-artifacts/junk.json"


def test_a_record_of_the_source_that_cannot_be_used_is_a_warning_where_another_names_the_stage(workspace: Path) -> None:
    lay_record(workspace, "upload-artifacts", "math-libs", [BLAS])
    lay(workspace, SOURCE, {JUNK: '{"a":1}'})
    report = copy(workspace, stage="math-libs")
    assert artifacts(report) == named(BLAS)
    assert (report.error, report.result.failed) == (None, ())
    (warning,) = report.warnings
    assert warning == (
        f"the record {JUNK} cannot be used (its format is null, and therock-outputs/report/1 is wanted): "
        "the list of stage math-libs may lack archives"
    )
    assert report.record is not None
    assert json.loads(report.record.local_path(workspace / STAGED).read_bytes())["complete"] is True


def test_no_more_than_a_few_records_that_cannot_be_used_are_warned_of(workspace: Path) -> None:
    lay_record(workspace, "upload-artifacts", "math-libs", [BLAS])
    lay(workspace, SOURCE, {f"reports/upload-artifacts/junk{number}.json": "[]" for number in range(8)})
    warnings = copy(workspace, stage="math-libs").warnings
    assert len(warnings) == 6
    assert warnings[-1] == "3 more records cannot be used: the list of stage math-libs may lack archives"


@pytest.mark.parametrize("others", [{}, {"math-libs-2": [BLAS]}, {"comm-libs": [RCCL]}])
def test_where_no_usable_record_names_a_stage_those_that_cannot_be_used_are_the_error(
    workspace: Path, others: dict[str, list[str]]
) -> None:
    for subject, names in others.items():
        lay_record(workspace, "upload-artifacts", subject, names)
    lay(workspace, SOURCE, {JUNK: "[]", "reports/upload-artifacts/more.json": "[]"})
    with pytest.raises(IntegrityError) as caught:
        copy(workspace, stage="comm-libs;math-libs" if "comm-libs" in others else "math-libs", if_missing="ignore")
    assert caught.value.what == "it is not known which artifacts stage math-libs makes"
    assert caught.value.why == (
        f"no record that can be used names it, and the record {JUNK} cannot be used "
        "(it must be an object, not a list), nor can 1 more"
    )
    assert "Or remove the record" in caught.value.remedy
    assert arrived(workspace) == {}


def test_a_stage_may_be_chosen_by_the_topology_whatever_the_records_are(with_topology: Path) -> None:
    lay(with_topology, SOURCE, {JUNK: "[]"})
    report = copy(with_topology, stage="comm-libs")
    assert (artifacts(report), report.warnings) == (named(RCCL), ())


def test_a_stage_with_neither_topology_nor_records_is_an_error_that_names_both(workspace: Path) -> None:
    with pytest.raises(InputError, match="which artifacts stage math-libs makes") as caught:
        copy(workspace, stage="math-libs")
    assert "no topology BUILD_TOPOLOGY.toml" in caught.value.why
    assert "no record of upload-artifacts or copy-artifacts" in caught.value.why


def test_of_both_compressions_the_preferred_one_is_copied(workspace: Path) -> None:
    lay(workspace, SOURCE, with_sidecars("rccl_lib_generic.tar.xz"))
    assert artifacts(copy(workspace, artifacts="rccl")) == named(RCCL)
    assert arrived(workspace) == with_sidecars(RCCL)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "needs to be told which artifacts to copy"),
        ({"exclude_artifacts": "x"}, "needs to be told which artifacts to copy"),
        ({"stage": "all", "source_run_id": ""}, "needs source_run_id"),
        ({"stage": "all", "source_run_id": "100"}, "cannot be copied to itself"),
        ({"stage": "all", "source_run_id": "100", "source_bucket": "other"}, "cannot be copied to itself"),
        ({"generic_only": "true", "families": "gfx942"}, "generic_only leaves out"),
        ({"artifact_group": ";"}, "needs to be told which artifacts to copy"),
        ({"generic_only": "true", "artifact_group": "gfx94X-dcgpu"}, "generic_only leaves out"),
        ({"stage": "all;math-libs"}, "stage is all and more"),
        ({"artifacts": "a/b"}, "the glob pattern 'a/b' cannot be used"),
        ({"stage": "no-such-stage"}, "stage 'no-such-stage' is not in the topology"),
        ({"stage": "math-libs", "topology": "none.toml"}, "the topology"),
    ],
)
def test_what_cannot_be_meant_is_an_input_error(with_topology: Path, inputs: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        copy(with_topology, **inputs)
    assert arrived(with_topology) == {}


def test_no_selector_is_told_with_all_there_are(workspace: Path) -> None:
    with pytest.raises(InputError) as caught:
        copy(workspace)
    assert "stage, artifacts, families, targets, generic_only, artifact_group" in caught.value.remedy


# What is missing


@pytest.mark.parametrize(
    ("selectors", "missing"),
    [
        ({"artifacts": "blas;fft"}, "fft"),
        ({"families": "gfx942;gfx906"}, "gfx906"),
        ({"stage": "math-libs", "families": "gfx942;gfx906"}, "gfx906"),
        ({"stage": "math-libs", "artifacts": "blas;rccl"}, "rccl"),
        ({"stage": "comm-libs", "artifacts": "rccl;x", "families": "gfx906"}, "x"),
    ],
)
def test_what_is_asked_for_by_name_and_is_not_there_is_as_if_missing_says(
    with_topology: Path, selectors: dict[str, str], missing: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        copy(with_topology, **selectors)
    assert caught.value.what == f"the source run has nothing for {missing}"
    assert caught.value.why == f"it has 4 archives: {', '.join(sorted(NAMES))}"
    assert arrived(with_topology) == {}
    warned = copy(with_topology, if_missing="warn", **selectors)
    assert warned.error is None
    assert warned.warnings[0].startswith(f"the source run has nothing for {missing} (it has 4 archives: ")
    ignored = copy(with_topology, if_missing="ignore", **selectors)
    assert ignored.warnings == ()


def test_a_stage_none_of_whose_artifacts_is_there_is_missing(with_topology: Path) -> None:
    for name in (RCCL, f"{RCCL}.sha256sum"):
        (with_topology / STAGED / SOURCE / name).unlink()
    with pytest.raises(NotFoundError, match="nothing for stage comm-libs"):
        copy(with_topology, stage="math-libs;comm-libs")
    report = copy(with_topology, stage="math-libs;comm-libs", if_missing="warn")
    assert per_stage(report) == {"math-libs": named(BLAS, BLAS_OTHER), "comm-libs": []}


def test_a_stage_that_makes_nothing_on_this_platform_is_a_notice(with_topology: Path) -> None:
    report = copy(with_topology, stage="math-libs;windows-only")
    assert report.error is None
    assert "stage windows-only makes no artifact for this platform" in report.notices


def test_a_family_is_not_missed_where_no_stage_makes_anything_for_one_gpu(with_topology: Path) -> None:
    assert artifacts(copy(with_topology, stage="comm-libs", families="gfx906")) == named(RCCL)


@pytest.mark.parametrize(
    ("told", "exit_code", "warned"), [("", 3, False), ("error", 3, False), ("warn", 0, True), ("ignore", 0, False)]
)
def test_nothing_to_copy_is_as_if_no_files_found_says(workspace: Path, told: str, exit_code: int, warned: bool) -> None:
    inputs = {"stage": "all", "exclude_artifacts": "*", "if_no_files_found": told}
    if exit_code:
        with pytest.raises(NotFoundError, match="nothing to copy") as caught:
            copy(workspace, **inputs)
        assert caught.value.why.startswith("it has 4 archives: ")
        return
    report = copy(workspace, **inputs)
    assert (report.error, bool(report.warnings)) == (None, warned)
    assert (report.outputs["artifacts"], report.outputs["per_stage"]) == ("[]", '{"all": []}')
    assert report.parts[0].state == "nothing"
    assert report.record is None


def test_an_empty_source_run_is_an_error_in_the_words_of_this_mode(workspace: Path) -> None:
    with pytest.raises(NotFoundError, match="run 999 has no outputs") as caught:
        copy(workspace, source_run_id="999", stage="all")
    assert "Check source_run_id, source_repository and source_release_type" in caught.value.remedy
    assert "wait_seconds" not in caught.value.remedy


def test_a_source_run_of_the_other_platform_is_found(workspace: Path) -> None:
    lay(workspace, "999-windows", with_sidecars(RCCL))
    with pytest.raises(NotFoundError) as caught:
        copy(workspace, source_run_id="999", stage="all")
    assert caught.value.remedy == "Set platform: windows."


def test_a_source_run_with_logs_only_has_nothing_to_copy(workspace: Path) -> None:
    lay(workspace, "999-linux", {"logs/a.log": "a"})
    with pytest.raises(NotFoundError, match="nothing to copy") as caught:
        copy(workspace, source_run_id="999", stage="all")
    assert caught.value.why == "it has no artifact archive at all"


# What is in the way


def test_a_second_copy_copies_nothing_and_reports_the_same(workspace: Path) -> None:
    first = copy(workspace, stage="all")
    watched = Recording(workspace / STAGED)
    second = copy(workspace, stage="all", backend=watched)
    assert watched.copied == []
    assert second.outputs == first.outputs
    assert [(item.location, item.size_bytes, item.sha256) for item in second.result.stored] == [
        (item.location, item.size_bytes, item.sha256) for item in first.result.stored
    ]
    assert second.warnings == ()
    assert "4 archives of the same size, with the same digest beside it, lay there already" in second.notices
    assert second.record is not None


def other_bytes(name: str) -> dict[str, str]:
    return with_sidecars(name, data="BYTES of {}")


@pytest.mark.parametrize(
    ("there", "state"),
    [
        (other_bytes(RCCL), "different"),
        ({RCCL: "of another size"}, "different"),
        ({RCCL: f"BYTES of {RCCL}"}, "different"),
        (sidecar(RCCL, "other"), "different"),
        ({RCCL: f"bytes of {RCCL}"} | sidecar(RCCL, "other"), "different"),
        ({RCCL: f"BYTES of {RCCL}"} | sidecar(RCCL, f"bytes of {RCCL}"), "different"),
    ],
    ids=["pair", "size", "no digest", "digest only", "digest", "bytes"],
)
def test_other_bytes_at_the_destination_are_overwritten_with_a_warning(
    workspace: Path, there: dict[str, str], state: str
) -> None:
    lay(workspace, P, there)
    report = copy(workspace, artifacts="rccl;blas")
    assert report.error is None
    assert [conflict.state for conflict in report.result.conflicts] == [state]
    (warning,) = report.warnings
    assert "was overwritten: " in warning
    assert arrived(workspace) == with_sidecars(BLAS, BLAS_OTHER, RCCL)


def test_with_on_conflict_error_nothing_is_copied(workspace: Path) -> None:
    lay(workspace, P, other_bytes(RCCL))
    report = copy(workspace, artifacts="rccl;blas", on_conflict="error")
    assert isinstance(report.error, ConflictError)
    assert report.exit_code == 6
    assert len(report.result.failed) == 3
    assert arrived(workspace) == other_bytes(RCCL)
    assert report.record is None


def test_with_on_conflict_skip_the_pair_at_the_destination_stays(workspace: Path) -> None:
    lay(workspace, P, other_bytes(RCCL))
    report = copy(workspace, artifacts="rccl;blas", on_conflict="skip")
    assert report.error is None
    assert artifacts(report) == named(BLAS, BLAS_OTHER)
    assert arrived(workspace) == with_sidecars(BLAS, BLAS_OTHER) | other_bytes(RCCL)
    assert "was skipped" in report.warnings[0]
    only = copy(workspace, artifacts="rccl", on_conflict="skip")
    assert (only.error, only.parts[0].state) == (None, "left-out")


@pytest.mark.parametrize("on_conflict", ["overwrite", "error", "skip"])
def test_what_a_copy_left_that_was_stopped_half_way_is_completed(workspace: Path, on_conflict: str) -> None:
    lay(workspace, P, {RCCL: f"bytes of {RCCL}"})
    report = copy(workspace, artifacts="rccl", on_conflict=on_conflict)
    assert (report.error, report.warnings, artifacts(report)) == (None, (), named(RCCL))
    assert arrived(workspace) == with_sidecars(RCCL)


def test_damage_behind_the_right_digest_is_repaired(workspace: Path) -> None:
    copy(workspace, artifacts="rccl")
    lay(workspace, P, {RCCL: f"BYTES of {RCCL}"})
    report = copy(workspace, artifacts="rccl")
    assert report.error is None
    assert report.warnings == (f"{P}/{RCCL} was overwritten: other bytes lay there",)
    assert arrived(workspace) == with_sidecars(RCCL)


def test_a_good_pair_at_the_destination_survives_a_source_that_is_not_what_its_sidecar_says(workspace: Path) -> None:
    lay(workspace, P, other_bytes(RCCL))
    lay(workspace, SOURCE, sidecar(RCCL, "what it was"))
    report = copy(workspace, artifacts="rccl")
    assert report.exit_code == 6
    assert [item.path for item in report.result.failed] == [RCCL]
    assert arrived(workspace) == other_bytes(RCCL)
    assert (report.result.conflicts, report.warnings) == ((), ()), "nothing was overwritten, so nothing says so"


def test_an_archive_without_a_digest_is_copied_with_a_warning(workspace: Path) -> None:
    (workspace / STAGED / SOURCE / f"{RCCL}.sha256sum").unlink()
    report = copy(workspace, artifacts="rccl")
    assert artifacts(report) == named(RCCL)
    assert arrived(workspace) == {RCCL: f"bytes of {RCCL}"}
    assert report.warnings == (f"without a digest, because the source run has none that can be read: {RCCL}",)
    assert [item.sha256 for item in report.result.stored] == [digest(f"bytes of {RCCL}")], "the bytes were seen"


def test_an_archive_without_a_digest_does_not_go_beside_one_of_other_bytes(workspace: Path) -> None:
    (workspace / STAGED / SOURCE / f"{RCCL}.sha256sum").unlink()
    lay(workspace, P, other_bytes(RCCL))
    report = copy(workspace, artifacts="rccl;blas")
    assert report.exit_code == 6
    assert [item.path for item in report.result.failed] == [RCCL]
    assert artifacts(report) == named(BLAS, BLAS_OTHER)
    assert arrived(workspace) == with_sidecars(BLAS, BLAS_OTHER) | other_bytes(RCCL)


def test_a_sidecar_that_is_none_is_warned_of(workspace: Path) -> None:
    lay(workspace, SOURCE, {f"{RCCL}.sha256sum": "not a digest\n"})
    report = copy(workspace, artifacts="rccl")
    assert report.error is None
    assert report.warnings == (f"what lies beside these archives is no digest of theirs: {RCCL}",)


def test_a_sidecar_too_long_for_one_is_not_copied(workspace: Path) -> None:
    lay(workspace, SOURCE, {f"{RCCL}.sha256sum": "x" * 5000})
    report = copy(workspace, artifacts="rccl")
    assert arrived(workspace) == {RCCL: f"bytes of {RCCL}"}
    assert len(report.warnings) == 1


def test_an_archive_that_is_not_what_its_sidecar_says_fails_alone(workspace: Path) -> None:
    lay(workspace, SOURCE, sidecar(RCCL, "what it was"))
    report = copy(workspace, artifacts="rccl;blas")
    assert report.exit_code == 6
    (failed,) = report.result.failed
    assert digest("what it was") in failed.error.why
    assert digest(f"bytes of {RCCL}") in failed.error.why
    assert artifacts(report) == named(BLAS, BLAS_OTHER)
    assert failed.error.what == f"{RCCL} is not what its sidecar says"
    assert arrived(workspace) == with_sidecars(BLAS, BLAS_OTHER), "it was not copied at all"


def test_a_preferred_compression_at_the_destination_is_warned_of(workspace: Path) -> None:
    lay(workspace, P, {"amd-llvm_run_generic.tar.zst": "old"})
    (warning,) = copy(workspace, artifacts="amd-llvm").warnings
    assert warning.endswith("which lie at the destination, too: amd-llvm_run_generic.tar.zst")


# Courses


class Recording(LocalStorageBackend):
    """Keeps what is copied in which call, and what is described; hooks may change what comes of it.

    `on_describe` gives the digest that the service keeps of an object, or another answer; None: that of the bytes.
    """

    def __init__(
        self,
        staging_dir: Path,
        *,
        on_copy: Callable[[StorageLocation], OutputsError | None] = lambda _location: None,
        on_read: Callable[[StorageLocation], OutputsError | None] = lambda _location: None,
        on_describe: Callable[[StorageLocation], OutputsError | str | None] = lambda _location: None,
    ) -> None:
        super().__init__(staging_dir)
        self.copied: list[list[str]] = []
        self.described: list[list[str]] = []
        self._on_describe = on_describe
        self.known: list[int] = []
        self._on_copy, self._on_read = on_copy, on_read

    def copy(self, pairs: Sequence[tuple[StorageLocation, StorageLocation]], **options: Any) -> UploadResult:  # noqa: ANN401 - as LocalStorageBackend's
        self.copied.append([source.name for source, _ in pairs])
        self.known.append(len(options["known_sizes"]))
        failures = {to: self._on_copy(source) for source, to in pairs}
        result = super().copy([pair for pair in pairs if failures[pair[1]] is None], **options)
        failed = [FailedItem(source.relative_path, to, error) for source, to in pairs if (error := failures[to])]
        return result + UploadResult(failed=tuple(failed))

    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        answers = super().read_all_small(locations, cancel=cancel)
        return tuple(self._on_read(at) or answer for at, answer in zip(locations, answers, strict=True))

    def describe(
        self, locations: Sequence[StorageLocation], *, reads: bool = False, cancel: CancelToken | None = None
    ) -> tuple[ObjectFacts | OutputsError | None, ...]:
        self.described.append([location.relative_path for location in locations])
        found: list[ObjectFacts | OutputsError | None] = []
        for location, facts in zip(locations, super().describe(locations, reads=reads, cancel=cancel), strict=True):
            answer = self._on_describe(location)
            if isinstance(answer, str) and isinstance(facts, ObjectFacts):
                found.append(dataclasses.replace(facts, sha256=answer))
            else:
                found.append(facts if answer is None or isinstance(answer, str) else answer)
        return tuple(found)


def refuse(name: str) -> Callable[[StorageLocation], OutputsError | None]:
    return lambda location: NotPermittedError("denied") if location.name == name else None


def test_all_archives_go_first_then_the_sidecars_and_no_size_is_asked_for(workspace: Path) -> None:
    backend = Recording(workspace / STAGED)
    copy(workspace, stage="all", backend=backend)
    archives, sidecars = backend.copied
    assert archives == sorted(NAMES)
    assert sidecars == [f"{name}.sha256sum" for name in archives]
    assert backend.known == [4, 4]


def test_one_look_at_each_archive_decides_before_anything_is_copied(workspace: Path) -> None:
    (workspace / STAGED / SOURCE / f"{LLVM}.sha256sum").unlink()
    lay(workspace, P, with_sidecars(BLAS) | {BLAS_OTHER: "of another size"})
    backend = Recording(workspace / STAGED)
    copy(workspace, stage="all", backend=backend)
    there, source = backend.described
    assert there == [f"{P}/{BLAS}"]
    assert source == [f"{SOURCE}/{name}" for name in (BLAS_OTHER, RCCL)], "LLVM's sidecar claims nothing"


class Silent(Recording):
    """Copies as a service does, which does not tell what bytes went by."""

    def copy(self, pairs: Sequence[tuple[StorageLocation, StorageLocation]], **options: Any) -> UploadResult:  # noqa: ANN401 - as LocalStorageBackend's
        result = super().copy(pairs, **options)
        return dataclasses.replace(
            result, stored=tuple(dataclasses.replace(item, sha256="", verified="size-only") for item in result.stored)
        )


def keeps_none(_location: StorageLocation) -> str:
    return ""


def test_where_the_service_keeps_no_digest_none_is_vouched_for_and_that_is_said_once(workspace: Path) -> None:
    report = copy(
        workspace,
        stage="all",
        staging_dir="",
        lookup="false",
        backend=Silent(workspace / STAGED, on_describe=keeps_none),
    )
    assert report.error is None
    assert arrived(workspace) == with_sidecars(*NAMES)
    digests = {item.location.name: item.sha256 for item in report.result.stored}
    assert {digests[name] for name in NAMES} == {""}
    assert "" not in {digests[f"{name}.sha256sum"] for name in NAMES}
    (notice,) = report.notices
    assert notice == (
        "4 archives: not compared with the digest beside it, because the service keeps no SHA-256 (mode verify with "
        "check: read compares)"
    )


def test_a_service_that_keeps_another_digest_than_the_sidecar_s_is_believed_before_a_copy(workspace: Path) -> None:
    backend = Silent(workspace / STAGED, on_describe=lambda at: A if at.name == RCCL else None)
    report = copy(workspace, artifacts="rccl;blas", backend=backend)
    assert report.exit_code == 6
    (failed,) = report.result.failed
    assert (failed.path, failed.location.relative_path) == (RCCL, f"{P}/{RCCL}")
    assert failed.error.why == f"the sidecar has sha256 {digest(f'bytes of {RCCL}')}, the archive {A}"
    assert arrived(workspace) == with_sidecars(BLAS, BLAS_OTHER)
    digests = {item.location.name: item.sha256 for item in report.result.stored}
    assert digests[BLAS] == digest(f"bytes of {BLAS}"), "the service and the sidecar agree"


@pytest.mark.parametrize(("answer", "exit_code"), [(NotPermittedError("denied"), 4), (NotFoundError("gone"), 3)])
def test_an_archive_that_may_not_be_looked_at_is_not_copied(
    workspace: Path, answer: OutputsError, exit_code: int
) -> None:
    backend = Recording(workspace / STAGED, on_describe=lambda at: answer if at.name == RCCL else None)
    report = copy(workspace, artifacts="rccl;blas", backend=backend)
    assert (report.exit_code, artifacts(report)) == (exit_code, named(BLAS, BLAS_OTHER))


def test_an_archive_that_vanishes_after_the_listing_costs_only_itself(workspace: Path) -> None:
    path = workspace / STAGED / SOURCE / RCCL

    def vanish(_location: StorageLocation) -> None:
        path.unlink(missing_ok=True)

    report = copy(workspace, artifacts="rccl;blas", backend=Recording(workspace / STAGED, on_read=vanish))
    assert report.exit_code == 3
    assert [(item.path, item.error.what) for item in report.result.failed] == [
        (RCCL, f"{RCCL} is gone from the source run")
    ]


def test_a_source_that_changes_while_it_is_copied_is_told_with_what_lies_there_now(workspace: Path) -> None:
    def change(location: StorageLocation) -> None:
        if location.name == RCCL:
            lay(workspace, SOURCE, {RCCL: f"BYTES of {RCCL}"})

    report = copy(workspace, artifacts="rccl", backend=Recording(workspace / STAGED, on_copy=change))
    (failed,) = report.result.failed
    assert failed.error.what == f"{RCCL} changed while it was copied"
    assert digest(f"BYTES of {RCCL}") in failed.error.why
    assert "the copy that lies there now is not sound" in failed.error.remedy


@pytest.mark.parametrize("on_conflict", ["overwrite", "error", "skip"])
def test_what_only_looks_the_same_is_copied_again_where_the_service_keeps_no_digest(
    workspace: Path, on_conflict: str
) -> None:
    copy(workspace, artifacts="rccl")
    lay(workspace, P, {RCCL: f"BYTES of {RCCL}"})
    backend = Silent(workspace / STAGED, on_describe=lambda at: "" if at.relative_path.startswith(f"{P}/") else None)
    report = copy(workspace, artifacts="rccl", on_conflict=on_conflict, backend=backend)
    repaired = with_sidecars(RCCL)
    assert arrived(workspace) == (repaired if on_conflict == "overwrite" else repaired | {RCCL: f"BYTES of {RCCL}"})
    assert [conflict.state for conflict in report.result.conflicts] == (
        [] if on_conflict == "overwrite" else ["unknown"]
    )
    assert artifacts(report) == (named(RCCL) if on_conflict == "overwrite" else [])
    assert report.exit_code == (6 if on_conflict == "error" else 0)
    said = [notice for notice in report.notices if "was not taken for the same" in notice]
    assert len(said) == (on_conflict == "overwrite")


def test_an_archive_that_is_refused_costs_only_itself_and_its_sidecar(workspace: Path) -> None:
    backend = Recording(workspace / STAGED, on_copy=refuse(RCCL))
    report = copy(workspace, artifacts="rccl;blas", backend=backend)
    assert report.exit_code == 4
    assert backend.copied[1] == [f"{BLAS_OTHER}.sha256sum", f"{BLAS}.sha256sum"]
    assert artifacts(report) == named(BLAS, BLAS_OTHER)
    assert report.parts[0].state == "partly"
    assert report.parts[0].note.startswith("1 of 5 not copied")
    assert report.record is not None
    document = json.loads(report.record.local_path(workspace / STAGED).read_bytes())
    assert document["complete"] is False


def test_an_archive_whose_sidecar_is_refused_is_not_told_as_copied(workspace: Path) -> None:
    report = copy(
        workspace, artifacts="rccl;blas", backend=Recording(workspace / STAGED, on_copy=refuse(f"{RCCL}.sha256sum"))
    )
    assert report.exit_code == 4
    assert artifacts(report) == named(BLAS, BLAS_OTHER)
    (failed,) = report.result.failed
    assert (failed.path, failed.error.what, failed.error.why) == (
        RCCL,
        f"{RCCL} was copied, and its digest was not",
        "denied",
    )
    assert failed.error.remedy == "Copy again: that replaces both."
    assert RCCL in {item.location.name for item in report.result.stored}, "its key was written"


def test_all_that_is_refused_has_the_bare_name_of_its_archive(workspace: Path) -> None:
    lay(workspace, SOURCE, sidecar(LLVM, "what it was"))
    report = copy(workspace, stage="all", backend=Recording(workspace / STAGED, on_copy=refuse(RCCL)))
    assert sorted(item.path for item in report.result.failed) == [LLVM, RCCL]


def test_an_archive_whose_sidecar_cannot_be_read_is_not_copied(workspace: Path) -> None:
    backend = Recording(workspace / STAGED, on_read=refuse(f"{RCCL}.sha256sum"))
    report = copy(workspace, artifacts="rccl;blas", backend=backend)
    assert report.exit_code == 4
    assert [item.path for item in report.result.failed] == [RCCL]
    assert artifacts(report) == named(BLAS, BLAS_OTHER)


def test_a_sidecar_at_the_destination_that_cannot_be_read_leaves_the_archive_unknown(workspace: Path) -> None:
    copy(workspace, artifacts="rccl")
    refused = lambda at: NotPermittedError("no") if at.relative_path.startswith(f"{P}/") else None  # noqa: E731 - one line says it
    report = copy(workspace, artifacts="rccl", backend=Recording(workspace / STAGED, on_read=refused))
    assert [conflict.state for conflict in report.result.conflicts] == ["unknown"]
    assert report.error is None


def test_everything_refused_is_one_error_and_leaves_no_record(workspace: Path) -> None:
    error = NotPermittedError("denied", why="403")
    report = copy(workspace, stage="all", backend=Recording(workspace / STAGED, on_copy=lambda _location: error))
    assert report.error is error
    assert (report.outputs["artifacts"], report.parts[0].state, report.record) == ("[]", "failed", None)
    assert arrived(workspace) == {}


def test_a_cancel_while_copying_stops_before_the_sidecars_and_leaves_no_record(workspace: Path) -> None:
    cancel = CancelToken()

    def signal(_location: StorageLocation) -> None:
        cancel.cancel(15)

    report = copy(workspace, stage="all", cancel=cancel, backend=Recording(workspace / STAGED, on_copy=signal))
    assert report.exit_code == 143
    assert all(isinstance(item.error, CancelledError) for item in report.result.failed)
    assert report.record is None


@pytest.mark.parametrize("stopped_at", [RCCL, f"{RCCL}.sha256sum"])
def test_a_cancel_in_the_middle_of_a_pair_that_is_replaced_says_so_and_the_next_copy_repairs_it(
    workspace: Path, stopped_at: str
) -> None:
    lay(workspace, P, other_bytes(RCCL))
    cancel = CancelToken()

    def stop(location: StorageLocation) -> None:
        if location.name == stopped_at:
            cancel.cancel(15)

    report = copy(workspace, artifacts="rccl", cancel=cancel, backend=Recording(workspace / STAGED, on_copy=stop))
    assert report.exit_code == 143
    (failed,) = report.result.failed
    assert failed.path == RCCL
    assert failed.error.remedy == "Copy again: that replaces both."
    was_written = stopped_at != RCCL
    assert [item.location.name for item in report.result.stored] == [RCCL] * was_written
    assert [conflict.action for conflict in report.result.conflicts] == ["overwritten"] * was_written
    assert arrived(workspace) == other_bytes(RCCL) | ({RCCL: f"bytes of {RCCL}"} if was_written else {})
    assert artifacts(report) == []
    again = copy(workspace, artifacts="rccl")
    assert (again.error, artifacts(again)) == (None, named(RCCL))
    assert arrived(workspace) == with_sidecars(RCCL)


def test_a_dry_run_finds_a_source_that_is_not_what_its_sidecar_says(workspace: Path) -> None:
    lay(workspace, SOURCE, sidecar(RCCL, "what it was"))
    report = copy(workspace, artifacts="rccl;blas", dry_run="true")
    assert (report.exit_code, artifacts(report)) == (6, named(BLAS, BLAS_OTHER))


def test_what_is_told_of_both_runs_alike_is_told_once(workspace: Path) -> None:
    environment = {"RELEASE_TYPE": "nightly"}
    places = {"run_id": "200", "source_run_id": "200", "bucket": "other-bucket", "source_bucket": "one-bucket"}
    context = make_context(
        workspace, Mode.COPY_ARTIFACTS, artifacts="rccl", lookup="false", environment=environment, **places
    )
    report = load_mode(Mode.COPY_ARTIFACTS).run(dataclasses.replace(context, staging_dir=None))
    assert ["run 200" in notice for notice in report.notices if "RELEASE_TYPE" in notice] == [True]
    other = copy(workspace, artifacts="rccl", run_id="300", environment=environment)
    assert sorted(
        ("run 200" in notice, "run 300" in notice) for notice in other.notices if "RELEASE_TYPE" in notice
    ) == [
        (False, True),
        (True, False),
    ]


def test_a_dry_run_tells_the_same_and_copies_nothing(workspace: Path) -> None:
    report = copy(workspace, stage="all", dry_run="true")
    assert artifacts(report) == named(*NAMES)
    assert {item.verified for item in report.result.stored} == {"dry-run"}
    assert (report.page, report.record) == (None, None)
    assert arrived(workspace) == {}
    copy(workspace, stage="all")
    again = copy(workspace, stage="all", dry_run="true")
    assert {item.verified for item in again.result.stored} == {"dry-run"}


def test_the_record_of_a_copy_names_what_is_stored(workspace: Path) -> None:
    report = copy(workspace, stage="all")
    assert report.record is not None
    name = report.record.relative_path.removeprefix(f"{P}/")
    assert name.startswith("reports/copy-artifacts/all-build-1-")
    data = report.record.local_path(workspace / STAGED).read_bytes()
    record = parse_record(data, name=name, prefix=P)
    assert {item.key.removeprefix(f"{P}/"): item.sha256 for item in record.objects} == {
        name: digest(text) for name, text in arrived(workspace).items()
    }
    assert record.per_stage == {"all": tuple(named(*NAMES))}


def test_the_page_of_the_artifacts_is_the_server_s_where_it_makes_one(workspace: Path) -> None:
    inputs = {"stage": "all", "staging_dir": "", "lookup": "false"}
    report = copy(workspace, **inputs)
    assert report.page is not None
    assert report.page.relative_path == f"{P}/index.html"
    assert report.parts[0].by_server
    own = copy(workspace, bucket="my-bucket", **inputs)
    assert (own.page, own.parts[0].location) == (None, None)


# Decisions


def at(name: str) -> StorageLocation:
    return StorageLocation("bucket", f"{P}/{name}")


def test_a_sidecar_alone_with_the_same_bytes_is_not_in_the_way() -> None:
    unit = Unit(RCCL, 5, b"x")
    there = RunContents(sidecars={unit.sidecar_name: 1})
    sidecars = {unit.sidecar_name: StoredBytes(b"x", "e")}
    plan = plan_copies([unit], there, sidecars, {}, destination=at, on_conflict="error")
    assert (plan.copied, plan.conflicts, plan.failed) == ((unit,), (), ())


def test_a_digest_in_the_way_of_an_archive_that_has_none_is_skipped_or_refused_too() -> None:
    unit = Unit(RCCL, 5)
    there = RunContents(sidecars={unit.sidecar_name: 1})
    sidecars = {unit.sidecar_name: StoredBytes(b"x", "e")}
    skipped = plan_copies([unit], there, sidecars, {}, destination=at, on_conflict="skip")
    assert [(conflict.location.name, conflict.action) for conflict in skipped.conflicts] == [
        (unit.sidecar_name, "skipped")
    ]
    assert (skipped.copied, skipped.failed) == ((), ())
    refused = plan_copies([unit], there, sidecars, {}, destination=at, on_conflict="error")
    assert [item.path for item in refused.failed] == [RCCL]


def test_only_the_preferred_compression_overshadows_the_other() -> None:
    there = RunContents(archives={"a_lib_generic.tar.zst": 1, "b_lib_generic.tar.xz": 1})
    units = [Unit(f"{name}_lib_generic.tar.{end}", 1) for name, end in (("a", "xz"), ("b", "zst"), ("c", "xz"))]
    assert overshadowed(units, there) == ("a_lib_generic.tar.zst",)


def test_records_of_other_subjects_and_what_is_no_archive_do_not_count() -> None:
    def record(mode: str, subject: str, *names: str) -> RunRecord:
        objects = tuple(RecordedObject(f"{SOURCE}/{name}", 1, "") for name in names)
        return RunRecord("n", mode, subject, complete=True, objects=objects, per_stage={"s": (artifact(LLVM),)})

    records = [
        record("upload-artifacts", "s", RCCL, "index.html", "logs/x_lib_generic.tar.zst"),
        record("upload-artifacts", "sx", BLAS),
        record("copy-artifacts", "s", BLAS_OTHER),
    ]
    (found,) = stages_by_records(records, ["s"], [*NAMES], prefix=SOURCE)
    assert found.archives == {RCCL, LLVM}
    assert (found.lacking, found.has_targets, found.makes_nothing) == ((), False, False)
