"""What copy-artifacts is asked for, and what the source run has of it. Pure but for `read_request`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, NotFoundError
from _therock_utils.artifact_names import GENERIC, ArchiveName, ArtifactName
from therock_outputs.artifact_selection import Choice, Selection, choose
from therock_outputs.mode_names import Mode
from therock_outputs.modes._selectors import (
    ALL_STAGES,
    check_selectors,
    selection_of,
    some_of,
    there_is,
    topology_if_there,
)
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._fetch_plan import RunContents
    from therock_outputs.run_records import RunRecord
    from therock_outputs.topology import Topology

RECORD_MODES: Final = (str(Mode.UPLOAD_ARTIFACTS), str(Mode.COPY_ARTIFACTS))
"""Modes whose records say which stage an archive is from."""

_SELECTORS: Final = ("stage", "artifacts", "families", "targets", "generic_only", "artifact_group")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `stages`: () where no stage decides; `topology`: None where the source's records say it."""

    selection: Selection
    notices: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    takes_all: bool = False
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class StageArchives:
    """File names of the archives of one stage that the source run has; `lacking`: what it should have, in words.

    `makes_nothing`: the stage makes nothing on this platform. `has_targets`: it makes artifacts of single GPUs.
    """

    stage: str
    archives: frozenset[str]
    lacking: tuple[str, ...] = ()
    makes_nothing: bool = False
    has_targets: bool = False


@dataclass(frozen=True, slots=True)
class Chosen:
    """Archives to copy, sorted; `per_stage` has each stage's. `missing` was asked for by name and is not there."""

    archives: tuple[ArchiveName, ...]
    missing: tuple[str, ...] = ()
    per_stage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def read_request(context: Context, *, platform: str) -> Request:
    """Check the settings, and read the topology where a stage is asked for and it is there.

    Raises InputError for settings that cannot be used, and for a topology that is malformed, or named and not there.
    """
    settings = context.settings
    check_selectors(settings, _SELECTORS, purpose="copy")
    stages = tuple(dict.fromkeys(settings.stages))
    takes_all = ALL_STAGES in stages
    topology = None
    if stages and not takes_all:
        topology = topology_if_there(context)
        if topology is not None:
            topology.produced_by(stages, platform=platform)  # an unknown stage is told before anything is listed
    selection, notices = selection_of(settings)
    return Request(selection, notices, () if takes_all else stages, takes_all, topology)


def check_roots(source: WorkflowOutputRoot, destination: WorkflowOutputRoot, *, is_staged: bool) -> None:
    """Raise InputError where a run would be copied to itself; in a staging folder the bucket plays no part."""
    if source.prefix == destination.prefix and (is_staged or source.bucket == destination.bucket):
        raise InputError(
            f"{source.root().s3_uri} cannot be copied to itself",
            remedy="source_run_id is the run to copy from, and run_id the one to copy to.",
        )


def stages_by_topology(
    topology: Topology, stages: Iterable[str], available: Iterable[str], *, platform: str
) -> tuple[StageArchives, ...]:
    """Each stage's archives among `available`, by what it makes on `platform`."""
    parsed = {name: archive for name, archive in ((name, ArchiveName.parse(name)) for name in available) if archive}
    found = []
    for stage in stages:
        produced = topology.produced_by([stage], platform=platform)
        names = {artifact.name for artifact in produced}
        archives = frozenset(name for name, archive in parsed.items() if archive.artifact.name in names)
        present = {parsed[name].artifact.name for name in archives}
        found.append(
            StageArchives(
                stage,
                archives,
                lacking=tuple(
                    artifact.name
                    for artifact in produced
                    if artifact.is_certain_on(platform) and artifact.name not in present
                ),
                makes_nothing=not produced,
                has_targets=any(artifact.is_per_target for artifact in produced),
            )
        )
    return tuple(found)


