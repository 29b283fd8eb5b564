"""Archives are extracted while others arrive, and placed in order, whatever else happens in the folders meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, LocalFileError
from _therock_utils._transfer_types import DownloadResult, FailedItem
from _therock_utils.artifact_names import ArchiveName
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from fakes.artifact_archives import make_archive
from fakes.trees import digest, read_tree, write_tree
from therock_outputs import _prebuilt_marker
from therock_outputs.modes import _fetch_pipeline
from therock_outputs.modes._archive_cache import ArchiveCache
from therock_outputs.modes._fetch_pipeline import Destination, fetch_all
from therock_outputs.modes._fetch_plan import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _therock_utils._transfer_types import DownloadedFile, DownloadItem
    from therock_outputs.modes._fetch_pipeline import Extract, Outcome

ROOT = WorkflowOutputRoot("local", "", "100", "linux")
ARCHIVES = {
    f"{letter}_lib_generic.tar.xz": make_archive({"stage/who": letter, f"stage/{letter}": letter}, compression="xz")
    for letter in "abcd"
}


class Bucket(LocalStorageBackend):
    """The run's archives; `order` is how they arrive, `on_arrival(name)` comes between a download and its report."""

    def __init__(
        self,
        folder: Path,
        *,
        order: Callable[[Sequence[DownloadItem]], Sequence[DownloadItem]] = list,
        on_arrival: Callable[[DownloadedFile], None] = lambda _file: None,
    ) -> None:
        super().__init__(write_tree(folder, {f"100-linux/{name}": data for name, data in ARCHIVES.items()}))
        self._order, self._on_arrival = order, on_arrival
        self.calls: list[list[str]] = []

    def download(self, items: Sequence[DownloadItem], **options: Any) -> DownloadResult:  # noqa: ANN401 - as LocalStorageBackend's
        self.calls.append([item.location.name for item in items])
        tell = options.pop("on_downloaded", None) or (lambda _file: None)

        def arrived(file: DownloadedFile) -> None:
            self._on_arrival(file)
            tell(file)

        return super().download(self._order(items), on_downloaded=arrived, **options)


def wanted() -> list[Wanted]:
    names = [name for name in map(ArchiveName.parse, ARCHIVES) if name is not None]
    return [
        Wanted(name, ROOT.artifact(str(name)), len(ARCHIVES[str(name)]), digest(ARCHIVES[str(name)])) for name in names
    ]


def fetch(
    folder: Path,
    backend: Bucket,
    *,
    extract: Extract = "extract",
    cached: bool = False,
    cancel: CancelToken | None = None,
) -> Outcome:
    cache = ArchiveCache(folder / "cache") if cached else None
    destination = Destination(folder / "got", extract, cache, max_extracted_bytes=10**9)
    return fetch_all(wanted(), destination, backend, cancel or CancelToken())


def fetched(outcome: Outcome) -> str:
    return "".join(item.location.name[0] for item in outcome.fetched)


def failed(outcome: Outcome) -> dict[str, type]:
    return {item.path[0]: type(item.error) for item in outcome.failed}


def test_a_merge_is_in_sorted_order_whatever_arrives_first(tmp_path: Path) -> None:
    backend = Bucket(tmp_path / "bucket", order=lambda items: items[::-1])
    outcome = fetch(tmp_path, backend, extract="flatten")
    assert fetched(outcome) == "abcd"
    assert read_tree(tmp_path / "got") == {"who": b"d", "a": b"a", "b": b"b", "c": b"c", "d": b"d"}


