"""Extracted artifacts go to where the user wants them, by renames: each file is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._errors import LocalFileError
from _therock_utils._folder import TEMPORARY_NAME, Folder, check_names, local_file_error
from _therock_utils._keys import check_segment, quote
from therock_outputs._folder_entries import move, names
from therock_outputs._prebuilt_marker import MARKER_SUFFIX, Marker
from therock_outputs._tree_merge import Merge, description, is_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from therock_outputs.artifact_extraction import ExtractedArchive, Layout

_ABANDONED_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class _Touched:
    """A subtree that this fetch placed: `first` for this artifact; `marker` is what is to be written."""

    first: str
    marker: Marker


class Placement:
    """Places the artifacts of one fetch, one after another, in `output_dir`; `wanted` are the names of all of them.

    "extract": the folder `output_dir`/{artifact}, manifest included; one that is there is replaced as a whole.
    "flatten": what is in each subtree of the manifest, merged into `output_dir` itself.
    "bootstrap": each subtree merged into `output_dir`/{subtree}, and at the end (`finish`) a file {subtree}.prebuilt
    beside it that lists the artifacts which made it, also for a listed subtree that the archive does not have. What is
    there is removed when the subtree is first placed here, if its marker says that nothing but artifacts of `wanted`
    made it; else it is merged over. Several artifacts share one. A marker is away from then until `finish`.

    A merge replaces files and links by files and links, merges folders, and follows no symbolic link below
    `output_dir`. Of two artifacts with the same path and other content the later one wins, with a warning.

    One thread calls `place`; any may call `make_scratch`. As a context manager it closes itself. Memory: an entry for
    each path that was moved on its own (a folder that was not there before is moved as one).
    """

    def __init__(self, output_dir: Path, layout: Layout, *, wanted: Collection[str] = ()) -> None:
        self._output_dir = output_dir
        self._layout = layout
        self._wanted = frozenset(wanted)
        self._scratches: list[Path] = []
        self._owners: dict[str, str] = {}  # which artifact brought a path, and all below it that is not listed itself
        self._touched: dict[str, _Touched] = {}
        self._placed: set[Path] = set()
        self._had_content = False

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

    @property
    def had_content(self) -> bool:
        """Whether anything was in `output_dir` when the first scratch folder was made."""
        return self._had_content

    def make_scratch(self) -> Path:
        """A new empty folder in `output_dir`; archives are extracted to new folders in it.

        The first one also removes what a killed process left of its own more than a day ago. Raises LocalFileError.
        """
        try:
            self._output_dir.mkdir(parents=True, exist_ok=True)
            if not self._scratches:
                self._had_content = _look_around(self._output_dir)
            scratch = self._output_dir / f".therock-outputs-{secrets.token_hex(8)}.partial"
            scratch.mkdir(mode=0o700)
        except OSError as error:
            raise local_file_error(self._output_dir, "written", error) from error
        self._scratches.append(scratch)
        return scratch

    def close(self) -> None:
        """Remove the scratch folders and what is left in them; writes no marker."""
        while self._scratches:
            shutil.rmtree(self._scratches.pop(), ignore_errors=True)

    @property
    def has_touched_subtrees(self) -> bool:
        """Whether any subtree was changed, and so its marker is away until `finish`."""
        return bool(self._touched)

    def finish(self) -> Mapping[str, LocalFileError]:
        """Write the markers: call it only where every wanted artifact was placed.

        Returns the error of each artifact of which a marker could not be written.
        """
        errors: dict[str, LocalFileError] = {}
        for subtree, touched in sorted(self._touched.items()):
            path = self._output_dir / (subtree + MARKER_SUFFIX)
            *way, last = subtree.split("/")
            try:
                with Folder.open_below(self._output_dir, way, create=True) as folder:
                    touched.marker.write(folder, last)
                self._placed.add(path)
            except (LocalFileError, OSError) as error:
                told = error if isinstance(error, LocalFileError) else local_file_error(path, "written", error)
                errors |= dict.fromkeys({touched.first, *(self._wanted & touched.marker.artifacts)}, told)
        return errors

    def place(self, name: str, extracted: ExtractedArchive) -> tuple[str, ...]:
        """Move `extracted` (in a folder of `make_scratch`) to its place as the artifact `name`; returns warnings.

        Raises LocalFileError where a file or link lies where a folder is needed, or a folder where a file is, before
        anything is moved. Where the file system refuses later, the error says that the tree is incomplete: each file is
        whole, but some of this artifact's may be missing; in "bootstrap" the subtree then has no marker.
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
        for other, touched in self._touched.items():
            if f"{subtree}/".startswith(f"{other}/") != f"{other}/".startswith(f"{subtree}/"):
                raise LocalFileError(
                    f"the artifact {quote(merge.artifact)} cannot be placed",
                    why=f"its subtree {quote(subtree)} and {quote(other)} of {quote(touched.first)} lie in each other",
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
            if found is None or (subtree not in self._touched and self._is_to_be_replaced(target, last)):
                return
            if source is not None and source.lookup(last) is not None:
                merge.check(source, target, [last], _prefix(way))

    def _place_subtree(self, merge: Merge, subtree: str, folder: Path) -> None:
        *way, last = subtree.split("/")
        with (
            merge.opened(folder, way) as source,
            Folder.open_below(self._output_dir, way, create=True) as target,
        ):
            touched = self._touched.get(subtree) or _Touched(merge.artifact, self._take_over(target, last))
            self._touched[subtree] = _Touched(touched.first, touched.marker.with_artifact(merge.artifact))
            if source is not None and source.lookup(last) is not None:
                merge.apply(source, target, [last], _prefix(way))
        self._placed.add(self._output_dir / subtree)

    def _take_over(self, parent: Folder, last: str) -> Marker:
        """Remove the marker, and the subtree if it is to be replaced; returns what is known of the rest."""
        is_replaced = self._is_to_be_replaced(parent, last)
        former = Marker.read(parent, last)
        is_there = parent.lookup(last) is not None
        parent.remove(last + MARKER_SUFFIX)  # before the subtree: it is never there for one that is not complete
        if is_replaced:
            with Folder.open(self.make_scratch()) as scratch:
                move(parent, last, scratch, last)
            shutil.rmtree(scratch.path, ignore_errors=True)
        if is_replaced:
            return Marker()
        if not is_there:
            return Marker(former.artifacts) if former is not None else Marker()
        return former or Marker(has_other_content=True)

    def _is_to_be_replaced(self, parent: Folder, last: str) -> bool:
        """Whether a subtree is there that nothing but artifacts of this fetch made."""
        found = parent.lookup(last)
        if found is None or not is_folder(found):
            return False
        marker = Marker.read(parent, last)
        return marker is not None and not marker.has_other_content and marker.artifacts <= self._wanted


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


def _look_around(output_dir: Path) -> bool:
    """Whether anything is there but files that are still being written.

    Removes scratch folders that nobody has touched for a day; what cannot be removed stays.
    """
    latest = time.time() - _ABANDONED_SECONDS
    has_content = False
    with os.scandir(output_dir) as entries:
        for entry in entries:
            is_temporary = TEMPORARY_NAME.fullmatch(entry.name) is not None
            has_content = has_content or not is_temporary
            if not is_temporary or not entry.is_dir(follow_symlinks=False):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < latest:
                    shutil.rmtree(entry.path, ignore_errors=True)
    return has_content
