"""Mode index: every folder of a run gets a page and a list, which name what is there and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    IncompleteError,
    InputError,
    LocalFileError,
    NotFoundError,
    NotPermittedError,
    ServiceUnavailableError,
)
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES
from _therock_utils.storage_backend import LocalStorageBackend
from fakes.contexts import STAGED, TroubledBackend, make_context
from fakes.trees import digest, read_tree, write_tree
from fakes.wheels import make_wheel
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
from therock_outputs.modes._documents import MAX_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import Replacement, StoredBytes, StoredObject
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "100-linux"
RUN = {
    "blas_lib_gfx1151.tar.zst": "archive",
    "logs/g/a.log": "a\n",
    "logs/g/deep/er/b + c#?.log": "bb\n",
    "logs/h/c.log": "c\n",
    "python/x-1.0+rocm7-py3-none-any.whl": "wheel",
}
FOLDERS = ("", "logs", "logs/g", "logs/g/deep", "logs/g/deep/er", "logs/h", "python")
FOREIGN = "<!doctype html><title>Index of /</title>"
SIBLING = "<!doctype html><meta name='generator' content='therock-outputs python'>"


class Troubled(LocalStorageBackend):
    """A staging folder where others write as well: `between` comes after documents were read; `errors` by name."""

    def __init__(
        self,
        staging_dir: Path,
        *,
        between: Callable[[int], None] = lambda _round: None,
        reads: Mapping[str, OutputsError] | None = None,
        writes: Mapping[str, OutputsError] | None = None,
        removes: Mapping[str, OutputsError] | None = None,
    ) -> None:
        super().__init__(staging_dir)
        self.rounds = 0
        self.written: list[list[str]] = []
        self._between = between
        self._reads, self._writes, self._removes = reads or {}, writes or {}, removes or {}

    def read_all_small(
        self,
        locations: Sequence[StorageLocation],
        **options: Any,  # noqa: ANN401 - as LocalStorageBackend's
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        answers = super().read_all_small(locations, **options)
        if any(at.name == "index.html" for at in locations):
            self.rounds += 1
            self._between(self.rounds)
        return tuple(self._reads.get(name_of(at), answer) for at, answer in zip(locations, answers, strict=True))

    def replace_all(
        self,
        items: Sequence[Replacement],
        **options: Any,  # noqa: ANN401 - as above
    ) -> tuple[StoredObject | OutputsError, ...]:
        self.written.append([name_of(item.location) for item in items])
        refused = [self._writes.get(name_of(item.location)) for item in items]
        done = iter(super().replace_all([item for item, no in zip(items, refused, strict=True) if not no], **options))
        return tuple(no or next(done) for no in refused)

    def remove(self, location: StorageLocation, **options: Any) -> None:  # noqa: ANN401 - as above
        if name_of(location) in self._removes:
            raise self._removes[name_of(location)]
        super().remove(location, **options)


def name_of(location: StorageLocation) -> str:
    return location.relative_path.removeprefix(f"{P}/")


def index(workspace: Path, **options: Any) -> Report:  # noqa: ANN401 - make_context's
    return load_mode(Mode.INDEX).run(make_context(workspace, Mode.INDEX, **options))


def documents(*folders: str) -> list[str]:
    """Names of both documents of each folder, in key order."""
    names = (f"{folder}/{name}".removeprefix("/") for folder in folders for name in ("index.html", "index.json"))
    return sorted(names, key=str.encode)


class Links(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs.append(unquote(dict(attrs)["href"] or ""))


def links(folder: Path) -> list[str]:
    """What the folder's page links, those above left out, without `./`."""
    hrefs = Links((folder / "index.html").read_bytes()).hrefs
    return [href.removeprefix("./") for href in hrefs if not href.startswith("../")]


def listed(folder: Path) -> list[str]:
    """What the folder's list names."""
    document = json.loads((folder / "index.json").read_bytes())
    return [f"{entry['name']}/index.html" for entry in document["folders"] if entry["url"]] + [
        entry["name"] for entry in document["files"]
    ]


def stored(report: Report) -> list[str]:
    return [name_of(item.location) for item in report.result.stored]


def check_pages(run: Path) -> None:
    """Every link opens a file, and each page and list names all that lies in its folder."""
    for page in run.rglob("index.html"):
        if FOREIGN.encode() in page.read_bytes() or b"therock-outputs python" in page.read_bytes():
            continue
        for href in Links(page.read_bytes()).hrefs:
            assert (page.parent / href).is_file(), f"{page}: {href}"
        if page.parent == run:
            continue
        assert listed(page.parent) == links(page.parent)
        own = {"index.html", "index.json"}
        files = {path.name for path in page.parent.iterdir() if path.is_file()} - own
        assert {name for name in links(page.parent) if "/" not in name} - own == files


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    write_tree(tmp_path / STAGED / P, RUN)
    return tmp_path


