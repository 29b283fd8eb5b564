"""Mode upload-packages: deb or rpm packages join the run's repository, which apt and dnf install from."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import os
import shlex
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IllegalLocationError, InputError, OutputsError
from _therock_utils._keys import quote, segment_fault
from _therock_utils._transfer_types import FailedItem, UploadItem, UploadResult
from _therock_utils.s3_buckets import parse_release_type
from therock_outputs.modes._pages import FolderPage, is_left_to_server, store_page
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.modes._repository import Publisher
from therock_outputs.modes._repository_files import Placed, inspect_files, place_files
from therock_outputs.modes._repository_names import NameRecords
from therock_outputs.modes._repository_state import StateReader
from therock_outputs.modes._scratch import folder_in, make_scratch
from therock_outputs.modes._source import SourceFolder
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.package_snippets import install_snippet
from therock_outputs.report import Snippet, in_one_line
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._files import WalkResult
    from _therock_utils._transfer_types import SkippedFile
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._repository_files import OwnFile
    from therock_outputs.modes._repository_state import State
    from therock_outputs.package_repository import RepositoryKind
    from therock_outputs.report import Part, Report

OUTPUTS: Final[Mapping[str, str]] = {
    "package_repository_url": "What apt's sources.list or dnf's baseurl takes: the repository's folder, for rpm with "
    "/x86_64. Empty where none was published.",
    "packaging_logs_url": "Page of the packaging logs; the server makes it where `index` is not write. Empty where no "
    "log was stored.",
}

PACKAGES: Final = "Packages"
METADATA: Final = "Repository metadata"
LOGS: Final = "Packaging logs"
_LOG_FOLDER: Final = "logs/"
_EXTENSIONS: Final[Mapping[str, str]] = {"deb": ".deb", "rpm": ".rpm"}


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use, LocalFileError where `path` cannot be read."""
    settings = context.settings
    root = single_root(context.target)
    if not settings.package_type:
        raise InputError("mode upload-packages needs package_type", remedy="Give package_type: deb or rpm.")
    kind = _kind(root, settings.package_type)
    by_server = is_left_to_server(context, root)
    writes_pages = not by_server and settings.index != "none"
    page = root.native_linux_packages_index(settings.package_type)
    log_page = root.native_linux_packages_log_index(settings.package_type)
    context = dataclasses.replace(context, open_backend=functools.cache(context.open_backend))
    source = SourceFolder.find(context)
    with contextlib.ExitStack() as stack:
        plan = _Plan(context, kind, root, source, stack)
        packages = planned(PACKAGES, kind.pool, plan.packages).with_page(page, by_server=by_server)
        logs = plan.logs(log_page.parent).with_page(log_page, by_server=by_server)
        metadata = PlannedPart(METADATA, (UploadItem(b"", kind.commit),) if plan.publishes else ())
        subject = f"{settings.package_type} packages"

        def store(uploader: Uploader) -> None:
            uploader.result += UploadResult(conflicts=plan.placed.conflicts)
            uploader.store(logs.items)
            if writes_pages and logs.is_stored_in_part(uploader.result) and not logs.brings(log_page):
                store_page(uploader, FolderPage(log_page, f"Logs: {subject}"))
            if plan.publishes:
                label = parse_release_type(settings.release_type or settings.release_type_environment)
                Publisher(uploader, kind, plan.names, plan.scratch, label=label).run(plan.placed.files)
                if writes_pages and metadata.is_stored_in_part(uploader.result):
                    store_page(uploader, FolderPage(page, f"Packages: {subject}"))

        def outputs(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
            has_logs = any(item.destination in opens for item in logs.items)
            return {
                "package_repository_url": kind.url.https_url if kind.commit in opens else "",
                "packaging_logs_url": log_page.https_url if log_page in opens or (by_server and has_logs) else "",
            }

        report = upload_in_steps(
            context,
            source.folder,
            (packages, metadata, logs),
            store=store,
            outputs=outputs,
            snippets=lambda opens: _snippets(context, kind, plan.package_names) if kind.commit in opens else (),
            subject=subject,
        )
    return _with_counts(report, kind, plan.placed)


def _kind(root: WorkflowOutputRoot, package_type: str) -> RepositoryKind:
    """The kind of repository. Raises InputError where this machine or platform can have none."""
    location = root.native_linux_packages(package_type)
    if package_type == "deb":
        from therock_outputs.deb_repository import DebRepository

        return DebRepository(location)
    from therock_outputs.rpm_repository import RpmRepository

    return RpmRepository(location)


class _Plan:
    """What is to be stored. `placed` and `package_names` are those of `packages`."""

    def __init__(
        self,
        context: Context,
        kind: RepositoryKind,
        root: WorkflowOutputRoot,
        source: SourceFolder,
        stack: contextlib.ExitStack,
    ) -> None:
        """Reads the names in the folder; raises InputError, LocalFileError."""
        self._context = context
        self._kind = kind
        self._root = root
        self._source = source
        self._stack = stack
        self._walked: WalkResult | None = None
        if not source.absence:
            self._walked = source.walk(context, key_prefix=kind.pool.relative_path)
        self.placed = Placed()

    @functools.cached_property
    def names(self) -> NameRecords:
        """What the repository's file names stand for."""
        context = self._context
        location_of = functools.partial(self._root.package_name_record, context.settings.package_type)
        return NameRecords(context.open_backend(), location_of, context.cancel)

    @property
    def package_names(self) -> tuple[str, ...]:
        """The packages' names, each once."""
        return tuple(sorted({file.package.identity[0] for file in self.placed.files}))

    @property
    def publishes(self) -> bool:
        """Whether there is a repository to be seen to: of this job's packages, or of what stays in their place."""
        return bool(self.placed.files) or (self.placed.has_skipped and not self._context.settings.dry_run)

    def packages(self) -> PlannedPart:
        """Every package is inspected, and given its name in the pool. Raises CancelledError, and InputError."""
        context, kind = self._context, self._kind
        walked = self._walked.files if self._walked is not None else ()
        paths = [path for path, name in walked if self._is_package(name)]
        skipped = tuple(file for file in self._skipped if self._is_package(_name_of(file)))
        illegal = tuple(_illegal(kind, file) for file in skipped if self._is_regular(file))
        part = PlannedPart(
            PACKAGES,
            skipped=tuple(file for file in skipped if not self._is_regular(file)),
            notices=(*_deeper_notices(kind, [name for _, name in walked]), *_case_notices(kind, self._top_names())),
            absence=self._source.absence or self._absence(has_own=bool(paths or illegal)),
            if_missing=context.settings.if_no_files_found or "error",
        )
        inspected = inspect_files(context, kind, paths)
        if inspected.failed or illegal:
            failures = (*illegal, *inspected.failed)
            more = len(paths) + len(illegal) - len(failures)
            warnings = (f"{count(more, 'other package')} of this step not stored, either",) if more else ()
            return dataclasses.replace(part, failed=failures, warnings=warnings)
        try:
            self.placed = self._place(inspected.files)
        except OutputsError as error:
            context.cancel.check()
            failed = tuple(FailedItem(path.name, kind.pool.child(path.name), error) for path in paths)
            return dataclasses.replace(part, failed=failed)
        return dataclasses.replace(
            part,
            items=tuple(file.item(kind.pool) for file in self.placed.files),
            failed=self.placed.failed,
            warnings=self.placed.warnings,
            absence="" if self.placed.has_skipped else part.absence,
        )

    def logs(self, destination: StorageLocation) -> PlannedPart:
        """All files of the folder logs."""
        if self._walked is None:
            return PlannedPart(LOGS)
        return PlannedPart(
            LOGS,
            tuple(
                UploadItem(path, destination.child(name.removeprefix(_LOG_FOLDER)))
                for path, name in self._walked.files
                if _is_log(name)
            ),
            tuple(file for file in self._skipped if _is_log(f"{_name_of(file)}/")),
            absence="there is no folder logs beside the packages, or nothing in it",
            if_missing="ignore",
        )

    @functools.cached_property
    def scratch(self) -> Path:
        """A folder for temporary files, below RUNNER_TEMP where that can be written. Raises LocalFileError."""
        runner_temp = self._context.settings.runner_temp
        return make_scratch(runner_temp, self._stack, purpose="the repository's metadata")

    @property
    def _skipped(self) -> tuple[SkippedFile, ...]:
        return self._walked.skipped if self._walked is not None else ()

    def _top_names(self) -> list[str]:
        """All names in the folder itself, whether they can be stored or not."""
        files = [name for _, name in self._walked.files] if self._walked is not None else []
        return [name for name in (*files, *map(_name_of, self._skipped)) if "/" not in name]

    def _is_package(self, name: str) -> bool:
        return name.endswith(self._kind.extension) and "/" not in name

    def _is_regular(self, file: SkippedFile) -> bool:
        """Whether it was left out for its name: regular files are left out for nothing else."""
        try:
            return stat.S_ISREG((self._source.folder / _name_of(file)).lstat().st_mode)
        except OSError:
            return False

    def _absence(self, *, has_own: bool) -> str:
        """What is said where there is no package. Raises InputError where those of the other type are there."""
        settings, extension = self._context.settings, self._kind.extension
        what = f"there is no file *{extension} in {settings.path}"
        other_type = "rpm" if settings.package_type == "deb" else "deb"
        others = [name for name in self._top_names() if name.endswith(_EXTENSIONS[other_type])]
        if has_own or not others:
            return what
        lie = "lies" if len(others) == 1 else "lie"
        why = f"{len(others):,} *{_EXTENSIONS[other_type]} {lie} there: package_type: {other_type}?"
        if settings.if_no_files_found in {"warn", "ignore"}:
            return f"{what}; {why}"
        raise InputError(what, why=why, remedy="If that is expected here, set if_no_files_found: warn (or ignore).")

    def _place(self, files: Sequence[OwnFile]) -> Placed:
        """Names in the pool. Raises OutputsErrors; a dry run goes on where it cannot be looked what is stored."""
        context, kind = self._context, self._kind
        if not files:
            return Placed()
        try:
            return place_files(context, kind, files, state=self._state(), names=self.names)
        except OutputsError as error:
            context.cancel.check()
            if not context.settings.dry_run:
                raise
            untold = f"what the repository has cannot be read, so conflicts are not told: {in_one_line(error)}"
            return Placed(tuple(files), warnings=(untold,))

    def _state(self) -> State:
        context = self._context
        with folder_in(self.scratch) as folder:
            return StateReader(context.open_backend(), self._kind, self.names, context.cancel).read(folder)


def _name_of(file: SkippedFile) -> str:
    """The file's own name: one that can be no key is told as Python writes a text."""
    if file.path[:1] in {"'", '"'}:
        with contextlib.suppress(ValueError, SyntaxError):
            name = ast.literal_eval(file.path)
            if isinstance(name, str) and any(map(segment_fault, name.split("/"))):
                return name
    return file.path


def _illegal(kind: RepositoryKind, file: SkippedFile) -> FailedItem:
    what = f"the package {quote(_name_of(file))} cannot be stored"
    error = IllegalLocationError(what, why=file.reason, remedy="Rename it, or leave it out with exclude.")
    return FailedItem(ascii(_name_of(file)), kind.pool, error)


def _deeper_notices(kind: RepositoryKind, names: Sequence[str]) -> tuple[str, ...]:
    deeper = [name for name in names if name.endswith(kind.extension) and "/" in name and not _is_log(name)]
    if not deeper:
        return ()
    found = count(len(deeper), "package")
    return (f"in sub-folders of path, whose packages are not stored: {found}, the first is {deeper[0]}",)


def _case_notices(kind: RepositoryKind, names: Sequence[str]) -> tuple[str, ...]:
    """About files whose names end in the extension but for upper and lower case."""
    extension = kind.extension
    found = sorted(name for name in names if name.lower().endswith(extension) and not name.endswith(extension))
    if not found:
        return ()
    told = f"{count(len(found), 'file')}, the first is {quote(found[0])}"
    return (f"not stored, because packages end in {extension} in lower case: {told}",)


def _with_counts(report: Report, kind: RepositoryKind, placed: Placed) -> Report:
    """The report with what was stored of the metadata in their row, of which no plan knows; and why nothing was."""
    folder = f"{kind.commit.parent.relative_path}/"
    sizes = {
        stored.location: stored.size_bytes
        for stored in report.result.stored
        if stored.location.relative_path.startswith(folder)
    }

    def counted(part: Part) -> Part:
        if part.what == METADATA and part.state == "stored":
            return dataclasses.replace(part, file_count=len(sizes), total_bytes=sum(sizes.values()))
        if part.what == PACKAGES and part.state == "nothing" and placed.has_skipped:
            return dataclasses.replace(part, state="left-out", note="the repository has other builds of all of them")
        return part

    return dataclasses.replace(report, parts=tuple(map(counted, report.parts)))


def _is_log(name: str) -> bool:
    return name.startswith(_LOG_FOLDER)


def _snippets(context: Context, kind: RepositoryKind, names: Sequence[str]) -> tuple[Snippet, ...]:
    """What a person runs to install the packages."""
    package_type = context.settings.package_type
    if not names or not package_type:
        return ()
    if context.staging_dir is None:
        return (install_snippet(package_type, names, url=kind.url.https_url),)
    path = Path(os.path.abspath(kind.url.local_path(context.staging_dir)))  # noqa: PTH100 - links stay as they are
    workspace = context.workspace
    if not workspace.other_names:
        return (install_snippet(package_type, names, folder=path),)
    if not path.is_relative_to(workspace.folder):
        return (Snippet("The repository, as this step's container sees it:", "sh", (shlex.quote(str(path)),)),)
    return (install_snippet(package_type, names, below_current=path.relative_to(workspace.folder)),)
