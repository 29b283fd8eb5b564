"""What upload-artifacts finds in its folder, and what of it is to be made, stored or left out.

Of an artifact that is there as a directory and as an archive the directory counts: it is what the build wrote, and an
archive beside it may be that of an earlier build.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from _therock_utils._files import is_junction, kind_fault
from _therock_utils._folder import local_file_error
from _therock_utils._keys import segment_fault
from _therock_utils._sidecar import sidecar_name
from _therock_utils._transfer_types import SkippedFile, UploadItem
from _therock_utils.artifact_names import SIDECAR_EXTENSION, ArchiveName, ArtifactName, expand_families, matches_target
from therock_outputs.artifact_selection import choose, make_selection
from therock_outputs.modes._build_tree import FOLDER, BuildTree, if_missing
from therock_outputs.modes._plan import PlannedPart
from therock_outputs.modes._selectors import ALL_STAGES, DEFAULT_TOPOLOGY, topology_if_there
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context

ARTIFACTS: Final = "Artifacts"
_SHOWN_NAMES: Final = 10


@dataclass(frozen=True, slots=True)
class ArtifactFolder:
    """The folder of artifacts, and why it cannot be read, or "". `prefix`: its path in what messages are relative to.

    `tree` is the folder that paths are shown relative to.
    """

    folder: Path
    tree: BuildTree
    prefix: str
    absence: str

    @classmethod
    def find(cls, context: Context) -> ArtifactFolder:
        """`path`, else artifacts in the build tree. Raises InputError for a path that is no folder."""
        given, workspace = context.settings.path, context.workspace
        if not given:
            tree = BuildTree.find(context)
            return cls(tree.folder / "artifacts", tree, "artifacts/", tree.why_absent(context, "artifacts", FOLDER))
        folder = workspace.resolve(given, what="path")
        if folder.is_dir():
            return cls(folder, BuildTree(folder, exists=True, absence=""), "", "")
        if os.path.lexists(folder):
            raise InputError(f"path {workspace.shown(folder)} is not a folder")
        hint = workspace.hint(given, folder)
        absence = f"there is no folder {workspace.shown(folder)}" + (f". {hint}" if hint else "")
        return cls(folder, BuildTree(folder, exists=False, absence=absence), "", absence)


@dataclass(frozen=True, slots=True)
class StageArtifacts:
    """What a stage makes: `names` may come of it (None: whatever there is), `certain` must. `warning` is for people."""

    names: frozenset[str] | None = None
    certain: tuple[str, ...] = ()
    warning: str = ""

    @classmethod
    def of(cls, context: Context, root: WorkflowOutputRoot) -> StageArtifacts:
        """Look the stage up in the topology. Raises InputError for one that is not in it, or cannot be read."""
        settings = context.settings
        if settings.stage in {"", ALL_STAGES}:
            return cls()
        topology = topology_if_there(context)
        if topology is None:
            return cls(
                warning=f"there is no topology {DEFAULT_TOPOLOGY} in the workspace: all artifacts are taken, whichever "
                "stage made them, and none is missed"
            )
        produced = topology.produced_by([settings.stage], platform=root.platform)
        certain = sorted(artifact.name for artifact in produced if artifact.is_certain_on(root.platform))
        return cls(frozenset(artifact.name for artifact in produced), tuple(certain))


class ArtifactPlan:
    """What there is to store. `missing` are names of artifacts that the stage should have made."""

    def __init__(
        self, context: Context, root: WorkflowOutputRoot, source: ArtifactFolder, stage: StageArtifacts
    ) -> None:
        self._context = context
        self._root = root
        self._source = source
        self._stage = stage
        self.to_make: list[UploadItem] = []
        self.ready: list[UploadItem] = []
        self.with_sidecar: set[str] = set()
        self.missing: tuple[str, ...] = stage.certain
        self._notices: list[str] = []
        self._skipped: list[SkippedFile] = []

    @property
    def prefix(self) -> str:
        """What the path of a file in the folder is shown behind."""
        return self._source.prefix

    def part(self) -> PlannedPart:
        """Read the folder. Raises LocalFileError where it cannot be read, InputError for a bad pattern."""
        settings, source = self._context.settings, self._source
        if settings.job_status not in {"", "success"}:
            self.missing = ()
            status = f"the job's status is {settings.job_status}"
            warning = f"no artifact is stored, because {status}: half a build is none (job_status: success stores it)"
            return PlannedPart(ARTIFACTS, absence=status, warnings=(warning,), if_missing="ignore")
        selection, notices = make_selection(
            artifacts=settings.artifacts,
            exclude_artifacts=settings.exclude_artifacts,
            exclude_components=settings.exclude_components,
        )
        self._notices += notices
        warnings = [self._stage.warning] if self._stage.warning else []
        absence = source.absence
        makes_nothing = self._stage.names is not None and not self._stage.names
        if makes_nothing:
            self._notices.append(f"stage {settings.stage} makes no artifact for {self._root.platform}")
        if not absence:
            found = _Found.read(source.folder, self._skip)
            absence = self._narrow(found, f"there is no artifact in {self._context.workspace.shown(source.folder)}")
            available = [f"{artifact}.tar.zst" for artifact in sorted({*found.directories, *found.archives})]
            choice = choose(selection, available)
            self._take(found, {archive.artifact for archive in choice.chosen})
            warnings += [f"artifacts: nothing here matches {visible(glob)}" for glob in choice.missing if available]
            if available and not choice.chosen:
                absence = "the globs leave no artifact to store"
            warnings += self._foreign({archive.artifact for archive in choice.chosen})
        if self.missing:
            number = count(len(self.missing), "artifact")
            warnings.append(f"stage {settings.stage} did not make {number} of the topology: {_some(self.missing)}")
        return PlannedPart(
            ARTIFACTS,
            (*self.ready, *self.to_make),
            tuple(self._skipped),
            notices=tuple(self._notices),
            warnings=tuple(warnings),
            absence=absence,
            if_missing="ignore" if makes_nothing else if_missing(settings, "error"),
        )

    def _foreign(self, chosen: Iterable[ArtifactName]) -> Iterable[str]:
        """A warning where artifacts are of other GPUs than those of the family that this job says it built."""
        family = self._context.settings.family
        meant = expand_families([family])
        foreign = sorted(str(artifact) for artifact in chosen if family and not matches_target(artifact.target, meant))
        if foreign:
            yield f"family is {visible(family)}, and {count(len(foreign), 'artifact')} of other GPUs: {_some(foreign)}"

    def _narrow(self, found: _Found, absence: str) -> str:
        """Leave in `found` what the stage makes, each artifact once; what is said where nothing is left."""
        names = self._stage.names
        if names is not None:
            here = {artifact.name for artifact in (*found.directories, *found.archives)}
            self.missing = tuple(name for name in self._stage.certain if name not in here)
            others = found.remove(lambda artifact: artifact.name not in names)
            for filename in others:
                self._skip(filename, f"not produced by stage {self._context.settings.stage}")
            if others:
                absence += f" that stage {self._context.settings.stage} makes"
        both = [name for artifact in sorted(found.directories) for name in found.archives.pop(artifact, ())]
        for filename in both:
            self._skip(filename, "its artifact is there as a directory, too, which is archived instead")
        if both:
            self._notices.append(
                f"{count(len(both), 'archive')} left out, because the directory beside it counts: {_some(both)}"
            )
        return absence

    def _take(self, found: _Found, chosen: AbstractSet[ArtifactName]) -> None:
        compression, folder = self._context.settings.compression, self._source.folder
        for artifact in sorted(chosen & found.directories):
            archive = ArchiveName(artifact, compression)
            self.to_make.append(UploadItem(folder / str(artifact), self._root.artifact(str(archive))))
        for artifact in sorted(chosen & found.archives.keys()):
            for filename in found.archives[artifact]:
                self.ready.append(UploadItem(folder / filename, self._root.artifact(filename)))
                if sidecar_name(filename) in found.sidecars:
                    self.with_sidecar.add(filename)

    def _skip(self, name: str, reason: str) -> None:
        self._skipped.append(SkippedFile(self.prefix + visible(name), reason))


@dataclass(frozen=True, slots=True)
class _Found:
    """What lies in the folder: artifact directories, archives by artifact, and names of sidecars beside archives."""

    directories: set[ArtifactName]
    archives: dict[ArtifactName, list[str]]
    sidecars: set[str]

    @classmethod
    def read(cls, folder: Path, skip: Callable[[str, str], None]) -> _Found:
        """Sort the entries of `folder`; `skip` is told of the others. Raises LocalFileError where it cannot be read."""
        found = cls(set(), {}, set())
        try:
            with os.scandir(folder) as entries:
                kinds = {entry.name: _kind_of(entry) for entry in entries}
        except OSError as error:
            raise local_file_error(folder, "read", error) from error
        for name in sorted(kinds, key=os.fsencode):
            reason = found.add(name, kinds)
            if reason:
                skip(name, reason)
        return found

    def add(self, name: str, kinds: Mapping[str, str]) -> str:
        """Take one entry; why it is left out, or ""."""
        kind, artifact, archive = kinds[name], ArtifactName.parse(name), ArchiveName.parse(name)
        if kind == FOLDER:
            if archive is not None:
                return "its name is that of an archive, and it is a folder"
            if artifact is None:
                return segment_fault(name) or "its name is not of the form name_component_target"
            self.directories.add(artifact)
        elif kind:
            return f"it is {kind}"
        elif archive is not None:
            self.archives.setdefault(archive.artifact, []).append(name)
        elif name.endswith(SIDECAR_EXTENSION) and ArchiveName.parse(name.removesuffix(SIDECAR_EXTENSION)) is not None:
            self.sidecars.add(name)
            if kinds.get(name.removesuffix(SIDECAR_EXTENSION), FOLDER):
                return "there is no archive beside it"
        else:
            return segment_fault(name) or "it is no artifact archive: name_component_target.tar.zst or .tar.xz"
        return ""

    def remove(self, is_unwanted: Callable[[ArtifactName], bool]) -> list[str]:
        """Take artifacts out; the names of their directories and archives."""
        directories = [artifact for artifact in sorted(self.directories) if is_unwanted(artifact)]
        archives = [artifact for artifact in sorted(self.archives) if is_unwanted(artifact)]
        self.directories.difference_update(directories)
        names = [name for artifact in archives for name in self.archives.pop(artifact)]
        return sorted([*map(str, directories), *names])


def _kind_of(entry: os.DirEntry[str]) -> str:
    """What an entry is, "" for a regular file; no link is followed."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return "gone"
    return "a junction" if is_junction(status) else kind_fault(status.st_mode)


def _some(names: Sequence[str]) -> str:
    """The first few, for a message."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(visible(name) for name in names[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")
