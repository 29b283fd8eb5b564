"""What fetch-artifacts is asked for, what a run has of it, and what follows from both. Pure but for what says so."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, IntegrityError, NotFoundError, OutputsError
from _therock_utils._keys import quote
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, parse_sidecar, sidecar_name
from _therock_utils.artifact_names import (
    COMPONENTS,
    FAMILIES,
    GENERIC,
    SIDECAR_EXTENSION,
    ArchiveName,
    matches_target,
)
from therock_outputs.artifact_selection import Selection, choose
from therock_outputs.modes._producers import have_all_finished, lacking_artifacts
from therock_outputs.modes._selectors import ALL_STAGES, check_selectors, selection_of, some_of, there_is, topology_of
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.artifact_selection import Choice
    from therock_outputs.context import Context
    from therock_outputs.topology import Topology, TopologyArtifact

_SELECTORS: Final = ("stage", "artifacts", "families", "targets", "generic_only", "artifact_group", "include_regex")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `needed` is a stage's inbound set; None where no stage decides.

    `stages` are for messages; `asks_by_name`: something is wanted that a stage's set does not explain.
    """

    selection: Selection
    notices: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    topology: Topology | None = None
    needed: tuple[TopologyArtifact, ...] | None = None
    asks_by_name: bool = True


@dataclass(frozen=True, slots=True)
class RunContents:
    """Sizes in bytes of the archives, and of the sidecars, that lie directly under a run's prefix, by file name."""

    archives: Mapping[str, int] = field(default_factory=dict)
    sidecars: Mapping[str, int] = field(default_factory=dict)
    is_empty: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """One archive to fetch; `sha256` is what its sidecar says, "" where it has none."""

    archive: ArchiveName
    location: StorageLocation
    size_bytes: int
    sha256: str = ""

    @property
    def name(self) -> str:
        """The archive's file name."""
        return str(self.archive)

    @property
    def extension(self) -> str:
        """`.tar.zst` or `.tar.xz`."""
        return f".tar.{self.archive.compression}"


def read_request(context: Context) -> Request:
    """Check the settings and read the topology where a stage needs it.

    Raises InputError for settings that cannot be used, and for a topology that is not there or malformed.
    """
    settings = context.settings
    if not settings.output_dir:
        raise InputError(
            f"mode {settings.mode} needs output_dir", remedy="Say where the artifacts go, e.g. output_dir: build."
        )
    check_selectors(settings, _SELECTORS, purpose="fetch")
    stages = settings.stages
    topology: Topology | None = None
    needed: tuple[TopologyArtifact, ...] | None = None
    if stages and ALL_STAGES not in stages:
        topology = topology_of(context)
        needed = topology.inbound_of(stages, platform=single_root(context.target).platform)
    names = None if needed is None else [artifact.name for artifact in needed]
    selection, notices = selection_of(settings, names=names, by_file_name=True)
    by_name = needed is None or bool(settings.artifacts or settings.include_regex)
    return Request(selection, notices, stages, topology, needed, asks_by_name=by_name)


def list_run(backend: StorageBackend, root: WorkflowOutputRoot, cancel: CancelToken) -> RunContents:
    """The archives and sidecars of a run. Raises as `list_folder` does."""
    listed = backend.list_folder(root.root(), cancel=cancel)
    return read_listing((entry.location.name, entry.size_bytes) for entry in listed)


def read_listing(objects: Iterable[tuple[str, int]]) -> RunContents:
    """Sort a run's file names and sizes; keeps those of archives and sidecars, whatever else there is."""
    archives: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    is_empty = True
    for name, size_bytes in objects:
        is_empty = False
        if ArchiveName.parse(name) is not None:
            archives[name] = size_bytes
        elif name.endswith(SIDECAR_EXTENSION) and ArchiveName.parse(name.removesuffix(SIDECAR_EXTENSION)) is not None:
            sidecars[name] = size_bytes
    return RunContents(archives, sidecars, is_empty)


def what_is_lacking(request: Request, contents: RunContents, choice: Choice, records: Collection[str]) -> str:
    """What a wait is for, in words; "" where nothing is lacking."""
    if contents.is_empty:
        return "the run has no outputs yet"
    lacking = [*map(visible, choice.missing)]
    if request.topology is not None and request.needed is not None:
        lacking += lacking_artifacts(
            [artifact for artifact in request.needed if _can_be_chosen(artifact, request.selection)],
            topology=request.topology,
            present=[archive.artifact for archive in choice.chosen],
            records=records,
            asked_targets=() if request.selection.generic_only else request.selection.asked_targets,
        )
    elif not choice.chosen and not lacking:
        lacking.append("an archive that the selectors match")
    without = [name for name in map(str, choice.chosen) if sidecar_name(name) not in contents.sidecars]
    lacking += [f"the digest of {name}, so it may still be under way" for name in without]
    return some_of(lacking)


