"""The course of an upload: payload, digests, pages, record; and an honest report wherever it stops."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    CredentialsError,
    InputError,
    LocalFileError,
    NotPermittedError,
    ServiceUnavailableError,
)
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from therock_outputs.index_page import read_index_page
from therock_outputs.log_archives import LogArchive, write_ccache_archive
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import UploadItem, UploadResult
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
    first, *others, (last,) = backend.uploads
    assert set(first) == {
        f"{P}/logs/g/a.log",
        f"{P}/logs/g/ninja_logs.tar.gz",
        f"{P}/logs/g/ccache_logs.tar.zst",
        f"{P}/manifests/g/therock_manifest.json",
    }
    assert others == [
        [f"{P}/blas_lib_gfx1151.tar.zst"],
        [f"{P}/blas_lib_gfx1151.tar.zst.sha256sum"],
        [f"{P}/logs/g/index.html"],
        [f"{P}/index-g.html"],
    ]
    (record,) = (workspace / STAGED / P / "reports" / "upload-build").iterdir()
    assert record.name.startswith("g-build-1-")
    assert last == f"{P}/reports/upload-build/{record.name}"
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
    assert len(backend.uploads) == 3
    assert report.outputs["log_url"] == ""


def test_without_the_right_to_list_a_page_shows_this_runs_files(workspace: Path) -> None:
    write_tree(workspace / STAGED / P / "logs" / "g", {"earlier.log": "from an earlier attempt"})
    error = NotPermittedError("access was denied", why="no s3:ListBucket", remedy="Allow it.")
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, listing=error))
    page = (workspace / STAGED / P / "logs" / "g" / "index.html").read_text()
    assert "a.log" in page
    assert "earlier.log" not in page
    (warning,) = report.warnings
    assert "cannot be listed" in warning
    assert warning.endswith("access was denied. no s3:ListBucket. Allow it")


def test_a_page_shows_what_earlier_attempts_left_there(workspace: Path) -> None:
    write_tree(workspace / STAGED / P / "logs" / "g", {"earlier.log": "x"})
    upload(workspace)
    assert 'href="./earlier.log"' in (workspace / STAGED / P / "logs" / "g" / "index.html").read_text()


def test_a_listing_that_fails_costs_no_page_and_no_row_of_the_page_before(workspace: Path) -> None:
    write_tree(workspace / STAGED / P / "logs" / "g", {"earlier.log": "x"})
    upload(workspace)
    backend = TroubledBackend(workspace / STAGED, listing=ServiceUnavailableError("no answer"))
    report = upload(workspace, backend=backend)
    assert report.exit_code == 0
    assert report.outputs["log_url"]
    names = page_names(workspace, "logs/g/index.html")
    assert {"earlier.log", "a.log"} <= set(names)
    assert names == sorted(names)


def test_a_page_that_cannot_be_stored_is_a_failure_though_the_files_are_stored(workspace: Path) -> None:
    error = ServiceUnavailableError("no answer")
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, reading=error))
    assert report.error is error
    assert "logs/g/a.log" in keys(report)
    assert report.outputs["log_url"] == ""
    assert report.outputs["manifest_url"]


def page_names(workspace: Path, page: str) -> list[str]:
    rows = read_index_page((workspace / STAGED / P / page).read_bytes())
    assert rows is not None
    return [row.name for row in rows]


@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_the_page_of_a_group_names_the_archives_of_all_its_jobs(workspace: Path, on_conflict: str) -> None:
    upload(workspace, backend=LocalStorageBackend(workspace / STAGED))
    for name in ("fft", "rand", "fft"):
        write_tree(workspace / name / "build", {f"artifacts/{name}_lib_generic.tar.xz": name})
        report = upload(
            workspace / name,
            backend=LocalStorageBackend(workspace / STAGED),
            on_conflict=on_conflict,
            if_no_files_found="ignore",
        )
        assert report.exit_code == 0, report.error
    names = ("blas_lib_gfx1151.tar.zst", "fft_lib_generic.tar.xz", "rand_lib_generic.tar.xz")
    assert page_names(workspace, "index-g.html") == [name + end for name in names for end in ("", ".sha256sum")]


def test_a_page_of_a_group_forgets_what_is_gone(workspace: Path) -> None:
    upload(workspace)
    (workspace / STAGED / P / "blas_lib_gfx1151.tar.zst").unlink()
    (workspace / STAGED / P / "blas_lib_gfx1151.tar.zst.sha256sum").unlink()
    write_tree(workspace / "other" / "build", {"artifacts/fft_lib_generic.tar.xz": "x"})
    upload(workspace / "other", backend=LocalStorageBackend(workspace / STAGED), if_no_files_found="ignore")
    assert page_names(workspace, "index-g.html") == ["fft_lib_generic.tar.xz", "fft_lib_generic.tar.xz.sha256sum"]


def test_two_jobs_that_write_one_page_at_once_are_both_on_it(workspace: Path) -> None:
    other = workspace / "other"
    write_tree(other / "build", {"logs/b.log": "b", "artifacts/fft_lib_generic.tar.xz": "x"})
    raced: list[Report] = []

    def another_job_is_faster() -> None:
        if not raced:
            raced.append(None)  # type: ignore[arg-type]  # only once
            backend = LocalStorageBackend(workspace / STAGED)
            raced[0] = upload(other, backend=backend, if_no_files_found="ignore")

    backend = TroubledBackend(workspace / STAGED, on_replace=another_job_is_faster)
    report = upload(workspace, backend=backend)
    assert (report.exit_code, raced[0].exit_code) == (0, 0)
    assert {"a.log", "b.log"} <= set(page_names(workspace, "logs/g/index.html"))
    assert {"blas_lib_gfx1151.tar.zst", "fft_lib_generic.tar.xz"} <= set(page_names(workspace, "index-g.html"))


def test_a_page_that_others_always_change_first_is_a_failure_after_eight_attempts(workspace: Path) -> None:
    def lose() -> None:
        raise ConflictError("another writer was faster")

    cancel = CancelToken()
    cancel.sleep = lambda _seconds: None  # type: ignore[method-assign]  # nothing is waited for
    backend = TroubledBackend(workspace / STAGED, on_replace=lose)
    report = upload(workspace, backend=backend, cancel=cancel)
    assert report.exit_code == 6
    assert {item.location.relative_path for item in report.result.failed} == {
        f"{P}/logs/g/index.html",
        f"{P}/index-g.html",
    }
    assert backend.uploads.count([f"{P}/index-g.html"]) == 8


def test_a_page_of_another_program_is_left_as_it_is_and_linked_and_that_is_told(workspace: Path) -> None:
    pages = {"logs/g/index.html": "<p>made elsewhere", "index-g.html": "<p>made elsewhere"}
    write_tree(workspace / STAGED / P, pages)
    report = upload(workspace)
    assert report.exit_code == 0
    tree = read_tree(workspace / STAGED / P)
    assert {name: tree[name].decode() for name in pages} == pages
    assert report.outputs["log_url"].endswith("/logs/g/index.html")
    assert report.outputs["artifact_index_url"].endswith("/index-g.html")
    assert [warning.partition(" was left as it is: ")[2] for warning in report.warnings] == [
        "another program made it"
    ] * 2


def test_without_the_right_to_read_a_new_page_is_written_and_an_old_one_left(workspace: Path) -> None:
    backend = TroubledBackend(workspace / STAGED, reading=NotPermittedError("no"))
    assert upload(workspace, backend=backend).warnings == ()
    before = page_names(workspace, "logs/g/index.html")
    write_tree(workspace / "build" / "logs", {"new.log": "x"})
    report = upload(workspace, backend=backend)
    assert report.exit_code == 0
    assert page_names(workspace, "logs/g/index.html") == before
    assert all("cannot be read with these credentials" in warning for warning in report.warnings)
    assert len(report.warnings) == 2


@pytest.mark.parametrize(
    "error",
    [
        kind("it failed", why="because", remedy="Do this.")
        for kind in (ConflictError, LocalFileError, ServiceUnavailableError)
    ],
)
def test_a_record_that_cannot_be_stored_is_a_warning(workspace: Path, error: Any) -> None:  # noqa: ANN401 - three kinds
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, put_new=error))
    assert report.exit_code == 0
    assert report.warnings == (f"the run's record was not stored: {error.what}. because. Do this",)


def test_a_cancel_while_the_record_is_stored_is_a_cancel(workspace: Path) -> None:
    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, put_new=CancelledError(15)))
    assert (report.exit_code, report.outputs["log_url"] != "") == (143, True)


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
    assert set(report.outputs.values()) == {""}
    assert report.page is None


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


@pytest.mark.parametrize("mode", [Mode.UPLOAD_BUILD, Mode.UPLOAD_STAGE])
def test_an_archive_that_finds_no_room_fails_and_everything_else_is_stored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    from therock_outputs.modes import _build_tree

    left: list[Path] = []

    def full(_source: Path, target: Path, **_options: object) -> None:
        target.write_text("a part")
        left.append(target)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_build_tree, "write_ccache_archive", full)
    report = upload(workspace, mode)
    assert report.exit_code == 8
    assert report.error is not None
    assert "No space left on device" in report.error.why
    (failed,) = report.result.failed
    folder = "logs/g" if mode is Mode.UPLOAD_BUILD else "logs/math-libs"
    assert (failed.path, failed.location.relative_path) == ("ccache_logs.tar.zst", f"{P}/{folder}/ccache_logs.tar.zst")
    assert {f"{folder}/a.log", f"{folder}/ninja_logs.tar.gz"} <= set(keys(report))
    assert report.parts[0].state == "partly"
    assert not left[0].exists()


@pytest.mark.parametrize("mode", [Mode.UPLOAD_BUILD, Mode.UPLOAD_STAGE])
def test_without_a_usable_temporary_folder_only_the_archives_of_logs_fail(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    def none_usable(**_options: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", none_usable)
    report = upload(workspace, mode)
    assert report.exit_code == 8
    assert [item.path for item in report.result.failed] == ["ninja_logs.tar.gz", "ccache_logs.tar.zst"]
    assert any(key.endswith("/a.log") for key in keys(report))


def test_temporary_archives_are_gone_in_the_end(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = workspace / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert "logs/g/ninja_logs.tar.gz" in keys(upload(workspace))
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("inputs", "archives"),
    [
        ({"exclude": "*.tar.gz"}, {"ccache_logs.tar.zst"}),
        ({"include": "*.log"}, set()),
        ({"include": "ccache_logs*\n*.log"}, {"ccache_logs.tar.zst"}),
        ({"exclude": "ccache/**"}, {"ccache_logs.tar.zst", "ninja_logs.tar.gz"}),
    ],
)
def test_include_and_exclude_choose_the_archives_of_logs_too(
    workspace: Path, inputs: dict[str, object], archives: set[str]
) -> None:
    report = upload(workspace, **inputs)
    assert {key.removeprefix("logs/g/") for key in keys(report) if "_logs.tar" in key} == archives


def test_a_log_that_changes_while_it_is_archived_is_told_and_not_said_to_be_left_out(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from therock_outputs.modes import _build_tree

    def write(source: Path, target: Path, **options: Any) -> LogArchive:  # noqa: ANN401 - as the real one's
        made = write_ccache_archive(source, target, **options)
        assert made is not None
        return dataclasses.replace(made, changed=tuple(f"{number}.log" for number in range(7)))

    monkeypatch.setattr(_build_tree, "write_ccache_archive", write)
    report = upload(workspace)
    assert report.result.skipped == ()
    (notice,) = report.notices
    assert notice.startswith("ccache_logs.tar.zst: archived as far as it was")
    assert notice.endswith(
        "logs/ccache/0.log, logs/ccache/1.log, logs/ccache/2.log, logs/ccache/3.log, logs/ccache/4.log and 2 more"
    )


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


@pytest.mark.parametrize(
    ("refused", "part"),
    [
        ((os, "scandir", "artifacts"), "Artifacts"),
        ((os, "scandir", "logs"), "Build logs"),
        ((pathlib.Path, "lstat", "logs"), "Build logs"),
        ((pathlib.Path, "lstat", "aux-overlay"), "Manifest"),
    ],
)
def test_a_part_of_the_build_that_cannot_be_looked_at_fails_and_the_others_are_stored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, refused: tuple[Any, str, str], part: str
) -> None:
    refuse_to(monkeypatch, *refused)
    report = upload(workspace)
    assert report.exit_code == 8
    assert isinstance(report.error, LocalFileError)
    others = dict.fromkeys(("Build logs", "Artifacts", "Manifest"), "stored")
    assert {row.what: row.state for row in report.parts} == others | {part: "failed"}


def test_a_folder_that_cannot_be_read_is_told_once_and_by_its_path_in_the_build(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(workspace / "build" / "logs", {"sub/x.log": "x"})
    refuse_to(monkeypatch, os, "scandir", "logs/sub")
    assert [file.path for file in upload(workspace).result.skipped] == ["logs/sub"]


def test_a_log_that_vanishes_before_it_is_stored_is_told_by_its_path_in_the_build(workspace: Path) -> None:
    def vanish(_items: Sequence[UploadItem]) -> None:
        (workspace / "build" / "logs" / "a.log").unlink(missing_ok=True)

    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, on_upload=vanish))
    assert [file.path for file in report.result.skipped] == ["logs/a.log"]


def test_archives_that_may_be_listed_and_not_opened_fail_and_the_rest_is_stored(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    write_tree(workspace / "build" / "artifacts", {f"{name}.sha256sum": digest("archive")})
    for call in ("is_file", "stat", "open"):
        refuse_to(monkeypatch, pathlib.Path, call, f"artifacts/{name}.sha256sum")
    refuse_to(monkeypatch, os, "open", f"artifacts/{name}")
    report = upload(workspace)
    assert report.exit_code == 8
    assert "logs/g/a.log" in keys(report)


@pytest.mark.parametrize("on_conflict", ["error", "skip"])
@pytest.mark.parametrize("own_sidecar", [True, False])
def test_no_archive_is_published_beside_a_sidecar_of_another_build(
    workspace: Path, on_conflict: str, own_sidecar: bool
) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    if own_sidecar:
        write_tree(workspace / "build" / "artifacts", {f"{name}.sha256sum": digest("archive")})
    write_tree(workspace / STAGED / P, {f"{name}.sha256sum": "0" * 64})
    report = upload(workspace, on_conflict=on_conflict)
    assert report.exit_code == 6
    tree = read_tree(workspace / STAGED / P)
    assert tree[f"{name}.sha256sum"] == b"0" * 64
    assert "index-g.html" not in tree
    assert f"{P}/{name}" in {item.location.relative_path for item in report.result.failed}
    assert "logs/g/a.log" in tree or on_conflict == "error"
    if on_conflict == "error":
        assert set(tree) == {f"{name}.sha256sum"}, "nothing was written"


def test_an_archive_whose_sidecar_fails_leaves_the_page_of_its_group(workspace: Path) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    assert upload(workspace).exit_code == 0
    write_tree(workspace / "build" / "artifacts", {name: "another", "fft_lib_generic.tar.xz": "x"})
    error = ServiceUnavailableError("busy")

    def refuse(items: Sequence[UploadItem]) -> None:
        if items[0].destination.relative_path.endswith(".sha256sum"):
            raise error

    report = upload(workspace, backend=TroubledBackend(workspace / STAGED, on_upload=refuse))
    assert report.error is error
    assert [row.state for row in report.parts if row.what == "Artifacts"] == ["failed"]
    assert page_names(workspace, "index-g.html") == []


def test_a_cancel_while_archives_are_hashed_leaves_the_logs_stored_and_tells_the_archives(workspace: Path) -> None:
    name = "blas_lib_gfx1151.tar.zst"
    write_tree(workspace / "build" / "artifacts", {f"{name}.sha256sum": digest("archive")})
    cancel = CancelToken()
    stored: list[str] = []

    class Cancelling(LocalStorageBackend):
        def upload(self, items: Sequence[UploadItem], **options: Any) -> UploadResult:  # noqa: ANN401 - as the real one's
            result = super().upload(items, **options)
            stored.extend(item.location.relative_path for item in result.stored)
            cancel.cancel(15)
            return result

    report = upload(workspace, backend=Cancelling(workspace / STAGED), cancel=cancel)
    assert report.exit_code == 143
    assert f"{P}/logs/g/a.log" in stored
    assert [item.location.relative_path for item in report.result.failed] == [f"{P}/{name}"]
    assert {row.what: row.state for row in report.parts}["Artifacts"] == "failed"


@pytest.mark.parametrize(
    ("environment", "staged", "written"),
    [
        ({}, False, False),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, False, True),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, False, True),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, True, True),
        ({}, True, True),
    ],
)
def test_a_service_at_another_endpoint_and_a_folder_are_not_expected_to_make_pages(
    workspace: Path, environment: dict[str, str], staged: bool, written: bool
) -> None:
    inputs = {"staging_dir": STAGED} if staged else {}
    backend = LocalStorageBackend(workspace / STAGED)
    report = upload(workspace, Mode.UPLOAD_STAGE, backend=backend, environment=environment, **inputs)
    assert ("logs/math-libs/index.html" in keys(report)) == written
    assert report.parts[0].by_server != written
    assert report.outputs["log_url"].endswith("/logs/math-libs/index.html")


def test_a_stage_is_named_by_itself_though_a_group_was_given(workspace: Path) -> None:
    report = upload(workspace, Mode.UPLOAD_STAGE, family="gfx1151", artifact_group="group", index="write")
    assert report.subject == "math-libs/gfx1151"
    assert b"Logs: math-libs/gfx1151" in read_tree(workspace / STAGED)[f"{P}/logs/math-libs/gfx1151/index.html"]
    (record,) = (workspace / STAGED / P / "reports" / "upload-stage").iterdir()
    assert record.name.startswith("math-libs-gfx1151-build-1-")


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
