"""What both build modes take from a build tree: logs, their archives, the flattened summaries, the manifest."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, LocalFileError
from _therock_utils._files import is_junction, kind_fault, walk_files
from _therock_utils._folder import local_file_error
from _therock_utils._globs import compile_filter
from _therock_utils._transfer_types import FailedItem, SkippedFile, UploadItem
from therock_outputs.log_archives import (
    CCACHE_ARCHIVE,
    NINJA_ARCHIVE,
    write_ccache_archive,
    write_ninja_archive,
)
from therock_outputs.modes._plan import PlannedPart, planned

if TYPE_CHECKING:
    from collections.abc import Callable

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.log_archives import LogArchive
    from therock_outputs.modes._plan import IfMissing
    from therock_outputs.settings import Settings

MANIFEST: Final = "base/aux-overlay/build/therock_manifest.json"
PROFILE_DIR: Final = "therock-build-prof"
FLATTENED: Final = ("comp-summary.html", "comp-summary.md")
CCACHE_DIR: Final = "logs/ccache"
FILE: Final = "a file"
FOLDER: Final = "a folder"
_SHOWN_CHANGED: Final = 5
RAW_CCACHE: Final = "ccache/**"
"""Raw ccache logs, up to 800 MB: only their archive is stored."""


@dataclass(frozen=True, slots=True)
class BuildTree:
    """A build directory, and what is said where it is not there."""

    folder: Path
    exists: bool
    absence: str

    @classmethod
    def find(cls, context: Context) -> BuildTree:
        """Resolve `build_dir`. A missing one is a finding, not an error: the step runs after failed builds too."""
        given = context.settings.build_dir
        folder = context.workspace.resolve(given, what="build_dir")
        try:
            if folder.is_dir():
                return cls(folder, exists=True, absence="")
            exists = folder.exists()
        except OSError as error:
            raise local_file_error(folder, "looked at", error) from error
        if exists:
            message = f"build_dir {context.workspace.shown(folder)} is not a folder"
            raise InputError(message)
        hint = context.workspace.hint(given, folder)
        absence = f"there is no build directory {context.workspace.shown(folder)}"
        return cls(folder, exists=False, absence=f"{absence}. {hint}" if hint else absence)

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.folder / "logs"

    def kind(self, relative: str) -> str:
        """What lies at the "/"-separated path `relative` in the tree: "", FILE, FOLDER, or something else in words.

        A link on the way counts as what lies there: what it leads to may be anything, and is not the build's. Raises
        LocalFileError where it cannot be looked at.
        """
        path, found = self.folder, FOLDER
        for name in relative.split("/"):
            path /= name
            try:
                status = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                return ""
            except OSError as error:
                raise local_file_error(path, "looked at", error) from error
            found = "a junction" if is_junction(status) else kind_fault(status.st_mode) or FILE
            if found in {"a junction", "a symbolic link"}:
                break
        return found

    def why_absent(self, context: Context, relative: str, wanted: str) -> str:
        """Why there is no `wanted` at `relative`, for people; "" where there is."""
        found = self.kind(relative) if self.exists else ""
        if self.absence or found == wanted:
            return self.absence
        shown = context.workspace.shown(self.folder / relative)
        return f"{shown} is {found}, not {wanted}" if found else f"there is no {shown}"


def if_missing(settings: Settings, default: IfMissing) -> IfMissing:
    """What to do where there is nothing to store: as told, else `default`."""
    return settings.if_no_files_found or default


def plan_logs(
    context: Context, tree: BuildTree, destination: StorageLocation, scratch: contextlib.ExitStack
) -> PlannedPart:
    """Everything of the log folder, raw ccache logs as an archive, ninja logs of the whole build as an archive.

    Archives are written to a temporary folder that lives as long as `scratch`; one that cannot be written is a failed
    item. `comp-summary.*` lie at the root of the logs a second time. Raises CancelledError, InputError for a bad
    pattern.
    """
    return planned("Build logs", destination, lambda: _plan_logs(context, tree, destination, scratch))


def _plan_logs(
    context: Context, tree: BuildTree, destination: StorageLocation, scratch: contextlib.ExitStack
) -> PlannedPart:
    settings = context.settings
    missing = if_missing(settings, "warn")
    chosen = compile_filter(settings.include, settings.exclude)
    if not tree.exists:
        return PlannedPart("Build logs", absence=tree.absence, if_missing=missing)
    absence = tree.why_absent(context, "logs", FOLDER)
    sources: dict[str, Path] = {}
    skipped: list[SkippedFile] = []
    if absence and tree.kind("logs"):
        skipped.append(SkippedFile("logs", absence))
    elif tree.kind(CCACHE_DIR) not in {"", FILE, FOLDER}:
        skipped.append(SkippedFile(CCACHE_DIR, f"it is {tree.kind(CCACHE_DIR)}"))
    if not absence:
        walked = walk_files(
            tree.logs,
            include=settings.include,
            exclude=[*settings.exclude, RAW_CCACHE],
            include_hidden=settings.include_hidden,
            key_prefix=destination.relative_path,
        )
        sources |= {name: path for path, name in walked.files}
        skipped += [SkippedFile(f"logs/{file.path}", file.reason) for file in walked.skipped]
    archives = _Archives(context, scratch)
    if chosen.selects(NINJA_ARCHIVE):
        archives.add(NINJA_ARCHIVE, write_ninja_archive, tree.folder)
    if chosen.selects(CCACHE_ARCHIVE) and tree.kind(CCACHE_DIR) == FOLDER:
        archives.add(CCACHE_ARCHIVE, write_ccache_archive, tree.folder / CCACHE_DIR, below=f"{CCACHE_DIR}/")
    sources |= archives.paths
    told = {file.path for file in skipped}  # the archives' own walks meet the same folders
    for name in FLATTENED:
        profiled = sources.get(f"{PROFILE_DIR}/{name}")
        if profiled is not None:
            sources[name] = profiled
    return PlannedPart(
        "Build logs",
        tuple(UploadItem(sources[name], destination.child(name)) for name in sorted(sources)),
        (*skipped, *(file for file in archives.skipped if file.path not in told)),
        failed=tuple(FailedItem(name, destination.child(name), error) for name, error in archives.failed),
        notices=tuple(archives.notices),
        absence=absence or "there is no log file",
        if_missing=missing,
    )


def plan_manifest(context: Context, tree: BuildTree, destination: StorageLocation) -> PlannedPart:
    """The build's manifest."""
    return planned("Manifest", destination, lambda: _plan_manifest(context, tree, destination))


