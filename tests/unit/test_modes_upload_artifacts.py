"""The pipeline of upload-artifacts: its order, its bounds, and what it does when storing or compressing goes wrong."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    CredentialsError,
    IntegrityError,
    LocalFileError,
    NotPermittedError,
    ServiceUnavailableError,
)
from _therock_utils._transfer_types import UploadItem
from _therock_utils.storage_location import StorageLocation
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from therock_outputs import artifact_archive
from therock_outputs.artifact_archive import WrittenArchive, write_artifact_archive
from therock_outputs.mode_names import Mode
from therock_outputs.modes import _artifact_pipeline, load_mode
from therock_outputs.modes._artifact_pipeline import READY_AT_MOST, ArchivePipeline, Made, Making

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import UploadResult
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"


def artifact(name: str, content: str = "x") -> dict[str, str]:
    return {
        f"build/artifacts/{name}/artifact_manifest.txt": "core/stage\n",
        f"build/artifacts/{name}/core/stage/file": content,
    }


def many(count: int) -> dict[str, str]:
    files: dict[str, str] = {}
    for number in range(count):
        files |= artifact(f"a{number:02}_lib_generic")
    return files


def upload(workspace: Path, **options: Any) -> Report:  # noqa: ANN401 - make_context's
    return load_mode(Mode.UPLOAD_ARTIFACTS).run(make_context(workspace, Mode.UPLOAD_ARTIFACTS, **options))


def artifacts(report: Report) -> list[str]:
    return json.loads(report.outputs["artifacts"])  # type: ignore[no-any-return]  # a list of names


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, whatever the machine has."""
    monkeypatch.setattr(_artifact_pipeline, "usable_cores", lambda: 2)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the mode makes its temporary folder."""
    folder = tmp_path / "runner-temp"
    folder.mkdir()
    return folder


def test_an_archive_is_stored_before_its_sidecar_and_the_record_last(tmp_path: Path) -> None:
    write_tree(tmp_path, {**many(5), "build/artifacts/fft_lib_generic.tar.xz": "ready"})
    backend = TroubledBackend(tmp_path / STAGED)
    report = upload(tmp_path, backend=backend)
    assert report.error is None
    *steps, record = backend.uploads
    assert record[0].startswith(f"{P}/reports/upload-artifacts/artifacts-build-1-")
    assert steps[0] == [f"{P}/fft_lib_generic.tar.xz"]
    for archives, sidecars in zip(steps[::2], steps[1::2], strict=True):
        assert sidecars == [f"{archive}.sha256sum" for archive in archives]
    stored = sorted(key for step in steps[::2] for key in step)
    assert [key.removeprefix(f"{P}/").partition(".tar.")[0] for key in stored] == artifacts(report)


def test_archives_are_stored_while_others_still_compress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {**artifact("big_lib_generic", "x" * 9999), **artifact("small_lib_generic")})
    stored = threading.Event()

    def write(folder: Path, target: Path, **options: Any) -> WrittenArchive:  # noqa: ANN401 - the real one's
        if folder.name.startswith("big"):
            assert stored.wait(30), "nothing was stored before the last archive was made"
        return write_artifact_archive(folder, target, **options)

    monkeypatch.setattr(_artifact_pipeline, "write_artifact_archive", write)
    backend = TroubledBackend(tmp_path / STAGED, on_upload=lambda _items: stored.set())
    assert artifacts(upload(tmp_path, backend=backend)) == ["big_lib_generic", "small_lib_generic"]


def test_the_biggest_are_begun_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = artifact("a_lib_generic", "x" * 10) | artifact("b_lib_generic", "x" * 30) | artifact("c_lib_generic")
    write_tree(tmp_path, files | artifact("d_lib_generic", "x" * 10))
    begun: list[str] = []
    monkeypatch.setattr(Making, "on_this_machine", lambda *_, **__: Making("zst", None, at_once=1, workers=1))

    def write(folder: Path, target: Path, **options: Any) -> WrittenArchive:  # noqa: ANN401 - the real one's
        begun.append(folder.name[0])
        return write_artifact_archive(folder, target, **options)

    monkeypatch.setattr(_artifact_pipeline, "write_artifact_archive", write)
    assert upload(tmp_path).error is None
    assert begun == ["b", "a", "d", "c"]


def test_with_on_conflict_error_everything_is_made_and_stored_in_one_step(tmp_path: Path) -> None:
    write_tree(tmp_path, {**many(READY_AT_MOST + 3), "build/artifacts/fft_lib_generic.tar.xz": "ready"})
    backend = TroubledBackend(tmp_path / STAGED)
    report = upload(tmp_path, backend=backend, on_conflict="error")
    assert len(artifacts(report)) == READY_AT_MOST + 4
    step, _record = backend.uploads
    assert len(step) == 2 * (READY_AT_MOST + 4)


def test_each_archive_is_removed_as_soon_as_it_is_stored(tmp_path: Path, scratch: Path) -> None:
    write_tree(tmp_path, many(30))
    seen: list[int] = []

    def look(_items: Sequence[UploadItem]) -> None:
        seen.append(len(list(scratch.glob("*/*"))))

    report = upload(
        tmp_path,
        backend=TroubledBackend(tmp_path / STAGED, on_upload=look),
        environment={"RUNNER_TEMP": str(scratch)},
    )
    assert len(artifacts(report)) == 30
    # In hand and ready together, and two under way, each perhaps with its temporary name.
    assert max(seen) <= 2 * READY_AT_MOST + 2
    assert list(scratch.iterdir()) == []


def test_a_machines_cores_decide_how_many_archives_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def making(cores: int, compression: Any, count: int = 99) -> tuple[int, int]:  # noqa: ANN401 - a literal
        monkeypatch.setattr(_artifact_pipeline, "usable_cores", lambda: cores)
        made = Making.on_this_machine(compression, None, count=count)
        return made.at_once, made.workers

    assert [making(cores, "zst") for cores in (1, 2, 3, 8, 16, 96)] == [(2, 1), (2, 1), (2, 2), (2, 4), (4, 4), (4, 8)]
    assert [making(4, "zst", count) for count in (0, 1, 2)] == [(1, 4), (1, 4), (2, 2)]
    assert [making(cores, "xz") for cores in (1, 2, 8, 96)] == [(1, 1), (2, 1), (8, 1), (8, 1)]
    assert making(8, "xz", 3) == (3, 1)


@pytest.mark.parametrize(
    "error", [CredentialsError("no credentials"), NotPermittedError("denied"), ServiceUnavailableError("no answer")]
)
def test_what_everything_else_would_meet_too_ends_the_compression(tmp_path: Path, error: Any) -> None:  # noqa: ANN401 - three kinds
    write_tree(tmp_path, many(50))
    said: list[str] = []

    def refuse(_items: Sequence[UploadItem]) -> None:
        raise error

    report = upload(tmp_path, backend=TroubledBackend(tmp_path / STAGED, on_upload=refuse), said=said)
    assert report.error is error
    assert len(report.result.failed) == 50
    assert len(said) <= 2 * READY_AT_MOST + 2
    assert artifacts(report) == []
    assert report.parts[0].state == "failed"


def test_one_object_that_is_not_stored_costs_only_itself(tmp_path: Path) -> None:
    write_tree(tmp_path, many(4))

    class Choosy(TroubledBackend):
        def upload(self, items: Sequence[UploadItem], **options: Any) -> UploadResult:  # noqa: ANN401 - the real one's
            for item in items:
                if item.destination.name == "a02_lib_generic.tar.zst":
                    assert not isinstance(item.source, bytes)
                    item.source.unlink()
                    item.source.mkdir()
            return super().upload(items, **options)

    report = upload(tmp_path, backend=Choosy(tmp_path / STAGED))
    assert artifacts(report) == [f"a0{number}_lib_generic" for number in (0, 1, 3)]
    (skipped,) = report.result.skipped
    assert skipped.path == "artifacts/a02_lib_generic"  # not the name of the temporary file


def test_an_archive_that_is_not_what_was_made_gets_no_sidecar_and_fails(tmp_path: Path) -> None:
    write_tree(tmp_path, many(2))

    def meddle(items: Sequence[UploadItem]) -> None:
        for item in items:
            if item.destination.name == "a01_lib_generic.tar.zst":
                assert not isinstance(item.source, bytes)
                item.source.write_bytes(b"other bytes")

    report = upload(tmp_path, backend=TroubledBackend(tmp_path / STAGED, on_upload=meddle))
    assert report.exit_code == 6
    assert artifacts(report) == ["a00_lib_generic"]
    assert f"{P}/a01_lib_generic.tar.zst.sha256sum" not in read_tree(tmp_path / STAGED)
    (failed,) = report.result.failed
    assert failed.error.what == "a01_lib_generic.tar.zst changed between its making and its upload"
    assert digest("other bytes") in failed.error.why


@pytest.mark.parametrize("on_conflict", ["skip", "error"])
def test_no_archive_counts_as_stored_beside_a_sidecar_of_another_build(tmp_path: Path, on_conflict: str) -> None:
    write_tree(tmp_path, many(2))
    write_tree(tmp_path / STAGED / P, {"a01_lib_generic.tar.zst.sha256sum": "0" * 64})
    report = upload(tmp_path, on_conflict=on_conflict)
    assert report.exit_code == 6
    assert "a01_lib_generic.tar.zst" not in artifacts(report)
    assert ("a00_lib_generic" in artifacts(report)) == (on_conflict == "skip")
    assert read_tree(tmp_path / STAGED / P)["a01_lib_generic.tar.zst.sha256sum"] == b"0" * 64


def test_a_cancel_between_two_steps_tells_all_that_is_not_stored(tmp_path: Path, scratch: Path) -> None:
    write_tree(tmp_path, many(20))
    cancel = CancelToken()

    def arrive(items: Sequence[UploadItem]) -> None:
        if items[0].destination.name.endswith(".sha256sum"):
            cancel.cancel(15)

    backend = TroubledBackend(tmp_path / STAGED, on_upload=arrive)
    report = upload(tmp_path, backend=backend, cancel=cancel, environment={"RUNNER_TEMP": str(scratch)})
    assert report.exit_code == 143
    archives = {f"{P}/a{number:02}_lib_generic.tar.zst" for number in range(20)}
    failed = {item.location.relative_path for item in report.result.failed}
    assert archives <= failed | {item.location.relative_path for item in report.result.stored}
    assert artifacts(report) == []
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / STAGED / P / "reports").exists()


def test_a_cancel_while_the_folder_is_looked_at_is_a_cancel(tmp_path: Path) -> None:
    write_tree(tmp_path, many(2))
    cancel = CancelToken()
    cancel.cancel(2)
    for options in ({}, {"dry_run": True}):
        report = upload(tmp_path, cancel=cancel, **options)
        assert report.exit_code == 130
        assert len(report.result.failed) == 2


def items_of(tmp_path: Path, count: int) -> list[UploadItem]:
    write_tree(tmp_path, many(count))
    names = [f"a{number:02}_lib_generic" for number in range(count)]
    return [
        UploadItem(tmp_path / "build" / "artifacts" / name, StorageLocation("b", f"{P}/{name}.tar.zst"))
        for name in names
    ]


def pipeline(tmp_path: Path, items: list[UploadItem], **options: Any) -> ArchivePipeline:  # noqa: ANN401 - as below
    (tmp_path / "made").mkdir(exist_ok=True)
    chosen: dict[str, Any] = {"keeps_all": False, "cancel": CancelToken(), "say": lambda _text: None, **options}
    return ArchivePipeline(items, tmp_path / "made", Making("zst", None, at_once=2, workers=1), **chosen)


def test_no_further_archive_is_begun_while_eight_wait(tmp_path: Path) -> None:
    items = items_of(tmp_path, 30)
    full = threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) >= READY_AT_MOST:
            full.set()

    with pipeline(tmp_path, items, say=say) as running:
        assert full.wait(30)
        batches = running.batches()
        first = next(batches)
        assert len(first) <= READY_AT_MOST + 2  # the two under way when the last place was taken
        rest = [made for batch in batches for made in batch]
    assert len(first) + len(rest) == 30
    assert all(made.archive is not None for made in (*first, *rest))


def test_all_are_made_at_once_where_nothing_waits_for_the_caller(tmp_path: Path) -> None:
    items = items_of(tmp_path, 30)
    done = threading.Event()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == len(items):
            done.set()

    with pipeline(tmp_path, items, keeps_all=True, say=say) as running:
        assert done.wait(30), "it waited for the caller"
        assert sum(len(batch) for batch in running.batches()) == 30


def test_nothing_to_make_is_nothing_made(tmp_path: Path) -> None:
    with pipeline(tmp_path, []) as running:
        assert list(running.batches()) == []


def test_a_fault_in_a_thread_is_raised_where_archives_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(_artifact_pipeline, "write_artifact_archive", fail)
    with pytest.raises(ZeroDivisionError), pipeline(tmp_path, items_of(tmp_path, 3)) as running:
        list(running.batches())


def begun_and_hanging(monkeypatch: pytest.MonkeyPatch, begun: threading.Event) -> Callable[[], list[str]]:
    """Let archives take until their cancel token is set; returns what became of them."""
    ended: list[str] = []

    def hang(_folder: Path, _target: Path, *, cancel: CancelToken, **_: object) -> WrittenArchive:
        begun.set()
        for _turn in range(3000):
            try:
                cancel.check()
            except CancelledError:
                ended.append("given up")
                raise
            threading.Event().wait(0.01)
        raise AssertionError("nobody gave it up")

    monkeypatch.setattr(_artifact_pipeline, "write_artifact_archive", hang)
    return lambda: ended


def test_a_cancel_ends_the_wait_and_the_archives_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancel = threading.Event(), CancelToken()
    ended = begun_and_hanging(monkeypatch, begun)
    with pipeline(tmp_path, items_of(tmp_path, 3), cancel=cancel) as running:
        assert begun.wait(30)
        cancel.cancel(15)
        with pytest.raises(CancelledError) as caught:
            list(running.batches())
    assert caught.value.exit_code == 143
    assert set(ended()) == {"given up"}
    assert len(ended()) <= 2


def test_leaving_early_gives_up_what_is_under_way_and_begins_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    ended = begun_and_hanging(monkeypatch, begun)
    with pipeline(tmp_path, items_of(tmp_path, 30)):
        assert begun.wait(30)
    assert set(ended()) == {"given up"}
    assert len(ended()) <= 2


def test_a_failure_is_what_came_of_its_directory(tmp_path: Path) -> None:
    items = items_of(tmp_path, 2)
    (tmp_path / "build" / "artifacts" / "a00_lib_generic" / "artifact_manifest.txt").unlink()
    with pipeline(tmp_path, items) as running:
        made = sorted((made for batch in running.batches() for made in batch), key=lambda made: made.item.label)
    bad, good = made
    assert bad == Made(items[0], error=bad.error)
    assert isinstance(bad.error, IntegrityError)
    assert good.archive is not None
    assert good.archive.path == tmp_path / "made" / "a01_lib_generic.tar.zst"
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["a01_lib_generic.tar.zst"]


def test_the_workers_of_an_archive_are_those_that_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    make = artifact_archive.zstd_compressor

    def note(*, level: int, workers: int) -> Any:  # noqa: ANN401 - a compressor
        asked.append((level, workers))
        return make(level=level, workers=workers)

    monkeypatch.setattr(artifact_archive, "zstd_compressor", note)
    monkeypatch.setattr(_artifact_pipeline, "usable_cores", lambda: 96)
    write_tree(tmp_path, many(1))
    upload(tmp_path)
    upload(tmp_path, compression_level=1)
    assert asked == [(3, 8), (1, 8)]


def test_a_folder_that_cannot_be_read_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, many(1))
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("artifacts"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = upload(tmp_path)
    assert report.exit_code == 8
    assert isinstance(report.error, LocalFileError)
    assert artifacts(report) == []


def test_a_folder_of_an_artifact_that_cannot_be_looked_at_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, many(2))
    scan = os.scandir

    def refuse(path: str) -> object:
        if "a01_lib_generic" in str(path):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    for options in ({}, {"dry_run": True}):
        report = upload(tmp_path, **options)
        assert report.exit_code == 8
        assert [item.location.name for item in report.result.failed] == ["a01_lib_generic.tar.zst"]


def test_what_vanishes_while_the_folder_is_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {**many(1), "build/artifacts/fft_lib_generic.tar.xz": "x"})
    kind_of = os.DirEntry.stat
    scan = os.scandir

    class Vanishing:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.name, self.path, self.entry = entry.name, entry.path, entry

        def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
            if self.name.startswith("fft"):
                os.unlink(self.path)  # noqa: PTH108 - a path of a folder's entry
            return kind_of(self.entry, follow_symlinks=follow_symlinks)

    class Entries:
        def __init__(self, path: Path) -> None:
            with scan(path) as entries:
                self.entries = list(entries)

        def __enter__(self) -> object:
            return iter([Vanishing(entry) for entry in self.entries])

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda path: Entries(path) if str(path).endswith("artifacts") else scan(path))
    report = upload(tmp_path)
    assert artifacts(report) == ["a00_lib_generic"]
    assert [(file.path, file.reason) for file in report.result.skipped] == [
        ("artifacts/fft_lib_generic.tar.xz", "it is gone")
    ]


def test_a_full_temporary_folder_fails_each_that_does_not_fit_with_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, many(3))
    put = artifact_archive._Compressed._put

    def full(self: artifact_archive._Compressed, data: bytes) -> None:
        if data and "a01" not in str(self._file._folder.path):
            raise OSError(28, "No space left on device")
        put(self, data)

    monkeypatch.setattr(artifact_archive._Compressed, "_put", full)
    report = upload(tmp_path)
    assert report.exit_code == 8
    assert report.error is report.result.failed[0].error
    assert "Free some space" in report.error.remedy
    assert len(report.result.failed) == 3


def test_a_page_is_linked_where_the_server_makes_one(tmp_path: Path) -> None:
    write_tree(tmp_path, many(1))
    page = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/index.html"
    assert [part.location.https_url for part in upload(tmp_path).parts if part.location] == [page]
    assert [part.location for part in upload(tmp_path, artifact_group="g").parts] == [None]
    elsewhere = upload(tmp_path, environment={"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    assert [part.location for part in elsewhere.parts] == [None]


@pytest.mark.parametrize("status", ["failure", "cancelled"])
def test_artifacts_of_a_build_that_did_not_succeed_are_not_stored(tmp_path: Path, status: str) -> None:
    write_tree(tmp_path, many(1))
    report = upload(tmp_path, job_status=status)
    assert (report.error, artifacts(report), report.result.stored) == (None, [], ())
    (warning,) = report.warnings
    assert f"the job's status is {status}" in warning
    assert artifacts(upload(tmp_path, job_status="success")) != []
