"""What the modes that take some of a run's artifacts share: the selectors, the topology, and words about both."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, NotFoundError
from _therock_utils.artifact_names import ArchiveName
from therock_outputs.artifact_selection import make_selection
from therock_outputs.text_safety import count
from therock_outputs.topology import load_topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.artifact_selection import Selection
    from therock_outputs.context import Context
    from therock_outputs.settings import Settings
    from therock_outputs.topology import Topology

ALL_STAGES: Final = "all"
"""What the input `stage` says for every stage, and so what the record of such an upload is called."""

DEFAULT_TOPOLOGY: Final = "BUILD_TOPOLOGY.toml"
"""Where the topology is in the workspace, unless the input `topology` says otherwise."""

_SHOWN_WORDS: Final = 20


def check_selectors(settings: Settings, names: Sequence[str], *, purpose: str) -> None:
    """Raise InputError where none of the inputs `names` is set, or they cannot be set together."""
    lists = {"stage": settings.stages, "artifact_group": settings.artifact_groups}  # `;` alone is an empty list
    if not any(lists.get(name, getattr(settings, name)) for name in names):
        raise InputError(
            f"mode {settings.mode} needs to be told which artifacts to {purpose}",
            remedy=f"Set one of {', '.join(names)}; stage: {ALL_STAGES} means everything in the run.",
        )
    if settings.generic_only and (settings.families or settings.targets or settings.artifact_groups):
        raise InputError(
            "generic_only leaves out what families, targets and artifact_group ask for",
            remedy="Set generic_only, or the others: generic artifacts are always included.",
        )
    if ALL_STAGES in settings.stages and len(settings.stages) > 1:
        raise InputError(f"stage is {ALL_STAGES} and more", remedy=f"Give {ALL_STAGES}, or the names of stages.")


def selection_of(
    settings: Settings, *, names: Iterable[str] | None = None, by_file_name: bool = False
) -> tuple[Selection, tuple[str, ...]]:
    """The selection that the inputs make, with `by_file_name` also the regular expressions; and notices about it.

    `names` are a stage's artifacts, None where no stage decides. Raises InputError for a pattern that cannot be used.
    """
    return make_selection(
        names=names,
        artifacts=settings.artifacts,
        exclude_artifacts=settings.exclude_artifacts,
        exclude_components=settings.exclude_components,
        families=settings.families,
        targets=settings.targets,
        groups=settings.artifact_groups,
        generic_only=settings.generic_only,
        include_regex=settings.include_regex if by_file_name else (),
        exclude_regex=settings.exclude_regex if by_file_name else (),
    )


def topology_of(context: Context) -> Topology:
    """The build's topology. Raises InputError for one that is not there, or malformed."""
    return load_topology(_topology_path(context))


def topology_if_there(context: Context) -> Topology | None:
    """The build's topology; None where none was named and the default one is not there. Raises as `topology_of`."""
    if not (context.settings.topology or os.path.lexists(_topology_path(context))):
        return None
    return topology_of(context)


def _topology_path(context: Context) -> Path:
    return context.workspace.resolve(context.settings.topology or DEFAULT_TOPOLOGY, what="topology")


def check_staging_dir(context: Context) -> None:
    """Raise NotFoundError where the staging folder is not there: mostly its name is wrong, and no run is to blame."""
    folder = context.staging_dir
    if folder is not None and not folder.is_dir():
        what = f"there is no folder {context.workspace.shown(folder)}"
        raise NotFoundError(what, remedy="Check staging_dir: it is the folder that was stored into.")


def is_run_empty(backend: StorageBackend, root: WorkflowOutputRoot, cancel: CancelToken) -> bool:
    """Whether the run has nothing at all: no logs, no records. Raises as `list_objects` does."""
    return next(iter(backend.list_objects(root.root(), cancel=cancel)), None) is None


def artifact_names(archives: Iterable[str]) -> list[str]:
    """The artifacts of archives, by file name: name_component_target, sorted."""
    parsed = map(ArchiveName.parse, archives)
    return sorted({str(archive.artifact) for archive in parsed if archive is not None})


def there_is(archives: Iterable[str]) -> str:
    """What archives a run has, for a person who asked for others."""
    names = sorted(archives)
    return f"it has {count(len(names), 'archive')}: {some_of(names)}" if names else "it has no artifact archive at all"


def some_of(words: Iterable[str]) -> str:
    """`words` in one line, the first 20 and the number of the others."""
    words = list(words)
    more = len(words) - _SHOWN_WORDS
    return ", ".join(words[:_SHOWN_WORDS]) + (f", and {more:,} more" if more > 0 else "")