def stages_by_records(
    records: Iterable[RunRecord], stages: Iterable[str], available: Iterable[str], *, prefix: str
) -> tuple[StageArchives, ...]:
    """Each stage's archives among `available`, by what the records of the run of `prefix` say. Pure."""
    records = tuple(records)
    parsed = [archive for archive in map(ArchiveName.parse, available) if archive is not None]
    present = {archive.artifact for archive in parsed}
    found = []
    for stage in stages:
        named = {artifact for record in records for artifact in _recorded_artifacts(record, stage, prefix)}
        found.append(
            StageArchives(
                stage,
                frozenset(str(archive) for archive in parsed if archive.artifact in named),
                lacking=tuple(map(str, sorted(named - present))),
                has_targets=any(artifact.target != GENERIC for artifact in named),
            )
        )
    return tuple(found)


def names_stage(record: RunRecord, stage: str) -> bool:
    """Whether `record` says anything of `stage`."""
    if record.mode == Mode.COPY_ARTIFACTS:
        return stage in record.per_stage
    return record.subject == stage or record.subject.startswith(f"{stage}/")


def _recorded_artifacts(record: RunRecord, stage: str, prefix: str) -> Iterable[ArtifactName]:
    """The artifacts directly in the run that `record` says are of `stage`."""
    if not names_stage(record, stage):
        return ()
    if record.mode == Mode.COPY_ARTIFACTS:
        artifacts = map(ArtifactName.parse, record.per_stage[stage])
        return (artifact for artifact in artifacts if artifact is not None)
    archives = (ArchiveName.parse(item.key[len(prefix) + 1 :]) for item in record.objects)
    return (archive.artifact for archive in archives if archive is not None)


def choose_archives(request: Request, contents: RunContents, stages: Sequence[StageArchives]) -> Chosen:
    """Which archives are wanted, and what of it the source run does not have."""
    if not request.stages:
        choice = choose(request.selection, contents.archives)
        per_stage = {ALL_STAGES: tuple(map(str, choice.chosen))} if request.takes_all else {}
        return Chosen(choice.chosen, choice.missing, per_stage)
    choice = choose(request.selection, sorted({name for stage in stages for name in stage.archives}))
    chosen = frozenset(map(str, choice.chosen))
    missing = [f"stage {visible(stage.stage)}" for stage in stages if not stage.archives and not stage.makes_nothing]
    missing += _missing_of_stages(choice, request.selection, stages)
    notices = [
        f"stage {visible(stage.stage)} makes no artifact for this platform" for stage in stages if stage.makes_nothing
    ]
    notices += [
        f"stage {visible(stage.stage)} should also have {some_of(map(visible, stage.lacking))}: the source run has no "
        "archive of that"
        for stage in stages
        if stage.archives and stage.lacking
    ]
    return Chosen(
        choice.chosen,
        tuple(missing),
        {stage.stage: tuple(sorted(stage.archives & chosen)) for stage in stages},
        tuple(notices),
    )


def _missing_of_stages(choice: Choice, selection: Selection, stages: Iterable[StageArchives]) -> Iterable[str]:
    """What `choice` misses, but no GPU target where none of the stages makes anything for one GPU."""
    if any(stage.has_targets for stage in stages):
        return choice.missing
    return [word for word in choice.missing if word in selection.artifacts]


def missing_error(chosen: Chosen, contents: RunContents) -> NotFoundError | None:
    """The error of what was asked for by name and is not there; None where all is."""
    if not chosen.missing:
        return None
    return NotFoundError(
        f"the source run has nothing for {some_of(map(visible, chosen.missing))}",
        why=there_is(contents.archives),
        remedy="Correct the selectors, or set if_missing: warn (or ignore) to copy what is there.",
    )


def nothing_error(chosen: Chosen, contents: RunContents) -> NotFoundError | None:
    """The error of nothing to copy; None where there is something."""
    if chosen.archives:
        return None
    return NotFoundError(
        "nothing to copy: the selectors leave no archive of the source run",
        why=there_is(contents.archives),
        remedy="If that is expected here, set if_no_files_found: warn (or ignore).",
    )
