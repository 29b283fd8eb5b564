"""Whether the stages that make artifacts are done with them: by the archives there are, and the records they leave.

A record is written last (docs, "Run records"), so where a stage's is there, what it did not store will not come.
Records are only told apart by their names; what they say is not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from _therock_utils.artifact_names import GENERIC, is_known_family, matches_target, targets_of
from therock_outputs.mode_names import Mode
from therock_outputs.modes._selectors import ALL_STAGES
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils.artifact_names import ArtifactName
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.topology import Topology, TopologyArtifact

_NOT_IN_A_RECORD_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")  # as the uploading modes name their records


def record_names(
    backend: StorageBackend, root: WorkflowOutputRoot, *, cancel: CancelToken | None = None
) -> frozenset[str]:
    """File names of the records that upload-artifacts left in the run. Raises as `list_folder` does."""
    folder = root.root().child(f"reports/{Mode.UPLOAD_ARTIFACTS}")
    return frozenset(listed.location.name for listed in backend.list_folder(folder, cancel=cancel))


def lacking_artifacts(
    needed: Iterable[TopologyArtifact],
    *,
    topology: Topology,
    present: Collection[ArtifactName],
    records: Collection[str],
    asked_targets: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> tuple[str, ...]:
    """What of `needed` is not there and can still come: `blas (stage math-libs)`, `blas for gfx1151 (...)`.

    An artifact is there when one archive of it is; one that each GPU target has, when that is so for every asked target
    (`Selection.asked_targets`). It can still come as long as none of the stages that make it has left a record.
    """
    lacking = []
    for artifact in needed:
        producers = topology.producers_of(artifact.name)
        stages = f" (stage {' or '.join(map(visible, producers))})" if producers else ""
        targets = [target for mine in present if mine.name == artifact.name for target in (mine.target,)]
        if not (artifact.is_per_target and asked_targets):
            if not targets and not has_finished(producers, topology=topology, records=records):
                lacking.append(f"{visible(artifact.name)}{stages}")
            continue
        for asked, meanings in asked_targets:
            is_there = any(matches_target(target, meanings) for target in targets if target != GENERIC)
            if not is_there and not has_finished(producers, topology=topology, records=records, meanings=meanings):
                lacking.append(f"{visible(artifact.name)} for {visible(asked)}{stages}")
    return tuple(lacking)


def have_all_finished(
    needed: Iterable[TopologyArtifact],
    *,
    topology: Topology,
    records: Collection[str],
    asked_targets: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> bool:
    """Whether every artifact of `needed` has a producer that has left its record, for each asked target."""
    return all(
        has_finished(topology.producers_of(artifact.name), topology=topology, records=records, meanings=meanings)
        for artifact in needed
        for meanings in ([meant for _, meant in asked_targets] if artifact.is_per_target and asked_targets else [()])
    )


def has_finished(
    stages: Collection[str], *, topology: Topology, records: Iterable[str], meanings: Collection[str] = ()
) -> bool:
    """Whether one of `stages` has left a record: for a GPU family that stands for one of `meanings`, if any are given.

    A record's name begins with its stage, and where the stage was built for a family with that, too. Of several stages
    that it could begin with (`comm`, `comm-libs`), it is the longest one's.
    """
    heads = {f"{_NOT_IN_A_RECORD_NAME.sub('_', stage)}-": stage for stage in (*topology.stages, ALL_STAGES)}
    for record in records:
        head = max((head for head in heads if record.startswith(head)), key=len, default="")
        if not head or heads[head] not in {*stages, ALL_STAGES}:
            continue
        family = _family_in(record.removeprefix(head))
        if not (family and meanings) or not {family, *targets_of(family)}.isdisjoint(meanings):
            return True
    return False


def _family_in(rest: str) -> str:
    """The GPU family that `rest` begins with: the longest known one, else a word `gfx...`, else ""."""
    words = rest.split("-")
    starts = ("-".join(words[:count]) for count in range(len(words) - 1, 0, -1))
    return next((start for start in starts if is_known_family(start)), words[0] if words[0].startswith("gfx") else "")
