"""Publishes packages: files first, then metadata merged with what is stored, under conditional writes.

A round reads the commit, what it names, and then the pool; it composes metadata of all that should be named, and
replaces the commit only where it still is the one that was read. So jobs that publish at once all end up in it, and
what a crash left in the pool is named by the next job. Every file's name is reserved for its bytes by now, so nothing
in the pool is ever replaced. Memory: the metadata of the whole repository as parsed packages, and one metadata file;
package files are streamed.
"""

from __future__ import annotations

import datetime
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from _therock_utils._errors import ConflictError, IntegrityError, OutputsError
from _therock_utils._folder import local_file_error
from _therock_utils._transfer_types import (
    SMALL_OBJECT_LIMIT_BYTES,
    FailedItem,
    StoredObject,
    UploadItem,
    UploadResult,
)
from therock_outputs.modes._documents import Write, unchanged
from therock_outputs.modes._repository_files import offered_packages, skipped
from therock_outputs.modes._repository_state import StateReader
from therock_outputs.modes._repository_unnamed import UnnamedFiles
from therock_outputs.modes._scratch import folder_in
from therock_outputs.package_repository import merge, with_found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._repository_files import OwnFile
    from therock_outputs.modes._repository_names import NameRecords
    from therock_outputs.modes._repository_state import State
    from therock_outputs.modes._upload import Uploader
    from therock_outputs.package_repository import Metadata, MetadataFile, Package, RepositoryKind

MAX_ROUNDS: Final = 20
_MAX_PAUSE_SECONDS: Final = 2.0
_SHOWN: Final = 3
_T = TypeVar("_T")