def test_what_has_arrived_is_extracted_and_placed_while_others_are_still_to_come(tmp_path: Path) -> None:
    def wait_for_the_first(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("b"):
            while not (tmp_path / "got" / "a_lib_generic").exists():  # for ever, if nothing happened before the last
                threading.Event().wait(0.01)

    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket", on_arrival=wait_for_the_first))
    assert fetched(outcome) == "abcd"


def test_no_archive_stays_on_the_disk_once_it_is_extracted(tmp_path: Path) -> None:
    scratch: list[list[str]] = []

    def look(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("d"):
            while not (tmp_path / "got" / "c_lib_generic").exists():
                threading.Event().wait(0.01)
            scratch.append(sorted(path.name for path in file.item.target.parent.iterdir()))

    fetch(tmp_path, Bucket(tmp_path / "bucket", on_arrival=look))
    assert scratch == [["d_lib_generic.tar.xz"]]


def test_an_artifact_that_cannot_be_placed_costs_only_itself(tmp_path: Path) -> None:
    write_tree(tmp_path / "got", {"b/kept": "where a file should be"})
    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="flatten")
    assert (fetched(outcome), failed(outcome)) == ("acd", {"b": LocalFileError})


@pytest.mark.parametrize("cached", [False, True])
def test_an_archive_whose_place_is_a_folder_costs_only_itself(tmp_path: Path, cached: bool) -> None:
    write_tree(tmp_path / "got", {"b_lib_generic.tar.xz/kept": "the user's"})
    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="none", cached=cached)
    assert (fetched(outcome), failed(outcome)) == ("acd", {"b": LocalFileError})
    assert read_tree(tmp_path / "got")["b_lib_generic.tar.xz/kept"] == b"the user's"