def are_producers_done(request: Request, records: Collection[str]) -> bool:
    """Whether the records say that all that makes what is asked for is stored; only for a stage they can."""
    if request.topology is None or request.needed is None:
        return False
    needed = [artifact for artifact in request.needed if _can_be_chosen(artifact, request.selection)]
    asked = () if request.selection.generic_only else request.selection.asked_targets
    return have_all_finished(needed, topology=request.topology, records=records, asked_targets=asked)


def _can_be_chosen(artifact: TopologyArtifact, selection: Selection) -> bool:
    """Whether any archive that it has for certain, of the components and targets known, would pass the selectors."""
    targets = (selection.wanted_targets or FAMILIES) if artifact.is_per_target else (GENERIC,)
    names = (f"{artifact.name}_{component}_{target}.tar.zst" for component in COMPONENTS for target in targets)
    return bool(choose(selection, names).chosen)


def missing_error(request: Request, contents: RunContents, choice: Choice, waited_for: str) -> NotFoundError | None:
    """The error of what was asked for by name and is not there, or of nothing at all; None where all is there.

    `waited_for` is what was still lacking after a wait, "" without one.
    """
    if choice.missing:
        what = f"the run has nothing for {some_of(map(visible, choice.missing))}"
    elif not choice.chosen and request.asks_by_name:
        what = "the run has no artifact archive that the selectors match"
    else:
        return None
    there = there_is(contents.archives) + _nearest(choice.missing, contents.archives)
    if waited_for:
        there += f"; wait_seconds are over, and still lacking: {waited_for}"
    return NotFoundError(
        what,
        why=there,
        remedy="Correct the selectors, or set if_missing: warn (or ignore) to go on with what is there.",
    )


def _nearest(missing: Iterable[str], archives: Iterable[str]) -> str:
    """`; did you mean x?` for the first word of `missing` that is near a name or name_component, else ""."""
    parsed = [archive.artifact for archive in map(ArchiveName.parse, archives) if archive is not None]
    known = {word for artifact in parsed for word in (artifact.name, f"{artifact.name}_{artifact.component}")}
    for word in missing:
        near = difflib.get_close_matches(word, sorted(known), 1)
        if near:
            return f"; did you mean {near[0]}?"
    return ""


def lacking_of_stage(request: Request, choice: Choice) -> tuple[str, ...]:
    """Names in a stage's inbound set of which the run has no archive; that is no failure."""
    present = {archive.artifact.name for archive in choice.chosen}
    return tuple(
        artifact.name
        for artifact in request.needed or ()
        if artifact.name not in present and _can_be_chosen(artifact, request.selection)
    )


def targets_without_archives(request: Request, choice: Choice) -> tuple[str, ...]:
    """Families and targets asked for beside a stage that needs artifacts of single GPUs, of which there is none."""
    if request.selection.generic_only or not any(artifact.is_per_target for artifact in request.needed or ()):
        return ()
    targets = {archive.artifact.target for archive in choice.chosen} - {GENERIC}
    return tuple(
        asked
        for asked, meanings in request.selection.asked_targets
        if not any(matches_target(target, meanings) for target in targets)
    )


def gone_archives(request: Request, contents: RunContents, choice: Choice) -> tuple[ArchiveName, ...]:
    """Archives that are asked for and of which only the digest is left: a digest is stored last, so they are lost."""
    present = {archive.artifact for archive in choice.chosen}
    names = (name.removesuffix(SIDECAR_EXTENSION) for name in contents.sidecars)
    lost = choose(request.selection, (name for name in names if name not in contents.archives)).chosen
    return tuple(archive for archive in lost if archive.artifact not in present)


def stage_words(stages: Sequence[str]) -> str:
    """`stage a`, or `stage a, b`."""
    return f"stage {', '.join(map(visible, stages))}"


def wanted_archives(choice: Choice, contents: RunContents, root: WorkflowOutputRoot) -> tuple[Wanted, ...]:
    """The chosen archives, in order, with no digests yet."""
    return tuple(
        Wanted(archive, root.artifact(str(archive)), contents.archives[str(archive)]) for archive in choice.chosen
    )


def digest_in(answer: StoredBytes | OutputsError | None, wanted: Wanted) -> str | OutputsError:
    """The digest in a sidecar that was listed, or why it cannot be used: then its archive cannot be trusted."""
    name = sidecar_name(wanted.name)
    if isinstance(answer, OutputsError):
        return answer
    if answer is None:
        return IntegrityError(f"{name} was listed and is gone", remedy="Fetch again when nothing is being uploaded.")
    digest = parse_sidecar(answer.data, name=wanted.name)
    if digest:
        return digest
    return IntegrityError(
        f"{name} holds no SHA-256 of {wanted.name}",
        why=f"its {len(answer.data)} bytes begin with {quote(answer.data[:MAX_SIDECAR_BYTES].decode('latin-1'))}",
        remedy="Store the archive and its digest again.",
    )