@pytest.fixture
def run_folder(workspace: Path) -> Path:
    return workspace / STAGED / P


def test_every_folder_has_a_page_and_a_list_of_what_is_in_it(workspace: Path, run_folder: Path) -> None:
    report = index(workspace)
    assert report.error is None
    assert stored(report) == documents(*FOLDERS)
    assert links(run_folder) == ["logs/index.html", "python/index.html", "blas_lib_gfx1151.tar.zst"]
    assert links(run_folder / "logs") == ["g/index.html", "h/index.html"]
    assert links(run_folder / "logs/g") == ["deep/index.html", "a.log"]
    assert links(run_folder / "logs/g/deep/er") == ["b + c#?.log"]
    check_pages(run_folder)
    document = json.loads((run_folder / "index.json").read_bytes())
    assert document["prefix"] == P
    assert [(entry["name"], entry["file_count"], entry["total_bytes"]) for entry in document["folders"]] == [
        ("logs", 3, 7),
        ("python", 1, 5),
    ]
    assert report.outputs == {"index_url": f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/index.html"}
    (part,) = report.parts
    assert (part.what, part.state, part.file_count, part.note) == ("Index pages", "stored", 14, "of 7 folders")
    assert part.location == report.page
    assert part.total_bytes == sum(item.size_bytes for item in report.result.stored)


def test_the_run_records_are_not_listed_and_the_modes_own_names_all_its_pages(
    workspace: Path, run_folder: Path
) -> None:
    report = index(workspace)
    (record,) = (run_folder / "reports" / "index").iterdir()
    assert record.name.startswith("100-linux-build-1-")
    said = json.loads(record.read_bytes())
    assert [entry["key"] for entry in said["objects"]] == [f"{P}/{name}" for name in stored(report)]
    index(workspace)
    assert not (run_folder / "reports" / "index.html").exists()
    assert "reports/index.html" not in links(run_folder)


def test_a_second_run_writes_nothing_and_counts_all(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    before = {path: path.stat().st_mtime_ns for path in run_folder.rglob("index.*")}
    backend = Troubled(workspace / STAGED)
    report = index(workspace, backend=backend)
    assert stored(report) == documents(*FOLDERS)
    assert [names for names in backend.written if names] == []
    assert {path: path.stat().st_mtime_ns for path in run_folder.rglob("index.*")} == before
    assert report.parts[0].note == "of 7 folders, 14 unchanged"
    assert {item.sha256 for item in report.result.stored} == {digest(path.read_bytes()) for path in before}


def test_a_change_changes_the_pages_from_its_folder_up_and_no_other(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    write_tree(run_folder, {"logs/g/new.log": "new"})
    backend = Troubled(workspace / STAGED)
    assert index(workspace, dry_run=True).parts[0].note == "of 7 folders, 6 to store, 8 unchanged"
    assert index(workspace, backend=backend).parts[0].note == "of 7 folders, 6 stored, 8 unchanged"
    assert sorted(name for names in backend.written for name in names) == sorted(documents("", "logs", "logs/g"))
    assert links(run_folder / "logs/g") == ["deep/index.html", "a.log", "new.log"]


def test_the_pages_inside_a_folder_are_stored_before_the_page_that_links_them(workspace: Path) -> None:
    backend = Troubled(workspace / STAGED)
    index(workspace, backend=backend)
    batches = [[name.count("/") for name in names] for names in backend.written]
    assert [len(set(depths)) for depths in batches] == [1] * len(batches)
    assert [depths[0] for depths in batches] == [4, 3, 2, 1, 0]


def test_a_page_that_is_not_stored_is_not_linked(workspace: Path, run_folder: Path) -> None:
    error = NotPermittedError("no")
    report = index(workspace, backend=Troubled(workspace / STAGED, writes={"logs/h/index.html": error}))
    assert links(run_folder / "logs") == ["g/index.html"]
    assert b"h/" in (run_folder / "logs" / "index.html").read_bytes()
    assert json.loads((run_folder / "logs" / "index.json").read_bytes())["folders"][1]["url"] == ""
    assert report.error is error
    assert [item.path for item in report.result.failed] == [f"{P}/logs/h/index.html"]
    assert (report.parts[0].state, report.parts[0].note) == ("partly", "1 of 14 not stored")
    check_pages(run_folder)
    assert index(workspace).error is None
    assert links(run_folder / "logs") == ["g/index.html", "h/index.html"]


@pytest.mark.parametrize("subfolder", ["logs/g", "/logs/g/"])
def test_a_subfolder_is_written_with_all_above_and_below_it(workspace: Path, run_folder: Path, subfolder: str) -> None:
    report = index(workspace, subfolder=subfolder)
    assert stored(report) == documents("", "logs", "logs/g", "logs/g/deep", "logs/g/deep/er")
    assert report.outputs["index_url"].endswith(f"/{P}/logs/g/index.html")
    assert report.subject == "logs/g"
    assert not (run_folder / "python" / "index.html").exists()
    check_pages(run_folder)
    assert links(run_folder) == ["logs/index.html", "blas_lib_gfx1151.tar.zst"]  # the others have no page yet
    assert links(run_folder / "logs") == listed(run_folder / "logs") == ["g/index.html"]
    index(workspace)
    assert links(run_folder) == ["logs/index.html", "python/index.html", "blas_lib_gfx1151.tar.zst"]
    whole = {name: data for name, data in read_tree(run_folder).items() if not name.startswith("reports/")}
    index(workspace, subfolder=subfolder)
    assert whole.items() <= read_tree(run_folder).items()  # the same bytes, whichever of both writes them


@pytest.mark.parametrize("subfolder", ["../x", "logs//g", "reports", "reports/index", "a\\b/..", "x\x00"])
def test_a_subfolder_that_no_run_has_is_an_input_error(workspace: Path, run_folder: Path, subfolder: str) -> None:
    with pytest.raises(InputError, match="subfolder"):
        index(workspace, subfolder=subfolder)
    assert read_tree(run_folder).keys() == RUN.keys()


def test_a_subfolder_with_nothing_in_it_is_not_found_and_nothing_is_written(workspace: Path, run_folder: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        index(workspace, subfolder="logs/g/a.log")
    assert caught.value.what == "the run has no folder 'logs/g/a.log'"
    assert caught.value.remedy == "The run's folders: logs, python."
    assert read_tree(run_folder).keys() == RUN.keys()


def test_an_empty_run_is_not_found(tmp_path: Path) -> None:
    (tmp_path / STAGED).mkdir()
    with pytest.raises(NotFoundError, match="run 100 has no outputs under"):
        index(tmp_path)


def test_a_run_with_nothing_but_records_has_no_page(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / P, {"reports/locate/x.json": "{}"})
    report = index(tmp_path)
    assert report.error is None
    assert report.outputs == {"index_url": ""}
    assert (report.parts[0].state, report.parts[0].note) == ("nothing", "there is nothing to list")
    assert report.record is None


def test_the_pages_of_a_folder_that_holds_nothing_any_more_are_removed(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    (run_folder / "logs/h/c.log").unlink()
    (run_folder / "logs/g/deep/er/b + c#?.log").unlink()
    report = index(workspace)
    left = {path.parent.relative_to(run_folder).as_posix() for path in run_folder.rglob("index.*")}
    assert left == {".", "logs", "logs/g", "python"}
    assert links(run_folder / "logs") == ["g/index.html"]
    assert "6 removed" in report.parts[0].note
    (notice,) = report.notices
    assert notice.startswith("6 pages (logs/g/deep/er/index.html, ")
    assert stored(report) == documents("", "logs", "logs/g", "python")
    check_pages(run_folder)


def test_a_page_that_cannot_be_removed_is_a_failure(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    (run_folder / "logs/h/c.log").unlink()
    error = NotPermittedError("no s3:DeleteObject")
    report = index(workspace, backend=Troubled(workspace / STAGED, removes={"logs/h/index.html": error}))
    assert report.error is error
    assert [name_of(item.location) for item in report.result.failed] == ["logs/h/index.html"]
    assert links(run_folder / "logs") == ["g/index.html"]


def test_another_programs_page_stays_is_told_and_is_listed_for_machines(workspace: Path, run_folder: Path) -> None:
    write_tree(run_folder, {"logs/g/index.html": FOREIGN, "python/index.json": "[]"})
    report = index(workspace)
    assert (run_folder / "logs/g/index.html").read_text() == FOREIGN
    assert (run_folder / "python/index.json").read_text() == "[]"
    assert listed(run_folder / "logs/g") == ["deep/index.html", "a.log", "index.html"]
    assert links(run_folder / "python") == ["index.json", "x-1.0+rocm7-py3-none-any.whl"]
    assert links(run_folder / "logs") == ["g/index.html", "h/index.html"]
    assert report.notices == (
        (
            "2 pages were not made by this action and stay as they are (the first is logs/g/index.html); "
            "force_index: true would replace them"
        ),
    )
    assert index(workspace, subfolder="logs/g").outputs["index_url"].endswith("logs/g/index.html")


def test_force_index_replaces_another_programs_page_but_not_one_that_is_all_there_is(
    workspace: Path, run_folder: Path
) -> None:
    write_tree(run_folder, {"logs/g/index.html": FOREIGN, "python/index.json": "[]", "report/index.html": FOREIGN})
    report = index(workspace, force_index=True)
    assert links(run_folder / "logs/g") == ["deep/index.html", "a.log"]
    assert links(run_folder / "python") == ["x-1.0+rocm7-py3-none-any.whl"]
    assert (run_folder / "report/index.html").read_text() == FOREIGN
    assert listed(run_folder / "report") == ["index.html"]
    assert report.notices == (
        (
            "1 page was not made by this action and stays as it is (report/index.html): no page is replaced that is "
            "all its folder holds, or larger than 16 MiB"
        ),
    )
    check_pages(run_folder)


@pytest.mark.parametrize("force_index", [True, False])
def test_a_page_that_another_mode_made_is_left_alone_in_silence(
    workspace: Path, run_folder: Path, force_index: bool
) -> None:
    write_tree(run_folder, {"python/index.html": SIBLING})
    report = index(workspace, force_index=force_index)
    assert (run_folder / "python/index.html").read_text() == SIBLING
    assert listed(run_folder / "python") == ["x-1.0+rocm7-py3-none-any.whl"]
    assert report.notices == ()
    assert "python/index.html" in links(run_folder)
    assert index(workspace, subfolder="python").outputs["index_url"].endswith("/python/index.html")
    (run_folder / "python/x-1.0+rocm7-py3-none-any.whl").unlink()
    report = index(workspace, force_index=force_index)
    assert (run_folder / "python/index.html").read_text() == SIBLING
    assert listed(run_folder / "python") == []
    assert report.notices == ()
    assert "python/index.html" not in links(run_folder)
    (run_folder / "python/index.json").unlink()
    index(workspace, force_index=force_index)
    assert not (run_folder / "python/index.json").exists()


def test_the_page_of_an_upload_mode_becomes_one_of_a_folder(workspace: Path, run_folder: Path) -> None:
    write_tree(workspace / "build", {"logs/a.log": "a\n", "logs/sub/b.log": "b\n"})
    load_mode(Mode.UPLOAD_BUILD).run(make_context(workspace, Mode.UPLOAD_BUILD, artifact_group="g", if_missing="warn"))
    assert "sub/b.log" in links(run_folder / "logs/g")
    index(workspace)
    assert "sub/index.html" in links(run_folder / "logs/g")
    assert "sub/b.log" not in links(run_folder / "logs/g")
    check_pages(run_folder)
    load_mode(Mode.UPLOAD_BUILD).run(make_context(workspace, Mode.UPLOAD_BUILD, artifact_group="g", if_missing="warn"))
    assert "sub/b.log" in links(run_folder / "logs/g")
    assert "index.json" not in links(run_folder / "logs/g")


def test_digests_come_from_records_that_are_still_true(workspace: Path, run_folder: Path) -> None:
    write_tree(workspace / "build", {"logs/a.log": "a\n", "logs/b.log": "b\n", "logs/c.log": "c\n"})
    load_mode(Mode.UPLOAD_BUILD).run(make_context(workspace, Mode.UPLOAD_BUILD, artifact_group="z"))
    (record,) = (run_folder / "reports/upload-build").iterdir()
    recorded = record.stat().st_mtime
    (run_folder / "logs/z/b.log").write_text("x\n")
    os.utime(run_folder / "logs/z/b.log", (recorded + 5, recorded + 5))
    (run_folder / "logs/z/c.log").write_text("longer\n")
    os.utime(run_folder / "logs/z/c.log", (recorded - 5, recorded - 5))
    index(workspace)
    files = json.loads((run_folder / "logs/z/index.json").read_bytes())["files"]
    assert {entry["name"]: entry["sha256"] for entry in files} == {"a.log": digest("a\n"), "b.log": "", "c.log": ""}


def test_a_record_that_cannot_be_used_is_a_warning(workspace: Path, run_folder: Path) -> None:
    write_tree(run_folder, {"reports/upload-build/x.json": "no JSON"})
    report = index(workspace)
    assert report.error is None
    (warning,) = report.warnings
    assert warning.startswith("1 record of the run cannot be used")


def test_a_dry_run_says_what_would_be_written_and_writes_nothing(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    (run_folder / "logs/h/c.log").unlink()
    write_tree(run_folder, {"new/a": "a"})
    before = read_tree(run_folder)
    report = index(workspace, dry_run=True)
    assert read_tree(run_folder) == before
    names = {name_of(item.location) for item in report.result.stored if item.verified == "dry-run"}
    assert names == set(documents("", "logs", "new"))
    assert report.notices == (
        "2 pages (logs/h/index.html, logs/h/index.json) would be removed: nothing else is left in the folder",
    )
    assert report.outputs == {"index_url": ""}
    assert report.page is None


def test_a_page_that_another_job_wrote_meanwhile_is_made_again_from_what_is_there_then(
    workspace: Path, run_folder: Path
) -> None:
    def another_job(number: int) -> None:
        if number == 1:
            write_tree(run_folder, {"logs/g/other.log": "other", "new/a": "a"})
            index(workspace)

    write_tree(
        run_folder,
        {"index.html": FOREIGN.replace("<title>", "<meta name=generator content='therock-outputs files'><title>")},
    )
    backend = Troubled(workspace / STAGED, between=another_job)
    report = index(workspace, backend=backend)
    assert report.error is None
    assert backend.rounds > 1
    assert links(run_folder / "logs/g") == ["deep/index.html", "a.log", "other.log"]
    assert "new/index.html" in links(run_folder)
    assert len(stored(report)) == len(set(stored(report)))
    check_pages(run_folder)


def test_only_folders_with_a_conflict_are_written_again(workspace: Path, run_folder: Path) -> None:
    index(workspace)

    def another_job(number: int) -> None:
        if number == 1:
            page = run_folder / "logs/h/index.html"
            page.write_bytes(page.read_bytes() + b"\n")

    write_tree(run_folder, {"logs/h/d.log": "d", "python/y": "y"})
    backend = Troubled(workspace / STAGED, between=another_job)
    assert index(workspace, backend=backend).error is None
    assert backend.written[-1] == ["logs/h/index.html"]
    assert backend.rounds == 2
    assert links(run_folder / "logs/h") == ["c.log", "d.log"]


def test_a_stale_page_is_not_removed_where_another_job_stored_into_its_folder_meanwhile(
    workspace: Path, run_folder: Path
) -> None:
    index(workspace)
    (run_folder / "logs/h/c.log").unlink()

    def another_job(number: int) -> None:
        if number == 1:
            page = run_folder / "logs/h/index.html"
            page.write_bytes(page.read_bytes() + b"\n")

    class StoresLater(Troubled):
        def remove(self, location: StorageLocation, **options: Any) -> None:  # noqa: ANN401 - as LocalStorageBackend's
            write_tree(run_folder, {"logs/h/new.log": "new"})
            super().remove(location, **options)

    report = index(workspace, backend=StoresLater(workspace / STAGED, between=another_job))
    assert report.error is None
    assert links(run_folder / "logs/h") == ["new.log"]


def test_a_race_that_is_lost_every_time_is_a_failure_in_the_end(
    workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = run_folder / "logs/h/index.html"
    index(workspace)
    write_tree(run_folder, {"logs/h/d.log": "d"})
    cancel = CancelToken()
    monkeypatch.setattr(cancel, "sleep", lambda _seconds: None)
    backend = Troubled(workspace / STAGED, between=lambda _round: page.write_bytes(page.read_bytes() + b"\n") and None)
    report = index(workspace, backend=backend, cancel=cancel)
    assert backend.rounds == MAX_ATTEMPTS
    assert isinstance(report.error, ConflictError)
    assert [name_of(item.location) for item in report.result.failed] == ["logs/h/index.html"]
    assert "logs/h/index.json" in stored(report)


def test_a_page_that_may_not_be_read_and_so_not_be_updated_is_a_failure(workspace: Path, run_folder: Path) -> None:
    index(workspace)
    write_tree(run_folder, {"logs/g/new.log": "new"})
    denied = dict.fromkeys(documents(*FOLDERS), NotPermittedError("access was denied"))
    report = index(workspace, backend=Troubled(workspace / STAGED, reads=denied))
    assert isinstance(report.error, NotPermittedError)
    assert report.exit_code == 4
    assert {name_of(item.location) for item in report.result.failed} == denied.keys()
    assert (report.notices, report.warnings) == ((), ())
    assert "new.log" not in links(run_folder / "logs/g")


@pytest.mark.parametrize("force_index", [True, False])
def test_a_page_too_large_for_this_project_is_another_programs_and_stays(
    workspace: Path, run_folder: Path, force_index: bool
) -> None:
    with (run_folder / "python/index.html").open("wb") as file:
        file.truncate(SMALL_OBJECT_LIMIT_BYTES + 1)
    report = index(workspace, force_index=force_index)
    assert report.error is None
    assert report.notices[0].startswith("1 page was not made by this action and stays as it is (python/index.html)")
    assert (run_folder / "python/index.html").stat().st_size == SMALL_OBJECT_LIMIT_BYTES + 1
    assert listed(run_folder / "python") == ["index.html", "x-1.0+rocm7-py3-none-any.whl"]
    assert "python/index.html" in links(run_folder)


def test_a_page_that_cannot_be_read_now_is_a_failure(workspace: Path) -> None:
    index(workspace)
    error = ServiceUnavailableError("slow down")
    report = index(workspace, backend=Troubled(workspace / STAGED, reads={"logs/g/index.html": error}))
    assert report.error is error
    assert report.notices == ()
    assert stored(report) == [name for name in documents(*FOLDERS) if name != "logs/g/index.html"]


def test_a_page_that_would_be_too_large_to_be_read_again_is_a_failure(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("therock_outputs.modes._index_course.SMALL_OBJECT_LIMIT_BYTES", 12_000)
    write_tree(workspace / STAGED / P, {f"logs/h/{number:03}.log": "x" for number in range(100)})
    report = index(workspace)
    assert {name_of(item.location) for item in report.result.failed} == set(documents("logs/h"))
    assert isinstance(report.error, IncompleteError)
    list_ = report.result.failed[1].error
    assert list_.what == "s3://therock-ci-artifacts/100-linux/logs/h/index.json would be too large"
    assert list_.why.startswith("its folder holds 101 files and folders, which take ")
    assert "in each at most " in list_.remedy
    assert "Until then this folder has no index.json." in list_.remedy


def test_a_list_that_would_be_too_large_leaves_no_older_one_that_machines_would_believe(
    workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(workspace)
    write_tree(run_folder, {f"logs/h/{number:03}.log": "x" for number in range(100)})
    monkeypatch.setattr("therock_outputs.modes._index_course.SMALL_OBJECT_LIMIT_BYTES", 12_000)
    before = (run_folder / "logs/h/index.html").read_bytes()
    report = index(workspace)
    assert report.exit_code == 1
    assert not (run_folder / "logs/h/index.json").exists()
    assert (run_folder / "logs/h/index.html").read_bytes() == before
    assert not any("removed" in notice for notice in report.notices)
    assert load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY)).error is None


def test_a_folder_whose_page_would_have_an_illegal_key_is_told_and_costs_no_other_its_page(
    workspace: Path, run_folder: Path
) -> None:
    deep = "/".join(("d" * 200, "e" * 200, "f" * 200, "g" * 200, "h" * 150))
    deepest = f"{deep}/{'i' * (1024 - len(f'{P}/{deep}/') - 2)}"
    write_tree(run_folder, {f"{deepest}/f": "x"})
    for report in (index(workspace), index(workspace, subfolder="logs/g"), index(workspace, subfolder=deepest)):
        assert report.error is None
        assert ("1 folder without a page" in "".join(report.notices)) == (report.subject != "logs/g")
    assert report.outputs == {"index_url": ""}
    assert len(list(run_folder.rglob("index.html"))) == len(FOLDERS) + 5
    assert links(run_folder / deep) == []
    assert json.loads((run_folder / deep / "index.json").read_bytes())["folders"][0]["url"] == ""
    check_pages(run_folder)


@pytest.mark.parametrize("kind", ["link", "link to nothing", "folder", "empty folder", "fifo"])
@pytest.mark.parametrize("name", ["index.html", "index.json"])
def test_what_is_no_file_where_a_page_would_be_is_told_once_and_stays(
    workspace: Path, run_folder: Path, name: str, kind: str
) -> None:
    blocked = run_folder / "logs/h" / name
    match kind:
        case "link":
            blocked.symlink_to("c.log")
        case "link to nothing":
            blocked.symlink_to("nowhere")
        case "folder":
            write_tree(blocked, {"x": "x"})
        case "empty folder":
            blocked.mkdir()
        case _:
            os.mkfifo(blocked)
    backend = Troubled(workspace / STAGED)
    report = index(workspace, backend=backend)
    assert isinstance(report.error, LocalFileError)
    assert report.error.what.endswith(f"{name}' is in the way")
    assert [name_of(item.location) for item in report.result.failed] == [f"logs/h/{name}"]
    written = [name for names in backend.written for name in names]
    assert len(written) == len(set(written))
    assert (run_folder / "logs/h/c.log").read_text() == "c\n"
    assert ("h/index.html" in links(run_folder / "logs")) == (name == "index.json")


def test_a_page_that_is_stored_in_a_later_round_is_linked(workspace: Path, run_folder: Path) -> None:
    class LosesOnce(Troubled):
        def replace_all(
            self,
            items: Sequence[Replacement],
            **options: Any,  # noqa: ANN401 - as LocalStorageBackend's
        ) -> tuple[StoredObject | OutputsError, ...]:
            answers = super().replace_all(items, **options)
            self._writes = {} if any(isinstance(one, ConflictError) for one in answers) else self._writes
            return answers

    backend = LosesOnce(workspace / STAGED, writes={"logs/h/index.html": ConflictError("another was faster")})
    report = index(workspace, backend=backend)
    assert report.error is None
    assert links(run_folder / "logs") == ["g/index.html", "h/index.html"]
    assert listed(run_folder / "logs") == ["g/index.html", "h/index.html"]
    assert sorted(stored(report)) == sorted(documents(*FOLDERS))
    check_pages(run_folder)


def test_a_page_whose_race_is_lost_for_ever_is_not_linked(
    workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = CancelToken()
    monkeypatch.setattr(cancel, "sleep", lambda _seconds: None)
    backend = Troubled(workspace / STAGED, writes={"logs/h/index.html": ConflictError("no")})
    report = index(workspace, backend=backend, cancel=cancel)
    assert [name_of(item.location) for item in report.result.failed] == ["logs/h/index.html"]
    assert links(run_folder / "logs") == listed(run_folder / "logs") == ["g/index.html"]
    check_pages(run_folder)


def test_a_list_whose_race_is_lost_for_ever_is_what_the_error_names(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = CancelToken()
    monkeypatch.setattr(cancel, "sleep", lambda _seconds: None)
    backend = Troubled(workspace / STAGED, writes={"logs/h/index.json": ConflictError("no")})
    report = index(workspace, backend=backend, cancel=cancel)
    assert [name_of(item.location) for item in report.result.failed] == ["logs/h/index.json"]


def test_a_run_that_cannot_be_listed_is_the_error_itself(workspace: Path) -> None:
    error = NotPermittedError("no listing")

    class Closed(LocalStorageBackend):
        def list_objects(self, location: StorageLocation, **_options: Any) -> Any:  # noqa: ANN401 - as above
            raise error

    with pytest.raises(NotPermittedError, match="no listing"):
        index(workspace, backend=Closed(workspace / STAGED))


def test_an_error_after_pages_were_written_leaves_a_report_and_a_record_of_them(
    workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(workspace)
    write_tree(run_folder, {"logs/g/new.log": "new"})
    error = NotPermittedError("expired")

    class Ends(Troubled):
        def list_objects(self, location: StorageLocation, **options: Any) -> Any:  # noqa: ANN401 - as above
            if self.rounds == 1 and self.written:
                raise error
            return super().list_objects(location, **options)

    cancel = CancelToken()
    monkeypatch.setattr(cancel, "sleep", lambda _seconds: None)
    conflict = ConflictError("changed")
    report = index(workspace, backend=Ends(workspace / STAGED, writes={"logs/index.html": conflict}), cancel=cancel)
    assert report.error is error
    assert "logs/g/index.html" in stored(report)
    assert [(name_of(item.location), item.error) for item in report.result.failed] == [("logs/index.html", conflict)]
    assert report.record is not None


def test_a_cancel_stops_it_and_is_told(workspace: Path) -> None:
    cancel = CancelToken()
    report = index(workspace, backend=Troubled(workspace / STAGED), cancel=cancel)
    assert report.error is None

    def signal_arrives(_number: int) -> None:
        cancel.cancel(15)

    write_tree(workspace / STAGED / P, {"logs/g/new.log": "new"})
    report = index(workspace, backend=Troubled(workspace / STAGED, between=signal_arrives), cancel=cancel)
    assert isinstance(report.error, CancelledError)
    assert report.exit_code == 143
    assert report.record is None


def test_hundreds_of_folders_are_written_in_batches(workspace: Path, run_folder: Path) -> None:
    write_tree(run_folder, {f"logs/h/{number:03}/a.log": "x" for number in range(150)})
    backend = Troubled(workspace / STAGED)
    report = index(workspace, backend=backend)
    assert len(stored(report)) == 2 * (150 + len(FOLDERS))
    assert max(map(len, backend.written)) <= 256
    check_pages(run_folder)


# --- what upload modes do to it


def upload_report(workspace: Path, files: Mapping[str, str], **options: Any) -> Report:  # noqa: ANN401 - make_context's
    """Upload a report of these files to logs/r, with a page."""
    shutil.rmtree(workspace / "report", ignore_errors=True)
    write_tree(workspace / "report", files)
    inputs = {"path": "report", "subfolder": "r", "index": "write"} | options
    return load_mode(Mode.UPLOAD_REPORT).run(make_context(workspace, Mode.UPLOAD_REPORT, **inputs))


def test_an_upload_keeps_the_list_beside_its_page_true(workspace: Path, run_folder: Path) -> None:
    assert upload_report(workspace, {"a.html": "a", "data/x.txt": "x"}).error is None
    index(workspace)
    write_tree(run_folder, {"logs/r/others.txt": "unknown digest"})
    report = upload_report(workspace, {"b.html": "bb", "data/y.txt": "y"})
    assert report.error is None
    document = json.loads((run_folder / "logs/r/index.json").read_bytes())
    assert {entry["name"]: entry["sha256"] for entry in document["files"]} == {
        "a.html": digest("a"),
        "b.html": digest("bb"),
        "others.txt": "",
    }
    (folder,) = document["folders"]
    assert (folder["name"], folder["file_count"], folder["url"]) == (
        "data",
        2,
        f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/logs/r/data/index.html",
    )
    assert "logs/r/index.json" in stored(report)
    assert load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY)).error is None
    before = (run_folder / "logs/r/index.json").read_bytes()
    index(workspace)
    after = json.loads((run_folder / "logs/r/index.json").read_bytes())
    assert after == json.loads(before)
    check_pages(run_folder)


def test_an_upload_makes_no_list_where_none_of_ours_is(workspace: Path, run_folder: Path) -> None:
    assert upload_report(workspace, {"a.html": "a"}).error is None
    assert not (run_folder / "logs/r/index.json").exists()
    write_tree(run_folder, {"logs/r/index.json": "[]"})
    assert upload_report(workspace, {"b.html": "b"}).error is None
    assert (run_folder / "logs/r/index.json").read_text() == "[]"
    assert upload_report(workspace, {"index.json": "[1]", "index.html": "c"}).error is None
    assert (run_folder / "logs/r/index.json").read_text() == "[1]"


def test_a_dry_run_of_an_upload_leaves_the_list(workspace: Path, run_folder: Path) -> None:
    upload_report(workspace, {"a.html": "a"})
    index(workspace)
    before = read_tree(run_folder)
    assert upload_report(workspace, {"b.html": "b"}, dry_run=True).error is None
    assert read_tree(run_folder) == before


def test_the_list_in_a_folder_that_cannot_be_listed_is_left_and_told(workspace: Path, run_folder: Path) -> None:
    upload_report(workspace, {"a.html": "a"})
    index(workspace)
    before = (run_folder / "logs/r/index.json").read_bytes()
    backend = TroubledBackend(workspace / STAGED, listing=NotPermittedError("no listing"))
    report = upload_report(workspace, {"b.html": "b"}, backend=backend)
    assert report.error is None
    assert any(
        "index.json was left as it is: its folder cannot be listed: no listing" in one for one in report.warnings
    )
    assert (run_folder / "logs/r/index.json").read_bytes() == before


def test_a_list_that_an_upload_would_make_too_large_is_removed(
    workspace: Path, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload_report(workspace, {"a.html": "a"})
    index(workspace)
    monkeypatch.setattr("therock_outputs.modes._index_lists.SMALL_OBJECT_LIMIT_BYTES", 300)
    assert upload_report(workspace, {"b.html": "b"}).error is None
    assert not (run_folder / "logs/r/index.json").exists()
    assert load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY)).error is None


def test_lists_of_folders_in_folders_are_all_kept_true(workspace: Path, run_folder: Path) -> None:
    write_tree(run_folder, {"logs/r/in/old.txt": "old"})
    index(workspace)
    upload_report(workspace, {"index.html": "own", "in/index.html": "own", "in/new.txt": "new", "out/index.html": "o"})
    assert listed(run_folder / "logs/r/in") == ["index.html", "new.txt", "old.txt"]
    assert listed(run_folder / "logs/r") == ["in/index.html", "out/index.html", "index.html"]
    assert not (run_folder / "logs/r/out/index.json").exists()


def test_a_wheel_that_is_added_later_is_on_the_list_and_verify_is_content(workspace: Path, run_folder: Path) -> None:
    for name in ("one", "two"):
        make_wheel(workspace / name, name)
        settings = make_context(workspace, Mode.UPLOAD_PYTHON, path=name, index="write")
        assert load_mode(Mode.UPLOAD_PYTHON).run(settings).error is None
        if name == "one":
            assert index(workspace).error is None
    wheels = sorted(path.name for path in (run_folder / "python").glob("*.whl"))
    assert [entry for entry in listed(run_folder / "python") if entry.endswith(".whl")] == wheels
    assert "two/index.html" in listed(run_folder / "python/simple")
    assert load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY)).error is None
    assert index(workspace).error is None
    assert load_mode(Mode.VERIFY).run(make_context(workspace, Mode.VERIFY)).error is None


def test_the_page_of_an_upload_does_not_list_mode_indexs_pages_but_lists_other_programs(
    workspace: Path, run_folder: Path
) -> None:
    files = {"a.html": "a", "data/x.txt": "x", "coverage/index.html": FOREIGN, "coverage/index.json": "{}"}
    upload_report(workspace, files)
    first = (run_folder / "logs/r/index.html").read_bytes()
    expected = ["a.html", "coverage/index.html", "coverage/index.json", "data/x.txt"]
    assert links(run_folder / "logs/r") == expected
    index(workspace)
    assert (run_folder / "logs/r/data/index.html").exists()
    upload_report(workspace, files)
    assert links(run_folder / "logs/r") == expected
    assert (run_folder / "logs/r/index.html").read_bytes() == first
