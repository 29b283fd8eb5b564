"""Documents that several jobs write: nothing that one of them stored is lost, and each failure is one document's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, ConflictError, NotPermittedError, ServiceUnavailableError
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.contexts import STAGED, make_context
from fakes.trees import read_tree, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes._documents import MAX_ATTEMPTS, Decision, Keep, Remove, Write, store_documents
from therock_outputs.modes._upload import Uploader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import Replacement, StoredBytes, StoredObject

    Present = Mapping[StorageLocation, StoredBytes | None]

pytestmark = pytest.mark.usefixtures("no_job")

A, B, C = (StorageLocation("therock-ci-artifacts", f"100-linux/{name}") for name in "abc")


class Meddled(LocalStorageBackend):
    """A staging folder in which others write as well: `between` comes after the reads, `errors` instead of them."""

    def __init__(
        self,
        staging_dir: Path,
        *,
        between: Callable[[int], None] = lambda _round: None,
        reads: Mapping[StorageLocation, OutputsError] | None = None,
        writes: Mapping[StorageLocation, OutputsError] | None = None,
    ) -> None:
        super().__init__(staging_dir)
        self.rounds = 0
        self.written: list[StorageLocation] = []
        self._between, self._reads, self._writes = between, reads or {}, writes or {}

    def read_all_small(
        self,
        locations: Sequence[StorageLocation],
        **options: Any,  # noqa: ANN401 - as LocalStorageBackend's
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        answers = super().read_all_small(locations, **options)
        self.rounds += 1
        self._between(self.rounds)
        return tuple(self._reads.get(at, answer) for at, answer in zip(locations, answers, strict=True))

    def replace_all(self, items: Sequence[Replacement], **options: Any) -> tuple[StoredObject | OutputsError, ...]:  # noqa: ANN401 - as above
        self.written += [item.location for item in items]
        refused = tuple(self._writes.get(item.location) for item in items)
        answers = super().replace_all(items, **options) if not any(refused) else (None,) * len(items)
        return tuple(error or answer for error, answer in zip(refused, answers, strict=True))  # type: ignore[misc] # one of both is there


def uploader_of(workspace: Path, backend: LocalStorageBackend | None = None, **options: Any) -> Uploader:  # noqa: ANN401 - make_context's
    return Uploader(make_context(workspace, Mode.INDEX, backend=backend, **options))


def line_adder(line: str) -> Callable[[Present], dict[StorageLocation, Decision]]:
    """Adds a line to each document that does not have it."""

    def compose(present: Present) -> dict[StorageLocation, Decision]:
        return {
            at: Write(b"".join(sorted({*(found.data if found else b"").splitlines(True), f"{line}\n".encode()})), "x/y")
            for at, found in present.items()
        }

    return compose


def stored_names(uploader: Uploader) -> list[str]:
    return [item.location.name for item in uploader.result.stored]


def test_each_document_is_stored_kept_or_removed_as_decided(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"a": "old", "b": "old", "c": "old", "z": "other"})
    uploader = uploader_of(tmp_path)
    decisions: dict[StorageLocation, Decision] = {A: Write(b"new", "text/plain"), B: Keep("it is fine"), C: Remove()}
    assert store_documents(uploader, [B, A, C, A], lambda _present: decisions) == (B, A)
    assert read_tree(tmp_path / STAGED / "100-linux") == {"a": b"new", "b": b"old", "z": b"other"}
    assert stored_names(uploader) == ["a"]
    assert uploader.result.stored[0].content_type == "text/plain"
    assert uploader.result.notices == (f"the page {B.s3_uri} was left as it is: it is fine",)
    assert uploader.kept_pages == {B}


def test_to_keep_in_silence_or_remove_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"c": "old"})
    uploader = uploader_of(tmp_path)
    decisions: dict[StorageLocation, Decision] = {A: Keep(), B: Remove(), C: Keep()}
    assert store_documents(uploader, [A, B, C], lambda _present: decisions) == (C,)
    assert uploader.kept_pages == {C}
    assert uploader.result.notices == ()
    assert store_documents(uploader, [], lambda _present: pytest.fail("there is nothing to decide")) == ()


def test_what_is_there_already_counts_as_stored_and_is_not_written_again(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"a": "same", "b": "old"})
    backend = Meddled(tmp_path / STAGED)
    uploader = uploader_of(tmp_path, backend)
    assert store_documents(uploader, [A, B], lambda present: dict.fromkeys(present, Write(b"same", "x/y"))) == (A, B)
    assert backend.written == [B]
    assert sorted(stored_names(uploader)) == ["a", "b"]
    assert {item.sha256 for item in uploader.result.stored} == {uploader.result.stored[0].sha256}


def test_a_document_that_another_job_changed_is_made_again_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / "100-linux"
    write_tree(folder, {"a": "first\n", "b": "first\n"})

    def another_job(number: int) -> None:
        if number == 1:
            write_tree(folder, {"a": "another\nfirst\n", "c": "another\n"})

    backend = Meddled(tmp_path / STAGED, between=another_job)
    uploader = uploader_of(tmp_path, backend)
    assert store_documents(uploader, [A, B, C], line_adder("mine")) == (A, B, C)
    assert read_tree(folder) == {"a": b"another\nfirst\nmine\n", "b": b"first\nmine\n", "c": b"another\nmine\n"}
    assert backend.written == [A, B, C, A, C]
    assert uploader.result.failed == ()


def test_what_another_job_wrote_meanwhile_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / "100-linux"
    write_tree(folder, {"a": "old"})

    def another_job(number: int) -> None:
        if number == 1:
            write_tree(folder, {"a": "new"})

    def compose(present: Present) -> dict[StorageLocation, Decision]:
        found = present[A]
        assert found is not None
        return {A: Remove() if found.data == b"old" else Keep()}

    assert store_documents(uploader_of(tmp_path, Meddled(tmp_path / STAGED, between=another_job)), [A], compose) == (A,)
    assert read_tree(folder) == {"a": b"new"}


def test_a_race_that_is_lost_every_time_is_a_failure_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / STAGED / "100-linux"
    backend = Meddled(tmp_path / STAGED, between=lambda number: write_tree(folder, {"a": f"round {number}"}))
    pauses: list[float] = []
    cancel = CancelToken()
    monkeypatch.setattr(cancel, "sleep", pauses.append)
    uploader = uploader_of(tmp_path, backend, cancel=cancel)
    assert store_documents(uploader, [A, B], line_adder("mine")) == (B,)
    (failed,) = uploader.result.failed
    assert (failed.location, type(failed.error)) == (A, ConflictError)
    assert backend.rounds == MAX_ATTEMPTS
    assert len(pauses) == MAX_ATTEMPTS - 1
    assert all(0 <= pause <= 2 for pause in pauses)


def test_a_document_that_cannot_be_read_fails_and_the_others_are_stored(tmp_path: Path) -> None:
    error = ServiceUnavailableError("slow down")
    uploader = uploader_of(tmp_path, Meddled(tmp_path / STAGED, reads={A: error}))
    assert store_documents(uploader, [A, B], line_adder("mine")) == (B,)
    assert [(item.location, item.error) for item in uploader.result.failed] == [(A, error)]


def test_without_the_right_to_read_a_new_document_is_created_and_an_old_one_is_kept(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"a": "old"})
    refused = dict.fromkeys([A, B], NotPermittedError("no"))
    uploader = uploader_of(tmp_path, Meddled(tmp_path / STAGED, reads=refused))
    assert store_documents(uploader, [A, B], line_adder("mine")) == (A, B)
    assert read_tree(tmp_path / STAGED / "100-linux") == {"a": b"old", "b": b"mine\n"}
    assert uploader.kept_pages == {A}
    assert "cannot be read with these credentials" in uploader.result.notices[0]
    assert uploader.result.failed == ()


def test_a_document_that_cannot_be_written_or_removed_is_a_failed_item(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"b": "old"})
    error = NotPermittedError("no")

    class NoDeletes(Meddled):
        def remove(self, location: StorageLocation, **_options: Any) -> None:  # noqa: ANN401 - as LocalStorageBackend's
            raise error

    uploader = uploader_of(tmp_path, NoDeletes(tmp_path / STAGED, writes={A: error}))
    decisions: dict[StorageLocation, Decision] = {A: Write(b"new", "x/y"), B: Remove()}
    assert store_documents(uploader, [A, B], lambda _present: decisions) == ()
    assert {item.location: item.error for item in uploader.result.failed} == {A: error, B: error}


def test_where_nothing_can_be_decided_every_document_fails_with_the_reason(tmp_path: Path) -> None:
    error = NotPermittedError("no listing")

    def compose(_present: Present) -> dict[StorageLocation, Decision]:
        raise error

    uploader = uploader_of(tmp_path)
    assert store_documents(uploader, [B, A], compose) == ()
    assert [(item.location, item.error) for item in uploader.result.failed] == [(A, error), (B, error)]


def test_a_cancel_ends_it_and_names_what_is_not_stored(tmp_path: Path) -> None:
    folder = tmp_path / STAGED / "100-linux"
    cancel = CancelToken()

    def another_job(_number: int) -> None:
        write_tree(folder, {"a": "another"})
        cancel.cancel(15)

    uploader = uploader_of(tmp_path, Meddled(tmp_path / STAGED, between=another_job), cancel=cancel)
    assert store_documents(uploader, [A, B], line_adder("mine")) == ()
    assert [(item.location, item.error.exit_code) for item in uploader.result.failed] == [(A, 143), (B, 143)]
    assert all(isinstance(item.error, CancelledError) for item in uploader.result.failed)


def test_a_dry_run_reads_and_writes_nothing_and_says_what_would_be_stored(tmp_path: Path) -> None:
    write_tree(tmp_path / STAGED / "100-linux", {"a": "old", "c": "old"})
    backend = Meddled(tmp_path / STAGED)
    uploader = uploader_of(tmp_path, backend, dry_run=True)
    decisions: dict[StorageLocation, Decision] = {A: Write(b"new", "x/y"), B: Keep(), C: Remove()}

    def compose(present: Present) -> dict[StorageLocation, Decision]:
        assert present == {A: None, B: None, C: None}
        return decisions

    assert store_documents(uploader, [A, B, C], compose) == (A,)
    assert [(item.location, item.verified) for item in uploader.result.stored] == [(A, "dry-run")]
    assert backend.rounds == 0
    assert backend.written == []
    assert read_tree(tmp_path / STAGED / "100-linux") == {"a": b"old", "c": b"old"}


ADDER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3].split(":")
import test_modes_documents as tests
for number in range(20):
    uploader = tests.uploader_of(Path(sys.argv[1]))
    tests.store_documents(uploader, [tests.A, tests.B], tests.line_adder(f"{sys.argv[2]}-{number:02}"))
    assert not uploader.result.failed, uploader.result.failed
"""


def test_two_processes_that_add_twenty_times_each_lose_nothing(tmp_path: Path) -> None:
    here = Path(__file__).parent
    paths = ":".join(map(str, (here, here.parent, here.parents[1] / "src")))
    command = [sys.executable, "-c", ADDER, str(tmp_path)]
    processes = [subprocess.Popen([*command, name, paths]) for name in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    expected = "".join(f"{name}-{number:02}\n" for name in ("one", "two") for number in range(20)).encode()
    assert read_tree(tmp_path / STAGED / "100-linux") == {"a": expected, "b": expected}
