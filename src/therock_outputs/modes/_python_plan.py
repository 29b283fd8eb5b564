"""Which packages of a folder are stored where, decided and checked before anything is stored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import InputError, IntegrityError, LocalFileError, OutputsError
from _therock_utils._files import walk_files
from _therock_utils._folder import local_file_error
from _therock_utils._keys import quote
from _therock_utils._transfer_types import SkippedFile, UploadItem
from therock_outputs.modes._build_tree import if_missing
from therock_outputs.modes._plan import PlannedPart
from therock_outputs.modes._source import SourceFolder
from therock_outputs.python_packages import (
    METADATA_SUFFIX,
    SDIST_SUFFIX,
    WHEEL_SUFFIX,
    is_package,
    parse_package_name,
    read_package,
)
from therock_outputs.report import in_one_line
from therock_outputs.rewording import made_of_words, reworded
from therock_outputs.tarball_names import MULTIARCH, TARBALL_EXTENSION, TarballName
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _therock_utils._files import WalkResult
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.python_packages import PackageMetadata, PackageName
    from therock_outputs.settings import Settings

Layout = Literal["group", "flat", "families"]
"""Packages of one group (single-stage); of the run; of the run and, in folders of their own, of GPU families."""

DIST_NAME: Final = "dist"
_DEEPER: Final = "*/*/**"  # a family's folder is the deepest that is looked into
_SHOWN_FAULTS: Final = 5
_SHOWN_NOTICES: Final = 5
_OTHER_SDISTS: Final = (".zip", ".tar.bz2", ".tar.xz", ".tgz", ".egg")


@dataclass(frozen=True, slots=True)
class Package:
    """One package to store; `relative` is its path below the folder that it comes from."""

    path: Path
    relative: str
    family: str
    name: PackageName
    location: StorageLocation
    metadata: PackageMetadata

    @property
    def metadata_location(self) -> StorageLocation:
        """Where a wheel's metadata file lies (PEP 658)."""
        return self.location.parent.child(f"{self.location.name}{METADATA_SUFFIX}")


