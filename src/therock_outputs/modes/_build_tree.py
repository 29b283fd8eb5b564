"""What both build modes take from a build tree: logs, their archives, the flattened summaries, the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, LocalFileError
from _therock_utils._files import is_junction, kind_fault, walk_files
from _therock_utils._folder import local_file_error
from _therock_utils._transfer_types import SkippedFile, UploadItem
from therock_outputs.log_archives import (
    CCACHE_ARCHIVE,
    NINJA_ARCHIVE,
    LogArchive,
    write_ccache_archive,
    write_ninja_archive,
)
from therock_outputs.modes._plan import PlannedPart

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._plan import IfMissing
    from therock_outputs.settings import Settings

MANIFEST: Final = "base/aux-overlay/build/therock_manifest.json"
PROFILE_DIR: Final = "therock-build-prof"
FLATTENED: Final = ("comp-summary.html", "comp-summary.md")
CCACHE_DIR: Final = "logs/ccache"
FILE: Final = "a file"
FOLDER: Final = "a folder"
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


def plan_logs(context: Context, tree: BuildTree, destination: StorageLocation, scratch: Path) -> PlannedPart:
    """Everything of the log folder, raw ccache logs as an archive, ninja logs of the whole build as an archive.

    Archives are written to `scratch`. `comp-summary.*` lie at the root of the logs a second time.
    Raises CancelledError, LocalFileError where an archive cannot be written.
    """
    missing = if_missing(context.settings, "warn")
    if not tree.exists:
        return PlannedPart("Build logs", absence=tree.absence, if_missing=missing)
    archives = _archives(context, tree, scratch)
    sources: dict[str, Path] = {}
    skipped: list[SkippedFile] = []
    absence = tree.why_absent(context, "logs", FOLDER)
    if absence and tree.kind("logs"):
        skipped.append(SkippedFile("logs", absence))
    elif tree.kind(CCACHE_DIR) not in {"", FILE, FOLDER}:
        skipped.append(SkippedFile(CCACHE_DIR, f"it is {tree.kind(CCACHE_DIR)}"))
    if not absence:
        settings = context.settings
        walked = walk_files(
            tree.logs,
            include=settings.include,
            exclude=[*settings.exclude, RAW_CCACHE],
            include_hidden=settings.include_hidden,
            key_prefix=destination.relative_path,
        )
        sources |= {name: path for path, name in walked.files}
        skipped += walked.skipped
    for archive in archives:
        folder = f"{CCACHE_DIR}/" if archive.path.name == CCACHE_ARCHIVE else ""
        skipped += [SkippedFile(folder + file.path, file.reason) for file in archive.skipped]
        if archive.member_count:
            sources[archive.path.name] = archive.path
    for name in FLATTENED:
        profiled = sources.get(f"{PROFILE_DIR}/{name}")
        if profiled is not None:
            sources[name] = profiled
    return PlannedPart(
        "Build logs",
        tuple(UploadItem(sources[name], destination.child(name)) for name in sorted(sources)),
        tuple(skipped),
        absence=absence or "there is no log file",
        if_missing=missing,
    )


def plan_manifest(context: Context, tree: BuildTree, destination: StorageLocation) -> PlannedPart:
    """The build's manifest."""
    absence = tree.why_absent(context, MANIFEST, FILE)
    return PlannedPart(
        "Manifest",
        () if absence else (UploadItem(tree.folder / MANIFEST, destination),),
        page=destination,
        absence=absence,
        if_missing=if_missing(context.settings, "warn"),
    )


def _archives(context: Context, tree: BuildTree, scratch: Path) -> list[LogArchive]:
    try:
        made = [write_ninja_archive(tree.folder, scratch / NINJA_ARCHIVE, cancel=context.cancel)]
        if tree.kind(CCACHE_DIR) == FOLDER:
            made.append(write_ccache_archive(tree.folder / CCACHE_DIR, scratch / CCACHE_ARCHIVE, cancel=context.cancel))
    except OSError as error:
        message = "an archive of logs could not be written"
        why = f"{scratch}: {error.strerror or type(error).__name__}"
        raise LocalFileError(message, why=why, remedy="Free some space, or point TMPDIR at a larger folder.") from error
    return [archive for archive in made if archive is not None]
