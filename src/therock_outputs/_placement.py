"""Extracted artifacts go to where the user wants them, by renames: each file is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._errors import LocalFileError
from _therock_utils._folder import TEMPORARY_NAME, Folder, check_names, local_file_error
from _therock_utils._keys import check_segment, quote
from therock_outputs._folder_entries import move, names
from therock_outputs._tree_merge import Merge, description, is_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from therock_outputs.artifact_extraction import ExtractedArchive, Layout

MARKER_SUFFIX: Final = ".prebuilt"

_ABANDONED_SECONDS: Final = 24 * 3600


class Placement:
    """Places the artifacts of one fetch, one after another, in `output_dir`.

    "extract": the folder `output_dir`/{artifact}, manifest included; one that is there is replaced as a whole.
    "flatten": what is in each subtree of the manifest, merged into `output_dir` itself.
    "bootstrap": each subtree merged into `output_dir`/{subtree}, and then an empty file {subtree}.prebuilt beside it,
    also for a listed subtree that the archive does not have. What an earlier fetch put into a subtree (its marker is
    there) is removed when the subtree is first placed here; several artifacts share one.

    A merge replaces files and links by files and links, merges folders, and follows no symbolic link below
    `output_dir`. Of two artifacts with the same path and other content the later one wins, with a warning.

    One thread calls `place`; any may call `make_scratch`. As a context manager it closes itself. Memory: an entry for
    each path that was moved on its own (a folder that was not there before is moved as one).
    """

    def __init__(self, output_dir: Path, layout: Layout) -> None:
        self._output_dir = output_dir
        self._layout = layout
        self._scratches: list[Path] = []
        self._owners: dict[str, str] = {}  # which artifact brought a path, and all below it that is not listed itself
        self._subtrees: dict[str, str] = {}  # those that were placed, and for which artifact first
        self._placed: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def placed(self) -> tuple[Path, ...]:
        """Sorted: what was made or merged into: artifact folders, subtrees and markers, or entries of `output_dir`."""
        return tuple(sorted(self._placed))

    def make_scratch(self) -> Path:
        """A new empty folder in `output_dir`; archives are extracted to new folders in it.

        The first one also removes what a killed process left of its own more than a day ago. Raises LocalFileError.
        """
        try:
            self._output_dir.mkdir(parents=True, exist_ok=True)
            if not self._scratches:
                _remove_abandoned(self._output_dir)
            scratch = self._output_dir / f".therock-outputs-{secrets.token_hex(8)}.partial"
            scratch.mkdir(mode=0o700)
        except OSError as error:
            raise local_file_error(self._output_dir, "written", error) from error
        self._scratches.append(scratch)
        return scratch

    def close(self) -> None:
        """Remove the scratch folders and what is left in them."""
        while self._scratches:
            shutil.rmtree(self._scratches.pop(), ignore_errors=True)

    def place(self, name: str, extracted: ExtractedArchive) -> tuple[str, ...]:
        """Move `extracted` (in a folder of `make_scratch`) to its place as the artifact `name`; returns warnings.

        Raises LocalFileError where a file or link lies where a folder is needed, or a folder where a file is, before
        anything is moved. Where the file system refuses later, the error says that the tree is incomplete: each file is
        whole, but some of this artifact's may be missing, and in "bootstrap" the subtree then has no marker.
        """
        check_segment(name, "artifact name")
        check_names(self._output_dir / name, (name,))
        try:
            if self._layout == "extract":
                self._swap(name, extracted.folder)
                return ()
            if self._layout == "flatten":
                return self._flatten(name, extracted)
            return self._bootstrap(name, extracted)
        except OSError as error:
            raise local_file_error(self._output_dir, "written", error) from error
        finally:
            shutil.rmtree(extracted.folder, ignore_errors=True)

    def _swap(self, name: str, folder: Path) -> None:
        with Folder.open(self._output_dir) as output, Folder.open(folder.parent) as parent:
            found = output.lookup(name)
            if found is None:
                move(parent, folder.name, output, name)
            elif is_folder(found):
                with Folder.open(self.make_scratch()) as scratch:
                    move(output, name, scratch, name)
                    try:
                        move(parent, folder.name, output, name)
                    except OSError:
                        move(scratch, name, output, name)
                        raise
                shutil.rmtree(scratch.path, ignore_errors=True)
            else:
                raise Merge(name, {}).conflict(name, description(found), "a folder")
        self._placed.add(self._output_dir / name)

    def _flatten(self, name: str, extracted: ExtractedArchive) -> tuple[str, ...]:
        merged, doubled = self._without_subtrees(name, extracted)
        merge = Merge(name, self._owners)
        with Folder.open(merged) as source, Folder.open(self._output_dir) as output:
            top = names(source)
            merge.check(source, output, top)
            with _telling_what_is_left(self._output_dir, name):
                merge.apply(source, output, top)
            self._placed.update(self._output_dir / entry for entry in top)
        return (*doubled, *merge.warnings())

    def _without_subtrees(self, name: str, extracted: ExtractedArchive) -> tuple[Path, tuple[str, ...]]:
        """Merge the artifact's subtrees in a scratch folder, so that what they hold against each other shows first."""
        merged = self.make_scratch()
        owners: dict[str, str] = {}
        warnings: list[str] = []
        for subtree in extracted.subtrees:
            merge = Merge(f"{name} ({subtree})", owners)
            with contextlib.suppress(FileNotFoundError):  # listed, and not in the archive
                with (
                    Folder.open_below(extracted.folder, subtree.split("/")) as source,
                    Folder.open(merged) as target,
                ):
                    entries = names(source)
                    merge.check(source, target, entries)
                    merge.apply(source, target, entries)
                warnings += merge.warnings()
        return merged, tuple(warnings)

    def _bootstrap(self, name: str, extracted: ExtractedArchive) -> tuple[str, ...]:
        merge = Merge(name, self._owners)
        for subtree in extracted.subtrees:
            self._check_subtree(merge, subtree, extracted.folder)
        with _telling_what_is_left(self._output_dir, name):
            for subtree in extracted.subtrees:
                self._place_subtree(merge, subtree, extracted.folder)
        return merge.warnings()

    def _check_subtree(self, merge: Merge, subtree: str, folder: Path) -> None:
        for other, artifact in self._subtrees.items():
            if f"{subtree}/".startswith(f"{other}/") != f"{other}/".startswith(f"{subtree}/"):
                raise LocalFileError(
                    f"the artifact {quote(merge.artifact)} cannot be placed",
                    why=f"its subtree {quote(subtree)} and {quote(other)} of {quote(artifact)} lie in each other",
                    remedy="Fetch the two into different folders.",
                )
        *way, last = subtree.split("/")
        with merge.opened(folder, way) as source, merge.opened(self._output_dir, way) as target:
            if target is None:
                return
            marker = target.lookup(last + MARKER_SUFFIX)
            if marker is not None and is_folder(marker):
                raise merge.conflict(subtree + MARKER_SUFFIX, "a folder", "a file")
            found = target.lookup(last)
            if found is None or (is_folder(found) and self._is_left_over(subtree, target, last)):
                return
            if source is not None and source.lookup(last) is not None:
                merge.check(source, target, [last], _prefix(way))

    def _place_subtree(self, merge: Merge, subtree: str, folder: Path) -> None:
        *way, last = subtree.split("/")
        marker = last + MARKER_SUFFIX
        with (
            merge.opened(folder, way) as source,
            Folder.open_below(self._output_dir, way, create=True) as target,
        ):
            if self._is_left_over(subtree, target, last) and target.lookup(last) is not None:
                with Folder.open(self.make_scratch()) as scratch:
                    move(target, last, scratch, last)
                shutil.rmtree(scratch.path, ignore_errors=True)
            target.remove(marker)  # while the subtree is not complete
            if source is not None and source.lookup(last) is not None:
                merge.apply(source, target, [last], _prefix(way))
            os.close(target.open_new(marker))
        self._subtrees.setdefault(subtree, merge.artifact)
        self._placed |= {self._output_dir / subtree, self._output_dir / (subtree + MARKER_SUFFIX)}

    def _is_left_over(self, subtree: str, parent: Folder, last: str) -> bool:
        return subtree not in self._subtrees and parent.lookup(last + MARKER_SUFFIX) is not None


def _prefix(way: Sequence[str]) -> str:
    return "".join(f"{segment}/" for segment in way)


@contextlib.contextmanager
def _telling_what_is_left(output_dir: Path, artifact: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        told = local_file_error(output_dir, "written", error)
        why = f"{told.why}; each file is whole, but the tree is incomplete: {quote(artifact)} is there in part"
        raise LocalFileError(told.what, why=why, remedy=told.remedy) from error


def _remove_abandoned(output_dir: Path) -> None:
    """Remove scratch folders that nobody has touched for a day; what cannot be removed stays."""
    latest = time.time() - _ABANDONED_SECONDS
    with os.scandir(output_dir) as entries:
        for entry in entries:
            if not TEMPORARY_NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < latest:
                    shutil.rmtree(entry.path, ignore_errors=True)
