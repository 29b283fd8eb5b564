"""The course of a fetch: what is asked for is found, verified and laid out, or the error says what is there."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    InputError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
    NotPermittedError,
)
from fakes.artifact_archives import MANIFEST, make_archive, write_run
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import fetch_artifacts, load_mode
from therock_outputs.paths import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import ListedObject, StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
TOPOLOGY = """
[build_stages.foundation]
artifact_groups = ["base"]
[build_stages.math]
artifact_groups = ["math"]
[artifact_groups.base]
[artifact_groups.math]
artifact_group_deps = ["base"]
[artifacts.hip]
artifact_group = "base"
type = "target-neutral"
[artifacts.rand]
artifact_group = "base"
type = "target-specific"
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
"""
ARCHIVES = {
    "blas_lib_gfx1151.tar.zst": make_archive({"stage/lib/libblas.so": "blas"}),
    "blas_lib_gfx942.tar.zst": make_archive({"stage/lib/libblas.so": "other blas"}),
    "hip_lib_generic.tar.zst": make_archive({"stage/lib/libhip.so": "hip"}),
    "hip_run_generic.tar.xz": make_archive({"stage/bin/hipcc": "run"}, compression="xz"),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_run(tmp_path / STAGED / P, ARCHIVES)
    write_tree(tmp_path, {"BUILD_TOPOLOGY.toml": TOPOLOGY, f"{STAGED}/{P}/logs/x_lib_generic.tar.xz": "a log"})
    return tmp_path


def fetch(workspace: Path, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    return load_mode(Mode.FETCH_ARTIFACTS).run(
        make_context(workspace, Mode.FETCH_ARTIFACTS, **({"output_dir": "got"} | inputs))
    )


def names(report: Report) -> list[str]:
    found: list[str] = json.loads(report.outputs["artifacts"])
    return found


# --- what is asked for ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "fetched"),
    [
        ({"stage": "all"}, ["blas_lib_gfx1151", "blas_lib_gfx942", "hip_lib_generic", "hip_run_generic"]),
        ({"families": "gfx94X-dcgpu"}, ["blas_lib_gfx942", "hip_lib_generic", "hip_run_generic"]),
        ({"targets": "gfx1151", "exclude_components": "run"}, ["blas_lib_gfx1151", "hip_lib_generic"]),
        ({"generic_only": "true"}, ["hip_lib_generic", "hip_run_generic"]),
        ({"artifacts": "hip_lib,blas_lib_gfx1151"}, ["blas_lib_gfx1151", "hip_lib_generic"]),
        ({"artifact_group": "gfx1151"}, ["blas_lib_gfx1151", "hip_lib_generic", "hip_run_generic"]),
        ({"include_regex": "^hip_run\n_gfx942"}, ["blas_lib_gfx942", "hip_run_generic"]),
        ({"stage": "all", "exclude_regex": "gfx"}, ["hip_lib_generic", "hip_run_generic"]),
        ({"stage": "math"}, ["hip_lib_generic", "hip_run_generic"]),
    ],
)
def test_each_selector_chooses_what_it_says(workspace: Path, inputs: dict[str, str], fetched: list[str]) -> None:
    report = fetch(workspace, **inputs)
    assert (report.error, names(report)) == (None, fetched)
    assert sorted(path.name for path in (workspace / "got").iterdir()) == fetched


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "stage, artifacts, families, targets, generic_only, artifact_group, include_regex"),
        ({"exclude_artifacts": "blas"}, "needs to be told which artifacts"),
        ({"stage": "all", "output_dir": ""}, "needs output_dir"),
        ({"generic_only": "true", "families": "gfx1151"}, "generic_only leaves out"),
        ({"generic_only": "true", "targets": "gfx1151"}, "generic_only leaves out"),
        ({"stage": "math", "topology": "nothing/here.toml"}, "nothing/here.toml"),
        ({"stage": "maths"}, "Did you mean math?"),
        ({"include_regex": "("}, "regular expression"),
        ({"stage": "all", "platform": "linux,windows"}, "platform is a list"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_before_anything_is_read(
    workspace: Path, inputs: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        fetch(workspace, **inputs)
    assert words in str(caught.value)
    assert not (workspace / "got").exists()


def test_a_stage_that_needs_nothing_is_success_with_a_notice_and_lists_nothing(workspace: Path) -> None:
    backend = TroubledBackend(workspace / STAGED, listing=NotPermittedError("listing is denied"))
    report = fetch(workspace, stage="foundation", backend=backend)
    assert (report.error, names(report)) == (None, [])
    assert report.notices == ("stage foundation needs no artifacts of other stages: nothing to fetch",)


def test_what_a_stage_needs_and_the_run_lacks_is_a_notice(workspace: Path) -> None:
    report = fetch(workspace, stage="math", families="gfx1151")
    assert (report.error, report.warnings) == (None, ("the run has no artifact for gfx1151, only generic ones",))
    assert report.notices == ("stage math also needs rand: the run has no archive of that",)
    assert json.loads(report.outputs["missing"]) == ["rand"]


def test_a_stage_of_which_the_run_has_nothing_is_success_with_a_warning(workspace: Path) -> None:
    report = fetch(workspace, stage="math", exclude_artifacts="hip")
    assert (report.error, names(report)) == (None, [])
    assert report.warnings == ("stage math also needs rand: the run has no archive of that",)
    assert (report.parts[0].state, report.parts[0].note) == ("nothing", "the run has nothing of it")


def test_an_archive_of_which_only_the_digest_is_left_is_a_failure(workspace: Path) -> None:
    (workspace / STAGED / P / "hip_lib_generic.tar.zst").unlink()
    report = fetch(workspace, artifacts="hip")
    assert names(report) == ["hip_run_generic"]
    (failed,) = report.result.failed
    assert (failed.path, failed.error.exit_code) == ("hip_lib_generic.tar.zst", 3)
    assert report.exit_code == 3
    assert fetch(workspace, artifacts="hip_run").exit_code == 0


def test_a_misspelt_artifact_is_told_with_the_nearest_one(workspace: Path) -> None:
    with pytest.raises(NotFoundError, match="did you mean hip_lib") as caught:
        fetch(workspace, artifacts="hip_lbi", families="gfx1151")
    assert "gfx1151" not in caught.value.what
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, artifacts="zzzzzz")
    assert "did you mean" not in caught.value.why


def test_an_unknown_family_is_a_notice(workspace: Path) -> None:
    report = fetch(workspace, families="gfx1151,gfx9999", if_missing="ignore")
    assert any("gfx9999" in notice for notice in report.notices)


# --- what is missing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "missing"),
    [
        ({"artifacts": "blas,solver"}, "solver"),
        ({"families": "gfx1151,gfx110X-all"}, "gfx110X-all"),
        ({"artifacts": "hip", "exclude_components": "lib,run"}, "hip"),
        ({"stage": "math", "artifacts": "solver"}, "solver"),
        ({"include_regex": "^nothing"}, "no artifact archive that the selectors match"),
        ({"stage": "all", "exclude_regex": "."}, "no artifact archive that the selectors match"),
    ],
)
def test_what_is_asked_for_by_name_and_is_not_there_is_an_error_that_lists_what_is_there(
    workspace: Path, inputs: dict[str, str], missing: str
) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, **inputs)
    assert missing in caught.value.what
    assert "it has 4 archives: blas_lib_gfx1151.tar.zst, blas_lib_gfx942.tar.zst," in caught.value.why
    assert not (workspace / "got").exists()


def test_only_the_first_names_of_many_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / STAGED / P, {f"a{number:03}_lib_generic.tar.xz": b"" for number in range(30)})
    with pytest.raises(NotFoundError) as caught:
        fetch(tmp_path, artifacts="b")
    assert "it has 30 archives: a000_lib_generic.tar.xz" in caught.value.why
    assert caught.value.why.endswith("a019_lib_generic.tar.xz, and 10 more")


@pytest.mark.parametrize("inputs", [{"artifacts": "blas_lib_gfx1151,solver"}, {"artifacts": "solver"}])
@pytest.mark.parametrize(("told", "is_warned"), [("warn", True), ("ignore", False)])
def test_a_missing_artifact_is_told_as_wanted_and_the_rest_is_fetched(
    workspace: Path, inputs: dict[str, str], told: str, is_warned: bool
) -> None:
    report = fetch(workspace, if_missing=told, **inputs)
    assert report.error is None
    assert names(report) == [name for name in ["blas_lib_gfx1151"] if name in inputs["artifacts"]]
    assert ["solver" in warning for warning in report.warnings] == [True] * is_warned


@pytest.mark.parametrize("if_missing", ["error", "warn", "ignore"])
def test_an_empty_run_is_an_error_whatever_is_told_of_missing_artifacts(workspace: Path, if_missing: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, stage="all", run_id="101", lookup="false", if_missing=if_missing)
    assert "run 101 has no outputs under" in caught.value.what
    assert str(workspace / STAGED / "101-linux") in caught.value.what


def test_a_run_of_the_other_platform_is_found_in_a_staging_folder(workspace: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, stage="all", platform="windows")
    assert f"{P}" in caught.value.why
    assert caught.value.remedy == "Set platform: linux."


def test_a_run_with_logs_only_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED, {f"{P}/logs/a.log": "log", "100-windows/blas_lib_generic.tar.xz": "archive"})
    with pytest.raises(NotFoundError) as caught:
        fetch(tmp_path, stage="all")
    assert "it has no artifact archive at all" in caught.value.why


def test_other_names_and_other_runs_are_no_artifacts(workspace: Path) -> None:
    write_tree(
        workspace / STAGED, {f"{P}2/a_lib_generic.tar.xz": "x", f"{P}/a_b_c_d.tar.xz": "x", f"{P}/A.TAR.XZ": "x"}
    )
    assert len(names(fetch(workspace, stage="all"))) == 4


# --- digests --------------------------------------------------------------------------------------------------------


def test_archives_are_compared_with_their_digests(workspace: Path) -> None:
    report = fetch(workspace, stage="all")
    assert {(item.location.name, item.sha256, item.verified) for item in report.result.stored} == {
        (name, digest(data), "sha256-single") for name, data in ARCHIVES.items()
    }


def test_missing_digests_are_one_warning_with_their_number_and_names(workspace: Path) -> None:
    for name in ("hip_lib_generic.tar.zst", "blas_lib_gfx942.tar.zst"):
        (workspace / STAGED / P / f"{name}.sha256sum").unlink()
    report = fetch(workspace, stage="all")
    assert report.error is None
    assert report.warnings == (
        "2 archives have no .sha256sum, so only sizes are checked: blas_lib_gfx942.tar.zst, hip_lib_generic.tar.zst",
    )
    assert [item.verified for item in report.result.stored] == [
        "sha256-single", "size-only", "size-only", "sha256-single",
    ]  # fmt: skip


def test_a_missing_digest_is_the_failure_of_its_archive_where_digests_are_required(workspace: Path) -> None:
    (workspace / STAGED / P / "hip_lib_generic.tar.zst.sha256sum").unlink()
    report = fetch(workspace, stage="all", require_digest="true")
    assert report.exit_code == 3
    assert [item.path for item in report.result.failed] == ["hip_lib_generic.tar.zst"]
    assert names(report) == ["blas_lib_gfx1151", "blas_lib_gfx942", "hip_run_generic"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a digest\n",
        b"\xff" * 64,
        f"{'0' * 64}  another_lib_generic.tar.zst\n".encode(),
        b"0" * 64 + b"\n" * 5000,
    ],
    ids=["empty", "words", "binary", "another file's", "too large"],
)
def test_a_digest_that_cannot_be_read_is_the_failure_of_its_archive_and_never_skipped(
    workspace: Path, content: bytes
) -> None:
    (workspace / STAGED / P / "hip_lib_generic.tar.zst.sha256sum").write_bytes(content)
    report = fetch(workspace, stage="all")
    assert isinstance(report.error, IntegrityError)
    assert [item.path for item in report.result.failed] == ["hip_lib_generic.tar.zst"]
    assert not (workspace / "got" / "hip_lib_generic").exists()
    assert len(names(report)) == 3


class _UnreadableDigests(TroubledBackend):
    """Every digest is what `answer` is."""

    answer: OutputsError | None = None

    def read_all_small(
        self, locations: Sequence[StorageLocation], **options: object
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        return (self.answer,) * len(locations)


@pytest.mark.parametrize(("answer", "exit_code"), [(NotPermittedError("denied"), 4), (None, 6)])
def test_digests_that_are_denied_or_gone_are_failures_told_once(
    workspace: Path, answer: OutputsError | None, exit_code: int
) -> None:
    backend = _UnreadableDigests(workspace / STAGED)
    backend.answer = answer
    report = fetch(workspace, stage="all", backend=backend)
    assert report.exit_code == exit_code
    assert len(report.result.failed) == 4
    assert names(report) == []


@pytest.mark.parametrize("extract", ["extract", "flatten", "none"])
def test_other_bytes_than_the_digest_says_leave_no_file_and_both_digests_in_the_error(
    workspace: Path, extract: str
) -> None:
    bad = make_archive({"stage/lib/libhip.so": "evil"})
    (workspace / STAGED / P / "hip_lib_generic.tar.zst").write_bytes(bad)
    report = fetch(workspace, artifacts="hip_lib", extract=extract)
    assert isinstance(report.error, IntegrityError)
    assert digest(bad) in str(report.error)
    assert digest(ARCHIVES["hip_lib_generic.tar.zst"]) in str(report.error)
    assert read_tree(workspace / "got") == {}


# --- what comes out -------------------------------------------------------------------------------------------------


def test_extract_makes_a_folder_an_artifact(workspace: Path) -> None:
    report = fetch(workspace, artifacts="hip")
    assert read_tree(workspace / "got") == {
        f"hip_lib_generic/{MANIFEST}": b"stage\n",
        "hip_lib_generic/stage/lib/libhip.so": b"hip",
        f"hip_run_generic/{MANIFEST}": b"stage\n",
        "hip_run_generic/stage/bin/hipcc": b"run",
    }
    assert report.outputs == {
        "download_path": "got",
        "artifacts": '["hip_lib_generic", "hip_run_generic"]',
        "missing": "[]",
    }
    assert report.made == (workspace / "got" / "hip_lib_generic", workspace / "got" / "hip_run_generic")


def test_flatten_merges_in_sorted_order(workspace: Path) -> None:
    report = fetch(workspace, artifacts="*lib*", extract="flatten")
    assert read_tree(workspace / "got") == {"lib/libblas.so": b"other blas", "lib/libhip.so": b"hip"}
    assert len(report.warnings) == 1  # of two with the same path the later one wins


def test_bootstrap_leaves_markers(workspace: Path) -> None:
    fetch(workspace, artifacts="hip", extract="bootstrap", output_dir="build")
    assert set(read_tree(workspace / "build")) == {"stage.prebuilt", "stage/lib/libhip.so", "stage/bin/hipcc"}


def test_none_leaves_the_archives_under_their_own_names(workspace: Path) -> None:
    report = fetch(workspace, artifacts="hip", extract="none")
    assert read_tree(workspace / "got") == {name: data for name, data in ARCHIVES.items() if name.startswith("hip")}
    assert set(report.made) == set((workspace / "got").iterdir())


def test_the_better_compressed_of_two_archives_is_taken(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.xz": b"never read"})
    report = fetch(workspace, artifacts="hip_lib")
    assert [item.location.name for item in report.result.stored] == ["hip_lib_generic.tar.zst"]


def test_a_dry_run_says_what_would_be_fetched_and_writes_nothing(workspace: Path) -> None:
    report = fetch(workspace, artifacts="hip", dry_run="true", cache_dir="cache")
    assert report.dry_run
    assert names(report) == ["hip_lib_generic", "hip_run_generic"]
    assert {item.verified for item in report.result.stored} == {"dry-run"}
    assert not (workspace / "got").exists()
    assert not (workspace / "cache").exists()


def test_one_archive_that_fails_costs_only_itself(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.zst": b"no archive at all"})
    report = fetch(workspace, stage="all")
    assert report.exit_code == 6
    assert [item.path for item in report.result.failed] == ["hip_lib_generic.tar.zst"]
    assert names(report) == ["blas_lib_gfx1151", "blas_lib_gfx942", "hip_run_generic"]
    assert (report.parts[0].state, report.parts[0].note) == ("partly", "1 of 4 not fetched")


def test_two_causes_are_counted_under_one_error(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.zst": b"no archive at all"})
    (workspace / STAGED / P / "hip_run_generic.tar.xz.sha256sum").unlink()
    report = fetch(workspace, stage="all", require_digest="true")
    assert report.error is not None
    assert (report.exit_code, report.error.what) == (1, "2 of 4 objects were not fetched")


def test_nothing_is_left_in_the_output_folder_but_the_outputs(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.zst": b"no archive at all"})
    fetch(workspace, stage="all", extract="flatten")
    assert {path.name for path in (workspace / "got").iterdir()} == {"lib", "bin"}


def test_a_bomb_is_refused(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.zst": make_archive({"stage/bomb": bytes(10_000_000)})})
    report = fetch(workspace, artifacts="hip_lib", max_extracted_bytes="1000000")
    assert report.exit_code == 6
    assert "stage/bomb" in str(report.error)
    assert read_tree(workspace / "got") == {}


def test_too_little_room_is_an_error_with_both_numbers_before_anything_is_fetched(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed_bytes = 2 * sum(map(len, ARCHIVES.values()))
    usage = shutil.disk_usage(workspace)
    for free_bytes in (needed_bytes - 1, needed_bytes):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free_bytes=free_bytes: usage._replace(free=free_bytes))
        if free_bytes == needed_bytes:
            assert fetch(workspace, stage="all").error is None
            continue
        with pytest.raises(LocalFileError) as caught:
            fetch(workspace, stage="all")
        assert f"{needed_bytes:,} bytes" in caught.value.why
        assert f"{free_bytes:,} are free" in caught.value.why
        assert not (workspace / "got").exists()


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_too_little_room_for_the_cache_alone_is_no_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    devices = {workspace / "cache": 2 if is_elsewhere else 1}
    (workspace / "cache").mkdir()
    usage = shutil.disk_usage(workspace)
    real = Path.stat

    def stat(path: Path, **options: Any) -> os.stat_result:  # noqa: ANN401 - Path.stat's
        status = real(path, **options)
        return os.stat_result((*status[:2], devices.get(path, 1), *status[3:]))

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=0 if path == workspace / "cache" else 10**6)
    )
    report = fetch(workspace, artifacts="hip", cache_dir="cache")
    assert (report.error, names(report)) == (None, ["hip_lib_generic", "hip_run_generic"])
    warned = [
        warning for warning in report.warnings if "cache_dir was not used for 2 archives: there is too" in warning
    ]
    assert len(warned) == int(is_elsewhere)
    assert len(_cached(workspace)) == (0 if is_elsewhere else 2)


def test_an_archive_of_the_wrong_digest_leaves_no_marker(workspace: Path) -> None:
    (workspace / STAGED / P / "hip_run_generic.tar.xz").write_bytes(b"other bytes")
    report = fetch(workspace, artifacts="hip", extract="bootstrap")
    assert report.exit_code == 6
    assert set(read_tree(workspace / "got")) == {"stage/lib/libhip.so"}
    assert "no .prebuilt marker was written, because 1 artifact is missing" in report.warnings


def test_an_archive_that_may_not_be_fetched_leaves_no_marker(workspace: Path) -> None:
    (workspace / STAGED / P / "hip_run_generic.tar.xz.sha256sum").unlink()
    report = fetch(workspace, artifacts="hip", extract="bootstrap", require_digest="true")
    assert set(read_tree(workspace / "got")) == {"stage/lib/libhip.so"}
    assert "no .prebuilt marker was written, because 1 artifact is missing" in report.warnings


def test_a_second_fetch_of_other_components_keeps_the_first_s(workspace: Path) -> None:
    fetch(workspace, artifacts="hip_lib", extract="bootstrap")
    fetch(workspace, artifacts="hip_run", extract="bootstrap")
    assert read_tree(workspace / "got") == {
        "stage/lib/libhip.so": b"hip",
        "stage/bin/hipcc": b"run",
        "stage.prebuilt": b"hip_lib_generic\nhip_run_generic\n",
    }


def test_a_cancel_is_a_cancel_and_leaves_nothing_half(workspace: Path) -> None:
    cancel = CancelToken()

    class Cancelling(TroubledBackend):
        def download(self, items: Any, **options: Any) -> Any:  # noqa: ANN401 - LocalStorageBackend's
            cancel.cancel(15)
            return super().download(items, **options)

    report = fetch(workspace, stage="all", cancel=cancel, backend=Cancelling(workspace / STAGED))
    assert isinstance(report.error, CancelledError)
    assert report.exit_code == 143
    assert len(report.result.failed) == 4
    assert read_tree(workspace / "got") == {}


def test_an_output_folder_that_the_job_never_sees_is_a_warning(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    context = make_context(workspace, Mode.FETCH_ARTIFACTS, output_dir=str(outside), artifacts="hip_lib")
    context = dataclasses.replace(context, workspace=Workspace(workspace / "inside", ("/elsewhere",)))
    report = fetch_artifacts.run(context)
    assert report.error is None
    assert "is gone after this step" in report.warnings[0]


# --- the cache ------------------------------------------------------------------------------------------------------


def _cached(workspace: Path) -> dict[str, bytes]:
    return read_tree(workspace / "cache")


def _cache_name(name: str) -> str:
    sha256 = digest(ARCHIVES[name])
    return f"{sha256[:2]}/{sha256}.tar.{name.rpartition('.')[2]}"


@pytest.mark.parametrize("extract", ["extract", "none"])
def test_the_cache_keeps_verified_archives_by_digest_and_serves_them(workspace: Path, extract: str) -> None:
    first = fetch(workspace, artifacts="hip", cache_dir="cache", extract=extract)
    expected = {_cache_name(name): ARCHIVES[name] for name in ARCHIVES if name.startswith("hip")}
    assert _cached(workspace) == expected
    assert set(first.made) > {workspace / "cache" / name for name in expected}
    got = read_tree(workspace / "got")
    shutil.rmtree(workspace / "got")
    for path in (workspace / STAGED / P).glob("*.tar.*z*"):
        if not path.name.endswith(".sha256sum"):
            path.write_bytes(bytes(path.stat().st_size))  # would fail if it were fetched
    second = fetch(workspace, artifacts="hip", cache_dir="cache", extract=extract)
    assert (second.error, read_tree(workspace / "got")) == (None, got)
    assert second.notices[-1] == "2 of 2 archives came from cache_dir"
    assert _cached(workspace) == expected


@pytest.mark.parametrize("extract", ["extract", "none"])
@pytest.mark.parametrize("left", [b"", b"half of"], ids=["empty", "half"])
def test_a_hit_of_other_bytes_is_removed_and_fetched_again(workspace: Path, extract: str, left: bytes) -> None:
    name = "hip_lib_generic.tar.zst"
    write_tree(workspace / "cache", {_cache_name(name): left})
    report = fetch(workspace, artifacts="hip_lib", cache_dir="cache", extract=extract)
    assert report.error is None
    assert f"cache_dir had other bytes for {name}: removed, and fetched again" in report.notices
    assert _cached(workspace) == {_cache_name(name): ARCHIVES[name]}
    assert len(read_tree(workspace / "got")) == (2 if extract == "extract" else 1)


def test_a_link_in_the_cache_is_no_hit(workspace: Path) -> None:
    path = workspace / "cache" / _cache_name("hip_lib_generic.tar.zst")
    path.parent.mkdir(parents=True)
    path.symlink_to(workspace / STAGED / P / "hip_lib_generic.tar.zst")
    report = fetch(workspace, artifacts="hip_lib", cache_dir="cache")
    assert report.error is None
    assert not path.is_symlink()


def test_archives_without_a_digest_do_not_enter_the_cache(workspace: Path) -> None:
    (workspace / STAGED / P / "hip_lib_generic.tar.zst.sha256sum").unlink()
    report = fetch(workspace, artifacts="hip_lib", cache_dir="cache")
    assert (report.error, names(report)) == (None, ["hip_lib_generic"])
    assert not (workspace / "cache").exists()


def test_the_cache_may_be_in_the_output_folder(workspace: Path) -> None:
    for _ in range(2):
        report = fetch(workspace, artifacts="hip_lib", output_dir="cache", cache_dir="cache/kept", extract="flatten")
        assert report.error is None
    assert set(_cached(workspace)) == {f"kept/{_cache_name('hip_lib_generic.tar.zst')}", "lib/libhip.so"}


def test_a_refused_archive_of_the_right_digest_stays_cached_and_is_refused_again(workspace: Path) -> None:
    write_run(workspace / STAGED / P, {"hip_lib_generic.tar.zst": b"no archive at all"})
    for _ in range(2):
        assert fetch(workspace, artifacts="hip_lib", cache_dir="cache").exit_code == 6
        assert read_tree(workspace / "got") == {}


# --- waiting --------------------------------------------------------------------------------------------------------


class _Producer(CancelToken):
    """Does the next step of a producer whenever the fetch sleeps."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        super().__init__()
        self.steps = list(steps)

    def sleep(self, seconds: float) -> None:
        if self.steps:
            self.steps.pop(0)()


