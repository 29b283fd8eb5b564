"""The course of an upload: payload, digests, pages, record; and an honest report wherever it stops."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    ConflictError,
    CredentialsError,
    InputError,
    LocalFileError,
    NotPermittedError,
    ServiceUnavailableError,
)
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import UploadItem
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
BUILD = {
    "logs/a.log": "a\n",
    "logs/ccache/raw.log": "raw\n",
    "x/.ninja_log": "# ninja log v5\n",
    "artifacts/blas_lib_gfx1151.tar.zst": "archive",
    "base/aux-overlay/build/therock_manifest.json": "{}\n",
}


def upload(workspace: Path, mode: Mode = Mode.UPLOAD_BUILD, **options: Any) -> Report:  # noqa: ANN401 - make_context's
    needed = {"artifact_group": "g"} if mode is Mode.UPLOAD_BUILD else {"stage": "math-libs"}
    return load_mode(mode).run(make_context(workspace, mode, **(needed | options)))


def keys(report: Report) -> list[str]:
    return [item.location.relative_path.removeprefix(f"{P}/") for item in report.result.stored]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_tree(tmp_path / "build", BUILD)
    return tmp_path


def test_payload_comes_first_then_digests_then_pages_then_the_record(workspace: Path) -> None:
    backend = TroubledBackend(workspace / STAGED)
    report = upload(workspace, backend=backend)
    assert report.error is None
    first, *others = backend.uploads
    assert set(first) == {
        f"{P}/blas_lib_gfx1151.tar.zst",
        f"{P}/logs/g/a.log",
        f"{P}/logs/g/ninja_logs.tar.gz",
        f"{P}/logs/g/ccache_logs.tar.zst",
        f"{P}/manifests/g/therock_manifest.json",
    }
    assert others == [
        [f"{P}/blas_lib_gfx1151.tar.zst.sha256sum"],
        [f"{P}/logs/g/index.html"],
        [f"{P}/index-g.html"],
    ]
    (record,) = (workspace / STAGED / P / "reports" / "upload-build").iterdir()
    assert record.name.startswith("g-build-1-")
    document = json.loads(record.read_text())
    assert document["complete"] is True
    assert {item["key"] for item in document["objects"]} == {*first, *(key for step in others for key in step)}


def test_no_credentials_leave_a_report_that_names_all_that_was_not_stored(workspace: Path) -> None:
    error = CredentialsError("no credentials", remedy="Give some.")

    def refuse(_items: Sequence[UploadItem]) -> None:
        raise error

    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, on_upload=refuse))
    assert report.error is error
    assert report.exit_code == 4
    assert len(report.result.failed) == 5
    assert {part.state for part in report.parts} == {"failed"}
    assert all(value == "" for value in report.outputs.values())
    assert report.page is None
    assert not (workspace / STAGED).exists()


def test_a_cancel_before_the_first_byte_is_a_cancel_and_not_a_success(workspace: Path) -> None:
    cancel = CancelToken()

    def signal_arrives(_items: Sequence[UploadItem]) -> None:
        cancel.cancel(15)

    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, on_upload=signal_arrives), cancel=cancel)
    assert report.exit_code == 143
    assert len(report.result.failed) == 5
    assert not report.complete
    assert not (workspace / STAGED / P / "reports").exists()


def test_a_cancel_between_payload_and_pages_stores_no_page_and_lists_nothing(workspace: Path) -> None:
    cancel = CancelToken()

    def signal_arrives_with_the_digests(items: Sequence[UploadItem]) -> None:
        if items[0].destination.relative_path.endswith(".sha256sum"):
            cancel.cancel(2)

    backend = TroubledBackend(
        workspace / STAGED,
        on_upload=signal_arrives_with_the_digests,
        listing=AssertionError("it was listed"),  # type: ignore[arg-type]
    )
    report = upload(workspace, backend=backend, cancel=cancel)
    assert report.exit_code == 130
    assert "logs/g/a.log" in keys(report)
    assert "index-g.html" not in keys(report)
    assert len(backend.uploads) == 2
    assert report.outputs["log_url"] == ""


def test_without_the_right_to_list_a_page_shows_this_runs_files(workspace: Path) -> None:
    said: list[str] = []
    write_tree(workspace / STAGED / P / "logs" / "g", {"earlier.log": "from an earlier attempt"})
    upload(workspace, backend=TroubledBackend(workspace / STAGED, listing=NotPermittedError("no")), said=said)
    page = (workspace / STAGED / P / "logs" / "g" / "index.html").read_text()
    assert "a.log" in page
    assert "earlier.log" not in page
    assert any("cannot be listed" in line for line in said)


def test_a_page_shows_what_earlier_attempts_left_there(workspace: Path) -> None:
    write_tree(workspace / STAGED / P / "logs" / "g", {"earlier.log": "x"})
    upload(workspace)
    assert 'href="./earlier.log"' in (workspace / STAGED / P / "logs" / "g" / "index.html").read_text()


def test_a_listing_that_fails_is_the_error_though_the_files_are_stored(workspace: Path) -> None:
    error = ServiceUnavailableError("no answer")
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, listing=error))
    assert report.error is error
    assert "logs/g/a.log" in keys(report)
    assert report.outputs["log_url"] == ""
    assert report.outputs["manifest_url"]


def test_a_page_that_fails_besides_other_files_is_told_as_a_warning(workspace: Path) -> None:
    wrong = workspace / "build" / "artifacts" / "blas_lib_gfx1151.tar.zst.sha256sum"
    wrong.write_text("0" * 64)
    backend = TroubledBackend(workspace / STAGED, listing=ServiceUnavailableError("no answer"))
    report = upload(workspace, backend=backend)
    assert report.exit_code == 6
    assert "the pages are not complete: no answer" in report.warnings


@pytest.mark.parametrize(
    "error", [ConflictError("there"), LocalFileError("disk full"), ServiceUnavailableError("busy")]
)
def test_a_record_that_cannot_be_stored_is_a_warning(workspace: Path, error: Any) -> None:  # noqa: ANN401 - three kinds
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, put_new=error))
    assert report.exit_code == 0
    assert report.warnings == (f"the run's record was not stored: {error.what}",)


@pytest.mark.parametrize("job", ["../../x", "a/b", "a\nb", "::error::", "ä" * 100, "\udcff", "."])
def test_a_hostile_job_name_cannot_move_the_record(workspace: Path, job: str) -> None:
    environment = {"GITHUB_JOB": job, "GITHUB_RUN_ATTEMPT": "1/../.."}
    report = upload(workspace, Mode.UPLOAD_STAGE, family="gfx1151", environment=environment)
    assert report.warnings == ()
    (record,) = (workspace / STAGED / P / "reports" / "upload-stage").iterdir()
    assert record.name.startswith("math-libs-gfx1151-")
    assert record.name.isascii()


def test_outside_actions_nobody_is_named_as_the_writer(tmp_path: Path) -> None:
    assert make_context(tmp_path, Mode.LOCATE, environment={"GITHUB_JOB": ""}).origin is None
    assert str(make_context(tmp_path, Mode.LOCATE).origin) == "100/build/1"


def test_overwritten_bytes_are_warnings_and_a_few_stand_for_many(workspace: Path) -> None:
    write_tree(workspace / "build" / "logs", {f"{number}.log": "new" for number in range(9)})
    write_tree(workspace / STAGED / P / "logs" / "g", {f"{number}.log": "earlier" for number in range(9)})
    report = upload(workspace)
    assert report.exit_code == 0
    assert report.warnings[0] == f"{P}/logs/g/0.log was overwritten: other bytes lay there"
    assert report.warnings[-1] == "4 more objects lay there with other bytes"
    assert len(report.warnings) == 6


@pytest.mark.parametrize(
    ("on_conflict", "exit_code", "kept", "state"),
    [("overwrite", 0, "new", "stored"), ("skip", 0, "earlier", "left-out"), ("error", 6, "earlier", "failed")],
)
def test_other_bytes_under_a_key_are_dealt_with_as_told(
    tmp_path: Path, on_conflict: str, exit_code: int, kept: str, state: str
) -> None:
    write_tree(tmp_path, {"build/logs/a.log": "new", f"{STAGED}/{P}/logs/math-libs/a.log": "earlier"})
    report = upload(tmp_path, Mode.UPLOAD_STAGE, on_conflict=on_conflict)
    assert report.exit_code == exit_code
    assert (tmp_path / STAGED / P / "logs" / "math-libs" / "a.log").read_text() == kept
    assert report.parts[0].state == state
    assert [conflict.state for conflict in report.result.conflicts] == ["different"]


def test_a_dry_run_stores_nothing_and_leaves_no_record(workspace: Path) -> None:
    report = upload(workspace, dry_run=True)
    assert report.exit_code == 0
    assert "index-g.html" in keys(report)
    assert not (workspace / STAGED).exists()


@pytest.mark.parametrize(
    ("mode", "inputs"),
    [
        (Mode.UPLOAD_BUILD, {"artifact_group": ""}),
        (Mode.UPLOAD_BUILD, {"layout": "multi-arch"}),
        (Mode.UPLOAD_BUILD, {"platform": "linux,windows"}),
        (Mode.UPLOAD_BUILD, {"include": "[abc"}),
        (Mode.UPLOAD_BUILD, {"artifact_group": "a/b"}),
        (Mode.UPLOAD_BUILD, {"build_dir": "build/logs/a.log"}),
        (Mode.UPLOAD_STAGE, {"stage": ""}),
        (Mode.UPLOAD_STAGE, {"layout": "single-stage"}),
        (Mode.UPLOAD_STAGE, {"platform": "linux,windows"}),
        (Mode.UPLOAD_STAGE, {"family": "\udcff"}),
    ],
)
def test_settings_that_a_mode_cannot_use_are_input_errors_and_nothing_is_stored(
    workspace: Path, mode: Mode, inputs: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        upload(workspace, mode, **inputs)
    assert not (workspace / STAGED).exists()


def test_a_right_sidecar_is_stored_as_it_is_and_an_absent_one_is_made(workspace: Path) -> None:
    artifacts = workspace / "build" / "artifacts"
    write_tree(artifacts, {"fft_lib_generic.tar.xz": "two", "fft_lib_generic.tar.xz.sha256sum": digest("two").upper()})
    report = upload(workspace)
    tree = read_tree(workspace / STAGED / P)
    assert tree["fft_lib_generic.tar.xz.sha256sum"].decode() == digest("two").upper()
    name = "blas_lib_gfx1151.tar.zst"
    assert tree[f"{name}.sha256sum"].decode() == f"{digest('archive')}  {name}\n"
    assert report.exit_code == 0
    page = tree["index-g.html"].decode()
    assert page.count("<a href") == 4


@pytest.mark.parametrize("said", [digest("other"), "", "not a digest", f"{digest('archive')[:-1]}\n", "\0\xff" * 3000])
def test_an_archive_that_is_not_what_its_sidecar_says_is_not_published(workspace: Path, said: str) -> None:
    artifacts = workspace / "build" / "artifacts"
    name = "blas_lib_gfx1151.tar.zst"
    write_tree(artifacts, {f"{name}.sha256sum": said, "fft_lib_generic.tar.xz": "good"})
    report = upload(workspace)
    tree = read_tree(workspace / STAGED / P)
    assert report.exit_code == 6
    assert name not in tree
    assert f"{name}.sha256sum" not in tree
    assert name not in tree["index-g.html"].decode()
    assert "fft_lib_generic.tar.xz.sha256sum" in tree
    (part,) = [part for part in report.parts if part.what == "Artifacts"]
    assert (part.state, part.note) == ("partly", "1 of 2 not stored")


def test_an_archive_whose_sidecar_changes_under_way_gets_no_digest_and_is_not_listed(workspace: Path) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    sidecar = workspace / "build" / "artifacts" / f"{name}.sha256sum"
    sidecar.write_text(digest("archive"))
    backend = TroubledBackend(workspace / STAGED, on_upload=lambda _items: sidecar.write_text("0" * 64) and None)
    report = upload(workspace, backend=backend)
    assert report.exit_code == 6
    tree = read_tree(workspace / STAGED / P)
    assert f"{name}.sha256sum" not in tree
    assert "index-g.html" not in tree


def test_a_sidecar_that_is_a_link_is_not_followed(workspace: Path) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    (workspace / "secret").write_text("secret")
    (workspace / "build" / "artifacts" / f"{name}.sha256sum").symlink_to(workspace / "secret")
    assert upload(workspace).exit_code == 0
    assert b"secret" not in b"".join(read_tree(workspace / STAGED).values())


def test_only_regular_archives_directly_in_the_folder_are_taken(workspace: Path) -> None:
    artifacts = workspace / "build" / "artifacts"
    write_tree(artifacts, {"blas_lib_gfx1151/inner.tar.xz": "x", "notes.txt": "x", "a\\b.tar.xz": "x"})
    (artifacts / "link_lib_generic.tar.xz").symlink_to(artifacts / "notes.txt")
    (artifacts / "folder_lib_generic.tar.xz").mkdir()
    report = upload(workspace)
    assert [key for key in keys(report) if ".tar." in key and "/" not in key] == [
        "blas_lib_gfx1151.tar.zst",
        "blas_lib_gfx1151.tar.zst.sha256sum",
    ]
    assert {file.path for file in report.result.skipped} == {
        "artifacts/a\\b.tar.xz",
        "artifacts/folder_lib_generic.tar.xz",
        "artifacts/link_lib_generic.tar.xz",
    }


@pytest.mark.parametrize("linked", ["logs", "logs/ccache", "artifacts", "base/aux-overlay", "base"])
def test_a_folder_of_the_build_that_is_a_link_is_not_followed_and_that_is_told(workspace: Path, linked: str) -> None:
    outside = write_tree(
        workspace / "outside",
        {
            "secret.log": "secret",
            "x_lib_generic.tar.xz": "secret",
            "build/therock_manifest.json": "secret",
            "aux-overlay/build/therock_manifest.json": "secret",
        },
    )
    shutil.rmtree(workspace / "build" / linked)
    (workspace / "build" / linked).symlink_to(outside)
    report = upload(workspace, if_no_files_found="warn")
    assert b"secret" not in b"".join(read_tree(workspace / STAGED).values())
    told = " ".join([*report.warnings, *(f"{file.path} {file.reason}" for file in report.result.skipped)])
    assert "a symbolic link" in told


def test_a_build_folder_that_cannot_be_looked_at_is_a_local_file_error(workspace: Path) -> None:
    with pytest.raises(LocalFileError):
        upload(workspace, build_dir="x" * 5000)


def test_an_archive_that_finds_no_room_is_a_local_file_error(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from therock_outputs.modes import _build_tree

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_build_tree, "write_ninja_archive", full)
    with pytest.raises(LocalFileError) as caught:
        upload(workspace)
    assert "No space left on device" in caught.value.why
    assert caught.value.exit_code == 8


@pytest.mark.parametrize("mode", [Mode.UPLOAD_BUILD, Mode.UPLOAD_STAGE])
def test_without_pages_the_files_are_stored_and_no_page_is_linked(workspace: Path, mode: Mode) -> None:
    report = upload(workspace, mode, index="none", bucket="mine")
    assert report.exit_code == 0
    assert not [key for key in keys(report) if key.endswith(".html")]
    assert report.outputs["log_url"] == ""


@pytest.mark.parametrize("status", ["failure", "cancelled"])
def test_archives_of_a_build_that_did_not_succeed_are_not_stored(workspace: Path, status: str) -> None:
    report = upload(workspace, job_status=status)
    assert (report.exit_code, report.warnings) == (0, ())
    assert not [key for key in keys(report) if ".tar." in key and not key.startswith("logs/")]


def refuse_to(monkeypatch: pytest.MonkeyPatch, target: object, call: str, ending: str) -> None:
    """Let `call` fail for paths with that ending, as it does without permission; root has every permission."""
    allowed = getattr(target, call)

    def refusing(path: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the call's
        if str(path).endswith(ending):
            raise PermissionError(13, "Permission denied", str(path))
        return allowed(path, *arguments, **options)

    monkeypatch.setattr(target, call, refusing)


def test_a_folder_of_archives_that_cannot_be_read_is_a_local_file_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to(monkeypatch, os, "scandir", "artifacts")
    with pytest.raises(LocalFileError, match="artifacts' cannot be read"):
        upload(workspace)


def test_a_part_of_the_build_that_cannot_be_looked_at_is_a_local_file_error(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to(monkeypatch, pathlib.Path, "lstat", "aux-overlay")
    with pytest.raises(LocalFileError, match="aux-overlay' cannot be looked at"):
        upload(workspace)


def test_an_archive_that_cannot_be_read_fails_and_the_rest_is_stored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    write_tree(workspace / "build" / "artifacts", {f"{name}.sha256sum": digest("archive")})
    refuse_to(monkeypatch, os, "open", name)
    report = upload(workspace)
    assert report.exit_code == 8
    assert [item.location.relative_path for item in report.result.failed] == [f"{P}/{name}"]
    assert "logs/g/a.log" in keys(report)


def test_an_archive_whose_sidecar_cannot_be_read_is_not_published(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    write_tree(workspace / "build" / "artifacts", {f"{name}.sha256sum": digest("archive")})
    refuse_to(monkeypatch, pathlib.Path, "open", ".sha256sum")
    report = upload(workspace)
    assert report.exit_code == 6
    assert name not in keys(report)


def test_the_resource_profile_lies_at_the_root_of_the_logs_a_second_time(workspace: Path) -> None:
    write_tree(workspace / "build" / "logs" / "therock-build-prof", {"comp-summary.md": "costs", "other.md": "x"})
    upload(workspace)
    tree = read_tree(workspace / STAGED / P / "logs" / "g")
    assert tree["comp-summary.md"] == tree["therock-build-prof/comp-summary.md"] == b"costs"
    assert "other.md" not in tree


def test_the_page_of_a_stage_is_written_where_no_server_does_it(workspace: Path) -> None:
    report = upload(workspace, Mode.UPLOAD_STAGE, bucket="mine")
    assert report.outputs["log_url"] == f"https://mine.s3.amazonaws.com/{P}/logs/math-libs/index.html"
    assert "logs/math-libs/index.html" in keys(report)


def test_raw_logs_of_which_none_could_be_archived_make_no_archive_and_are_told(workspace: Path) -> None:
    raw = workspace / "build" / "logs" / "ccache" / "raw.log"
    raw.unlink()
    raw.symlink_to(workspace / "build" / "logs" / "a.log")
    report = upload(workspace)
    assert "logs/g/ccache_logs.tar.zst" not in keys(report)
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        ("logs/ccache/raw.log", "it is a symbolic link")
    ]