class Publisher:
    """Stores this job's files and makes the metadata name them. `scratch` is a folder for temporary files."""

    def __init__(
        self, uploader: Uploader, kind: RepositoryKind, names: NameRecords, scratch: Path, *, label: str
    ) -> None:
        """`label` says whose repository it is."""
        self._uploader = uploader
        self._context = uploader.context
        self._kind = kind
        self._names = names
        self._scratch = scratch
        self._label = label
        self._unnamed = UnnamedFiles(self._context.say)
        self._told: set[str] = set()

    def run(self, files: Sequence[OwnFile]) -> None:
        """Store the files, under the names that are reserved for them, and publish.

        With no files it sees to it that what is stored is offered. Never raises: what went wrong is a failed item, of a
        file or of the commit.
        """
        own = self._store(files)
        try:
            if self._context.settings.dry_run:
                if own:
                    self._show(own)
            elif own or not files:
                self._publish(own)
        except OutputsError as error:
            self._uploader.add_failed([_failed(self._kind.commit, error)])

    def _store(self, files: Sequence[OwnFile]) -> list[OwnFile]:
        """Those that are stored, with the bytes that were inspected."""
        for file in files:
            if file.stored is not None:
                self._uploader.add_stored(file.stored)
        items = {file.item(self._kind.pool).destination: file for file in files if file.stored is None}
        result = self._uploader.store([file.item(self._kind.pool) for file in items.values()])
        sent = {stored.location: stored.sha256 for stored in result.stored}
        changed = [
            location for location, file in items.items() if location in sent and sent[location] != file.package.sha256
        ]
        for location in changed:
            why = "it is stored, but the repository's metadata do not name it"
            error = IntegrityError(f"{location.name} changed after it was inspected", why=why, remedy="Run this again.")
            self._uploader.add_failed([_failed(location, error)])
        good = sent.keys() - set(changed)
        return [file for file in files if file.stored is not None or file.item(self._kind.pool).destination in good]

    def _show(self, own: Sequence[OwnFile]) -> None:
        """Count the metadata that this job's packages alone would get."""
        metadata = self._compose([file.package for file in own], None)
        for file in (*metadata.files, *metadata.plain):
            size_bytes = file.path.stat().st_size
            self._uploader.add_stored(StoredObject(file.location, size_bytes, "", file.content_type, "dry-run"))
        commit_bytes = len(metadata.commit)
        commit = StoredObject(self._kind.commit, commit_bytes, "", metadata.commit_content_type, "dry-run")
        self._uploader.add_stored(commit)

    def _publish(self, own: list[OwnFile]) -> None:
        metadata = self._until_it_wins(lambda: self._round(own))
        if metadata is not None:
            for file in metadata.plain:
                self._until_it_wins(partial(self._store_plain, file, metadata.commit))

    def _until_it_wins(self, go: Callable[[], _T]) -> _T:
        """Call `go` again where another job was faster. Raises what it raises, in the end also ConflictError."""
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ConflictError),
            stop=tenacity.stop_after_attempt(MAX_ROUNDS),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=_MAX_PAUSE_SECONDS),
            sleep=self._context.cancel.sleep,
            reraise=True,
        )
        return retrying(go)

    def _round(self, own: list[OwnFile]) -> Metadata | None:
        """One round, which takes out of `own` what cannot be named; None where nothing is left to be named.

        Raises ConflictError where another job was faster.
        """
        self._context.cancel.check()
        reader = StateReader(self._uploader.backend, self._kind, self._names, self._context.cancel)
        with folder_in(self._scratch) as folder:
            state = reader.read(folder)
            if state.damage:
                self._warn(f"the repository's metadata were made again of the packages that are stored: {state.damage}")
            self._warn_of(state.doubted, "entry", "entries")
            self._settle(own, state)
            merged = merge(state.packages, [file.package for file in own], state.pool)
            for package in merged.missing:
                own[:] = [file for file in own if file.package != package]
                self._uploader.add_failed([_failed(self._kind.pool.child(package.file_name), _replaced(package))])
            if merged.gone:
                self._warn(f"the metadata named what is not stored any more: {_some(merged.gone)}")
            packages = with_found(merged.packages, self._unnamed.found(reader, merged.unnamed, folder))
            self._warn_of(self._unnamed.unsound, "file", "files")
        if not packages and state.commit is None:
            return None
        return self._commit(state, packages)

    def _commit(self, state: State, packages: Sequence[Package]) -> Metadata:
        backend, cancel = self._uploader.backend, self._context.cancel
        metadata = self._compose(packages, state)
        lacking = [file for file in metadata.files if state.sizes.get(file.location) != file.path.stat().st_size]
        result = backend.upload(
            [UploadItem(file.path, file.location, file.content_type) for file in lacking],
            origin=self._context.origin,
            cancel=cancel,
        )
        counted = {stored.location for stored in self._uploader.result.stored}
        sent = tuple(stored for stored in result.stored if stored.location not in counted)
        self._uploader.result += UploadResult(stored=sent)  # they stay, also where another job is faster
        if result.failed:
            raise result.failed[0].error
        commit, content_type = metadata.commit, metadata.commit_content_type
        if state.commit is not None and commit == state.commit.data:
            stored = unchanged(self._context, Write(commit, content_type), self._kind.commit)
        else:
            etag = state.commit.etag if state.commit is not None else ""
            stored = backend.replace(self._kind.commit, commit, content_type, etag=etag, cancel=cancel)
        self._uploader.add_stored(stored)
        return metadata

    def _compose(self, packages: Sequence[Package], state: State | None) -> Metadata:
        try:
            folder = Path(tempfile.mkdtemp(dir=self._scratch))  # its files are needed after the round
        except OSError as error:
            raise local_file_error(self._scratch, "written", error) from error
        previous = state.commit.data if state is not None and state.commit is not None else None
        now = datetime.datetime.now(datetime.UTC)
        return self._kind.compose(packages, folder, previous=previous, now=now, label=self._label)

    def _store_plain(self, file: MetadataFile, commit: bytes) -> None:
        """Store a copy under its fixed name, unless another job's commit has replaced ours, which then sees to it.

        What is there is read before the commit: so an older copy never replaces a newer one. Raises ConflictError.
        """
        backend, cancel = self._uploader.backend, self._context.cancel
        if file.path.stat().st_size > SMALL_OBJECT_LIMIT_BYTES:
            self._warn(f"{file.location.name} is too large to be stored a second time under its fixed name")
            return
        write = Write(file.path.read_bytes(), file.content_type)
        there = backend.read_small(file.location, cancel=cancel)
        if there is not None and there.data == write.data:
            self._uploader.add_stored(unchanged(self._context, write, file.location))
            return
        current = backend.read_small(self._kind.commit, cancel=cancel)
        if current is not None and current.data == commit:
            etag = there.etag if there is not None else ""
            stored = backend.replace(file.location, write.data, write.content_type, etag=etag, cancel=cancel)
            self._uploader.add_stored(stored)

    def _settle(self, own: list[OwnFile], state: State) -> None:
        """Deal with those of `own` of which another job published another build since they got their names.

        Such a file is stored, under a name of its own; this is about which of the two is offered.
        """
        offered = offered_packages(state)
        for file in tuple(own):
            other = offered.get(file.package.identity)
            if other is None or other.sha256 in {file.package.sha256, file.replaces}:
                continue
            match self._context.settings.on_conflict:
                case "overwrite":
                    name = file.package.file_name
                    self._warn(f"another job published {other.file_name} meanwhile: the repository now offers {name}")
                case "skip":
                    own.remove(file)
                    self._uploader.result += UploadResult(conflicts=(skipped(self._kind, other),))
                case "error":
                    own.remove(file)
                    self._uploader.add_failed([_failed(self._kind.pool.child(file.package.file_name), _beaten(other))])

    def _warn_of(self, texts: Sequence[str], one: str, several: str) -> None:
        """Tell the first few, and how many there are."""
        for text in texts[:_SHOWN]:
            self._warn(text)
        more = len(texts) - _SHOWN
        if more > 0:
            self._warn(f"the same is so of {more:,} more {one if more == 1 else several} of the repository")

    def _warn(self, text: str) -> None:
        """Tell it once, however many rounds there are."""
        if text not in self._told:
            self._told.add(text)
            self._uploader.result += UploadResult(notices=(text,))


def _failed(location: StorageLocation, error: OutputsError) -> FailedItem:
    return FailedItem(location.relative_path, location, error)


def _replaced(package: Package) -> ConflictError:
    return ConflictError(
        f"{package.file_name} is stored, but not with this job's bytes",
        why="it was removed, or replaced by something that reserves no names",
        remedy="Run this again, or give the package another version.",
    )


def _beaten(other: Package) -> ConflictError:
    return ConflictError(
        f"another job published another build of this version meanwhile, {other.file_name}",
        why="it stays the one that the repository offers",
        remedy="Give the package another version, or choose on_conflict: overwrite or skip.",
    )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