def test_a_fetch_waits_until_what_is_asked_for_and_its_digest_are_there(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / P
    archive = make_archive({"stage/lib/libsolver.so": "solver"})
    name = "solver_lib_generic.tar.zst"
    producer = _Producer(
        lambda: write_tree(folder, {"logs/a.log": "begun"}),
        lambda: write_tree(folder, {"index.html": "page"}),
        lambda: write_tree(folder, {name: archive}),
        lambda: write_run(folder, {name: archive}),
    )
    said: list[str] = []
    report = fetch(tmp_path, artifacts="solver", wait_seconds="600", cancel=producer, said=said)
    assert (report.error, report.warnings, names(report)) == (None, (), ["solver_lib_generic"])
    assert [line.partition(": ")[2] for line in said if line.startswith("waiting")] == [
        "the run has no outputs yet",
        "the run has no outputs yet",
        "solver",
        f"the digest of {name}, so it may still be under way",
    ]


def test_a_stage_waits_for_each_producer_and_asked_target(workspace: Path) -> None:
    folder = workspace / STAGED / P
    rand = {f"rand_lib_{target}.tar.zst": make_archive({"stage/a": target}) for target in ("gfx942", "gfx1151")}
    producer = _Producer(
        *(lambda name=name: write_run(folder, {name: rand[name]}) for name in rand),
    )
    said: list[str] = []
    inputs = {"stage": "math", "targets": "gfx942,gfx1151", "wait_seconds": "600"}
    report = fetch(workspace, cancel=producer, said=said, **inputs)
    assert [name for name in names(report) if name.startswith("rand")] == ["rand_lib_gfx1151", "rand_lib_gfx942"]
    assert [line.partition(": ")[2] for line in said if line.startswith("waiting")] == [
        "rand for gfx942 (stage foundation), rand for gfx1151 (stage foundation)",
        "rand for gfx1151 (stage foundation)",
        "all is there, and no record says that no more comes",
    ]


def test_an_artifact_of_which_more_archives_come_is_waited_for(workspace: Path) -> None:
    archive = make_archive({"stage/a": "more"})
    more = [f"blas_{component}_gfx942.tar.zst" for component in ("dev", "test")]
    folder = workspace / STAGED / P
    producer = _Producer(*(lambda name=name: write_run(folder, {name: archive}) for name in more))
    report = fetch(workspace, artifacts="blas", targets="gfx942", wait_seconds="600", cancel=producer)
    assert {"blas_dev_gfx942", "blas_test_gfx942"} < {*names(report)}


def test_a_stage_does_not_wait_for_what_its_producer_ended_without(workspace: Path) -> None:
    write_tree(workspace / STAGED / P, {"reports/upload-artifacts/foundation-build-1-0123456789abcdef.json": "{}"})
    said: list[str] = []
    report = fetch(workspace, stage="math", wait_seconds="600", said=said)
    assert (report.error, names(report)) == (None, ["hip_lib_generic", "hip_run_generic"])
    assert not [line for line in said if line.startswith("waiting")]


def test_what_the_selectors_leave_out_is_not_waited_for(workspace: Path) -> None:
    inputs = {"stage": "math", "exclude_artifacts": "rand", "wait_seconds": "600"}
    assert fetch(workspace, cancel=_Producer(), **inputs).error is None
    inputs = {"stage": "math", "generic_only": "true", "wait_seconds": "600"}
    assert fetch(workspace, cancel=_Producer(), **inputs).error is None


def test_after_the_time_a_stage_goes_on_with_what_is_there_and_says_what_was_lacking(workspace: Path) -> None:
    report = fetch(workspace, stage="math", wait_seconds="0.01", cancel=_Producer())
    assert (report.error, names(report)) == (None, ["hip_lib_generic", "hip_run_generic"])
    assert report.warnings == ("wait_seconds are over, and still lacking: rand (stage foundation)",)


def test_after_the_time_what_was_asked_for_by_name_is_an_error_that_says_so(workspace: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, artifacts="solver,blas", wait_seconds="0.01", cancel=_Producer())
    assert "wait_seconds are over, and still lacking: solver" in caught.value.why


def test_selectors_that_match_nothing_yet_are_waited_for(workspace: Path) -> None:
    name = "solver_lib_generic.tar.xz"
    archive = make_archive({"stage/a": "solver"}, compression="xz")
    producer = _Producer(lambda: write_run(workspace / STAGED / P, {name: archive}))
    report = fetch(workspace, include_regex="^solver", wait_seconds="600", cancel=producer)
    assert (report.error, names(report)) == (None, ["solver_lib_generic"])


def test_after_the_time_an_empty_run_is_an_error(workspace: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(workspace, stage="all", platform="windows", wait_seconds="0.01", cancel=_Producer())
    assert "has no outputs" in caught.value.what


def test_a_denied_listing_is_not_waited_for(workspace: Path) -> None:
    backend = TroubledBackend(workspace / STAGED)
    backend.list_folder = lambda *_, **__: _raise(NotPermittedError("denied"))  # type: ignore[method-assign]  # a hook
    with pytest.raises(NotPermittedError):
        fetch(workspace, stage="all", wait_seconds="600", backend=backend)


def _raise(error: OutputsError) -> Iterator[ListedObject]:
    raise error