@dataclass(frozen=True, slots=True)
class PythonPlan:
    """The packages, by family ("": none) and name, and the folder whose listing shows all that they may lie beside."""

    layout: Layout
    base: StorageLocation
    folder: Path
    packages: tuple[Package, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    absence: str = ""

    @property
    def families(self) -> tuple[str, ...]:
        """The families that have packages of their own."""
        return tuple(sorted({package.family for package in self.packages if package.family}))

    def parts(self, settings: Settings) -> tuple[PlannedPart, ...]:
        """A row for each folder that packages go to; one row where there is none."""
        missing = if_missing(settings, "error")
        by_family: dict[str, list[UploadItem]] = {}
        for package in self.packages:
            by_family.setdefault(package.family, []).append(UploadItem(package.path, package.location))
        if not by_family:
            by_family[""] = []
        parts = [
            PlannedPart(self._title(family), tuple(items), absence=self.absence, if_missing=missing)
            for family, items in sorted(by_family.items())
        ]
        parts[0] = dataclasses.replace(parts[0], skipped=self.skipped, notices=self.notices, warnings=self.warnings)
        return tuple(parts)

    def _title(self, family: str) -> str:
        if family:
            return f"Python packages of {family}"
        return "Generic Python packages" if self.families else "Python packages"


def is_single_stage(settings: Settings) -> bool:
    """Whether packages go to their group's folder: told so, or there is a group. Raises InputError without a group."""
    if settings.layout == "single-stage" and not settings.artifact_group:
        message = "layout single-stage needs artifact_group"
        raise InputError(message, remedy="Give the matrix variant, e.g. artifact_group: gfx94X-dcgpu.")
    return settings.layout != "multi-arch" and bool(settings.artifact_group)


def is_family_name(name: str) -> bool:
    """Whether a GPU family can have that name: one that is known, or is of the form of those."""
    tarball = TarballName.parse(f"therock-dist-linux-{name}-0{TARBALL_EXTENSION}")
    return tarball is not None and tarball.family == name != MULTIARCH


def plan_packages(context: Context, root: WorkflowOutputRoot) -> PythonPlan:
    """Look through the folder `path` (its dist/, if there is one) and read every package's own metadata.

    Raises InputError for settings and names that cannot be used, IntegrityError where a package is broken,
    LocalFileError where something cannot be read, CancelledError.
    """
    settings = context.settings
    single_stage = is_single_stage(settings)
    if settings.family and not single_stage and not is_family_name(settings.family):
        raise InputError(
            f"family {quote(settings.family)} is not the name of one GPU family",
            why="the packages go to the folder of one family",
            remedy="Give one name, e.g. family: gfx94X-dcgpu, or lay each family's packages into a folder of its name.",
        )
    base = root.python_packages(settings.artifact_group if single_stage else "")
    source = _dist_of(SourceFolder.find(context))
    if source.absence:
        return PythonPlan("group" if single_stage else "flat", base, source.folder, absence=source.absence)
    walked = walk_files(
        source.folder,
        include=settings.include,
        exclude=[*settings.exclude, _DEEPER],
        include_hidden=False,
        key_prefix=base.relative_path,
    )
    chosen = _Chosen(family="" if single_stage else settings.family, has_families=not single_stage)
    chosen.choose(walked)
    packages = _inspected(context, root, chosen.files, base)
    families = any(package.family for package in packages)
    unused = ("input family is not used: the packages are those of artifact_group",)
    return PythonPlan(
        "group" if single_stage else "families" if families or settings.family else "flat",
        base,
        source.folder,
        packages,
        tuple(sorted(chosen.skipped, key=lambda file: file.path)),
        (*(unused if single_stage and settings.family else ()), *_notices(packages)),
        chosen.warnings,
        absence=f"there is no wheel and no sdist in {context.workspace.shown(source.folder)}",
    )


class _Chosen:
    """Packages, each with its path, its relative path and its family; and what is left out."""

    def __init__(self, *, family: str, has_families: bool) -> None:
        """`family`: that of all packages; else folders are families', if the layout `has_families`."""
        self.files: list[tuple[Path, str, str]] = []
        self.skipped: list[SkippedFile] = []
        self._family = family
        self._has_families = has_families and not family
        self._strays: dict[str, int] = {}

    def choose(self, walked: WalkResult) -> None:
        """Sort all files that were found."""
        self.skipped += walked.skipped
        for path, relative in walked.files:
            folder, _, name = relative.rpartition("/")
            if folder and not (self._has_families and is_family_name(folder)):
                self._leave_stray(relative, folder)
            elif is_package(name):
                self.files.append((path, relative, folder or self._family))
            else:
                self.skipped.append(SkippedFile(relative, _why_no_package(name)))

    def _leave_stray(self, relative: str, folder: str) -> None:
        if not is_package(relative):
            return
        if self._has_families:
            self._strays[folder] = self._strays.get(folder, 0) + 1
            reason = "its folder is named like no GPU family"
        else:
            reason = "it lies in a sub-folder, and these packages are of one folder"
        self.skipped.append(SkippedFile(relative, reason))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One for each folder that is no family's and has packages."""
        return tuple(
            f"{count(number, 'package')} in the folder {quote(folder)} left out: it is named like no GPU family"
            for folder, number in sorted(self._strays.items())
        )


def _why_no_package(name: str) -> str:
    if name.endswith(_OTHER_SDISTS):
        return "an sdist is a .tar.gz, nothing else is stored"
    if name.lower().endswith((WHEEL_SUFFIX, SDIST_SUFFIX)):
        return f"a package's name ends in {WHEEL_SUFFIX} or {SDIST_SUFFIX}, in small letters"
    return "it is no wheel and no sdist"


def _notices(packages: Iterable[Package]) -> tuple[str, ...]:
    """What of packages' metadata the pages do not say; of many the first few."""
    illegal = [package for package in packages if package.metadata.illegal_requires_python]
    notices = [
        f"the pages do not say the Requires-Python of {package.relative}, with which pip could not compare: "
        f"{quote(package.metadata.illegal_requires_python)}"
        for package in illegal[:_SHOWN_NOTICES]
    ]
    more = len(illegal) - _SHOWN_NOTICES
    return (*notices, *([f"the same of {count(more, 'more package')}"] if more > 0 else []))


def _dist_of(source: SourceFolder) -> SourceFolder:
    dist = source.folder / DIST_NAME
    try:
        return SourceFolder(dist) if not source.absence and dist.is_dir() and not dist.is_symlink() else source
    except OSError as error:
        raise local_file_error(dist, "looked at", error) from error


def _inspected(
    context: Context, root: WorkflowOutputRoot, chosen: Iterable[tuple[Path, str, str]], base: StorageLocation
) -> tuple[Package, ...]:
    """Each package with what it says of itself. Raises one error for all that are not what they should be."""
    packages: list[Package] = []
    faults: list[OutputsError] = []
    for path, relative, family in chosen:
        try:
            name = parse_package_name(path.name)
            folder = root.python_packages(family) if family else base
            metadata = read_package(path, name, cancel=context.cancel)
            packages.append(Package(path, relative, family, name, folder.child(name.file_name), metadata))
        except InputError as error:
            faults.append(
                reworded(error, f"{quote(relative)} is not a package's file name", why=error.why, remedy=error.remedy)
            )
        except IntegrityError as error:
            what = f"{relative.removesuffix(path.name)}{error.what}"  # which begins with the file's name
            faults.append(reworded(error, what, why=error.why, remedy=error.remedy))
        except LocalFileError as error:
            faults.append(error)
    if faults:
        raise _summed_up(faults)
    return tuple(sorted(packages, key=lambda package: (package.family, package.name)))


def _summed_up(faults: list[OutputsError]) -> OutputsError:
    """The only fault, or an error of the first one's kind that names the first few. Nothing was stored."""
    first = faults[0]
    if len(faults) == 1:
        return first
    shown = [in_one_line(fault) for fault in faults[:_SHOWN_FAULTS]]
    more = len(faults) - len(shown)
    return made_of_words(type(first))(
        f"{len(faults)} packages cannot be stored, so none was",
        why="; ".join(shown) + (f"; and {more} more" if more else ""),
        remedy=first.remedy,
    )