def _plan_manifest(context: Context, tree: BuildTree, destination: StorageLocation) -> PlannedPart:
    absence = tree.why_absent(context, MANIFEST, FILE)
    return PlannedPart(
        "Manifest",
        () if absence else (UploadItem(tree.folder / MANIFEST, destination),),
        page=destination,
        absence=absence,
        if_missing=if_missing(context.settings, "warn"),
    )


class _Archives:
    """Archives of logs as they are made, each in a temporary folder that lives as long as `scratch`."""

    def __init__(self, context: Context, scratch: contextlib.ExitStack) -> None:
        self.paths: dict[str, Path] = {}
        self.skipped: list[SkippedFile] = []
        self.failed: list[tuple[str, LocalFileError]] = []
        self.notices: list[str] = []
        self._cancel = context.cancel
        self._scratch = scratch

    def add(self, name: str, write: Callable[..., LogArchive | None], source: Path, *, below: str = "") -> None:
        """Make one archive of `source`, which is the build's folder `below`. Raises CancelledError."""
        target = None
        try:
            temporary = tempfile.TemporaryDirectory(prefix="therock-outputs-", ignore_cleanup_errors=True)
            target = Path(self._scratch.enter_context(temporary), name)
            archive = write(source, target, cancel=self._cancel)
        except OSError as error:
            if target is not None:  # the room that it took may be wanted by the rest
                with contextlib.suppress(OSError):
                    target.unlink()
            self.failed.append((name, _unwritable(name, error)))
            return
        if archive is None:
            return
        self.skipped += [SkippedFile(below + file.path, file.reason) for file in archive.skipped]
        if archive.member_count:
            self.paths[name] = archive.path
        if archive.changed:
            shown, more = archive.changed[:_SHOWN_CHANGED], len(archive.changed) - _SHOWN_CHANGED
            names = ", ".join(below + changed for changed in shown) + (f" and {more:,} more" if more > 0 else "")
            self.notices.append(f"{name}: archived as far as it was, because it changed meanwhile: {names}")


def _unwritable(name: str, error: OSError) -> LocalFileError:
    return LocalFileError(
        f"the archive {name} could not be written",
        why=error.strerror or type(error).__name__,
        remedy="Free some space, or point TMPDIR at a larger folder.",
    )