def test_a_cancel_keeps_what_is_placed_and_leaves_nothing_half(tmp_path: Path) -> None:
    cancel = CancelToken()

    def interrupt(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("c"):
            while not (tmp_path / "got" / "b_lib_generic").exists():
                threading.Event().wait(0.01)
            cancel.cancel(15)

    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket", on_arrival=interrupt), cancel=cancel)
    assert (fetched(outcome), failed(outcome)) == ("ab", {"c": CancelledError, "d": CancelledError})
    assert {path.name for path in (tmp_path / "got").iterdir()} == {"a_lib_generic", "b_lib_generic"}


def test_a_cancel_counts_archives_that_have_their_place(tmp_path: Path) -> None:
    cancel = CancelToken()

    def interrupt(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("c"):
            cancel.cancel(2)

    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket", on_arrival=interrupt), extract="none", cancel=cancel)
    assert (fetched(outcome), failed(outcome)) == ("abc", {"d": CancelledError})
    assert {path.name[0] for path in (tmp_path / "got").iterdir()} == set("abc")


# --- the cache ------------------------------------------------------------------------------------------------------


def _cleared(times: int) -> Callable[[DownloadedFile], None]:
    """Another process removes the first archive from the cache as soon as it is there, `times` times."""
    left = [times]

    def clear(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("a") and "cache" in file.item.target.parts and left[0]:
            left[0] -= 1
            file.item.target.unlink()

    return clear


@pytest.mark.parametrize("extract", ["extract", "none"])
def test_a_file_that_vanishes_from_the_cache_before_its_use_is_fetched_again(tmp_path: Path, extract: Extract) -> None:
    backend = Bucket(tmp_path / "bucket", on_arrival=_cleared(1))
    outcome = fetch(tmp_path, backend, extract=extract, cached=True)
    assert (fetched(outcome), failed(outcome), outcome.notices) == ("abcd", {}, ())
    assert backend.calls == [list(ARCHIVES), ["a_lib_generic.tar.xz"]]
    assert len(read_tree(tmp_path / "cache")) == 3
    _check_warning(outcome, "cache_dir was not used for 1 archive: ", "was gone")


def _check_warning(outcome: Outcome, *words: str) -> None:
    (warning,) = outcome.warnings
    assert all(word in warning for word in words), warning


def _entry(tmp_path: Path, letter: str = "a") -> Path:
    return ArchiveCache(tmp_path / "cache").path_of(digest(ARCHIVES[f"{letter}_lib_generic.tar.xz"]), ".tar.xz")


def test_a_hit_that_vanishes_again_and_again_costs_one_download_more_and_is_no_endless_fetch(tmp_path: Path) -> None:
    write_tree(_entry(tmp_path).parent, {_entry(tmp_path).name: "other bytes"})
    backend = Bucket(tmp_path / "bucket", on_arrival=_cleared(99))
    outcome = fetch(tmp_path, backend, cached=True)
    assert (fetched(outcome), failed(outcome)) == ("abcd", {})
    assert sorted(map(len, backend.calls)) == [1, 1, 3]
    _check_warning(outcome, "1 archive: ", "was gone")


class ClearedCache(Bucket):
    """The folder of the first archive's cache entry goes away just before it gets its name there."""

    def download(self, items: Sequence[DownloadItem], **options: Any) -> DownloadResult:  # noqa: ANN401 - Bucket's
        error = LocalFileError("'x' cannot be written", why="No such file or directory")
        lost = [item for item in items if "cache" in item.target.parts and item.location.name.startswith("a")]
        result = super().download([item for item in items if item not in lost], **options)
        failures = tuple(FailedItem(item.location.name, item.location, error) for item in lost)
        return DownloadResult(result.downloaded, (*result.failed, *failures))


@pytest.mark.parametrize("extract", ["extract", "none"])
@pytest.mark.parametrize("is_hit", [False, True])
def test_a_cache_cleared_under_a_download_costs_one_download_more(
    tmp_path: Path, extract: Extract, is_hit: bool
) -> None:
    if is_hit:
        write_tree(_entry(tmp_path).parent, {_entry(tmp_path).name: "other bytes"})
    outcome = fetch(tmp_path, ClearedCache(tmp_path / "bucket"), extract=extract, cached=True)
    assert (fetched(outcome), failed(outcome)) == ("abcd", {})
    assert len(list((tmp_path / "got").iterdir())) == 4
    _check_warning(outcome, "1 archive: 'x' cannot be written (No such file or directory)")


@pytest.mark.parametrize("extract", ["extract", "none"])
def test_an_entry_that_cannot_be_read_costs_one_download_more(
    tmp_path: Path, extract: Extract, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(_entry(tmp_path).parent, {_entry(tmp_path).name: ARCHIVES["a_lib_generic.tar.xz"]})
    real = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:  # noqa: ANN401 - os.open's
        opened = Path(path)
        if opened.is_absolute() and opened.is_file() and opened.samefile(_entry(tmp_path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract=extract, cached=True)
    assert (fetched(outcome), failed(outcome), outcome.cached_count) == ("abcd", {}, 0)
    _check_warning(outcome, "1 archive: ", "cannot be")


def test_where_the_cache_has_no_room_hits_are_used_and_nothing_is_added(tmp_path: Path) -> None:
    for letter, data in (("a", ARCHIVES["a_lib_generic.tar.xz"]), ("b", b"other bytes")):
        write_tree(_entry(tmp_path, letter).parent, {_entry(tmp_path, letter).name: data})
    destination = Destination(
        tmp_path / "got", "extract", ArchiveCache(tmp_path / "cache"), 10**9, no_room_in_cache="it is full"
    )
    outcome = fetch_all(wanted(), destination, Bucket(tmp_path / "bucket"), CancelToken())
    assert (fetched(outcome), failed(outcome), outcome.cached_count) == ("abcd", {}, 1)
    assert set((tmp_path / "cache").rglob("*.tar.xz")) == {_entry(tmp_path)}
    _check_warning(outcome, "cache_dir was not used for 3 archives: it is full")


def test_without_hard_links_the_cache_s_own_file_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    for hits in (0, 4):
        outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), cached=True)
        assert (fetched(outcome), failed(outcome), outcome.cached_count) == ("abcd", {}, hits)


def test_without_hard_links_a_file_that_vanishes_under_its_extraction_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, vanished = _fetch_pipeline.extract_archive, threading.Event()

    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError

    def extract(archive: Path, folder: Path, **options: Any) -> Any:  # noqa: ANN401 - extract_archive's
        if folder.name.startswith("a") and not vanished.is_set():
            vanished.set()
            archive.unlink()
        return real(archive, folder, **options)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(_fetch_pipeline, "extract_archive", extract)
    backend = Bucket(tmp_path / "bucket")
    assert fetched(fetch(tmp_path, backend, cached=True)) == "abcd"
    assert backend.calls == [list(ARCHIVES), ["a_lib_generic.tar.xz"]]


@pytest.mark.parametrize("extract", ["extract", "none"])
def test_a_cache_entry_that_cannot_be_removed_costs_one_download(tmp_path: Path, extract: Extract) -> None:
    write_tree(_entry(tmp_path), {"a folder": "where a file should be"})
    backend = Bucket(tmp_path / "bucket")
    outcome = fetch(tmp_path, backend, extract=extract, cached=True)
    assert (fetched(outcome), failed(outcome), outcome.notices) == ("abcd", {}, ())
    assert sum(map(len, backend.calls)) == 4
    _check_warning(outcome, "1 archive: ", "cannot be removed")


@pytest.mark.parametrize("extract", ["extract", "none"])
def test_a_cache_that_cannot_be_written_is_left_out_with_one_warning(tmp_path: Path, extract: Extract) -> None:
    write_tree(tmp_path, {"cache": "a file"})
    backend = Bucket(tmp_path / "bucket")
    outcome = fetch(tmp_path, backend, extract=extract, cached=True)
    assert (fetched(outcome), failed(outcome)) == ("abcd", {})
    assert len(list((tmp_path / "got").iterdir())) == 4
    _check_warning(outcome, "cache_dir was not used for 4 archives: ")


# --- markers and notices of the whole fetch --------------------------------------------------------------------------


def test_no_marker_is_written_where_another_artifact_failed(tmp_path: Path) -> None:
    write_tree(tmp_path / "got", {"stage/b/kept": "where a file should be"})
    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="bootstrap")
    assert (fetched(outcome), failed(outcome)) == ("acd", {"b": LocalFileError})
    assert not (tmp_path / "got/stage.prebuilt").exists()
    assert outcome.warnings[-1] == "no .prebuilt marker was written, because 1 artifact is missing"


def test_no_marker_is_written_where_a_wanted_artifact_could_not_even_be_asked_for(tmp_path: Path) -> None:
    destination = Destination(tmp_path / "got", "bootstrap", None, 10**9, lost=("x_lib_generic", "y_lib_generic"))
    outcome = fetch_all(wanted(), destination, Bucket(tmp_path / "bucket"), CancelToken())
    assert fetched(outcome) == "abcd"
    assert not (tmp_path / "got/stage.prebuilt").exists()
    assert outcome.warnings[-1] == "no .prebuilt marker was written, because 2 artifacts are missing"


def test_a_cancelled_bootstrap_writes_no_marker(tmp_path: Path) -> None:
    cancel = CancelToken()

    def interrupt(file: DownloadedFile) -> None:
        if file.item.location.name.startswith("c"):
            while not (tmp_path / "got/stage/b").exists():
                threading.Event().wait(0.01)
            cancel.cancel(15)

    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket", on_arrival=interrupt), extract="bootstrap", cancel=cancel)
    assert set(failed(outcome)) >= {"c", "d"}
    assert not (tmp_path / "got/stage.prebuilt").exists()
    assert "no .prebuilt marker was written" in outcome.warnings[-1]


def test_a_complete_bootstrap_lists_its_artifacts_and_is_replaced_by_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="bootstrap")
        assert (fetched(outcome), outcome.made) == ("abcd", (tmp_path / "got/stage", tmp_path / "got/stage.prebuilt"))
        listed = (tmp_path / "got/stage.prebuilt").read_text()
        assert listed == "".join(f"{letter}_lib_generic\n" for letter in "abcd")
        write_tree(tmp_path / "got/stage", {"stale": "of this fetch"})
    assert (tmp_path / "got/stage/stale").exists()
    fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="bootstrap")
    assert not (tmp_path / "got/stage/stale").exists()


def test_a_marker_that_cannot_be_written_fails_its_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_prebuilt_marker.Marker, "write", refuse)
    outcome = fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="bootstrap")
    assert (fetched(outcome), failed(outcome)) == ("", dict.fromkeys("abcd", LocalFileError))


def test_flatten_says_that_other_content_stays(tmp_path: Path) -> None:
    said = "output_dir had content already: files of other names stay"
    assert said not in fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="flatten").notices
    assert fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="flatten").notices.count(said) == 1
    assert said not in fetch(tmp_path, Bucket(tmp_path / "bucket"), extract="extract").notices


def test_nothing_wanted_makes_no_folder(tmp_path: Path) -> None:
    destination = Destination(tmp_path / "got", "flatten", None, max_extracted_bytes=1)
    outcome = fetch_all([], destination, Bucket(tmp_path / "bucket"), CancelToken())
    assert (fetched(outcome), failed(outcome)) == ("", {})
    assert not (tmp_path / "got").exists()
