"""What of the archives to copy lies at the destination already, and what follows from it. Pure.

An archive and its sidecar are one unit: what happens to the archive happens to the digest beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from _therock_utils._errors import ConflictError
from _therock_utils._sidecar import sidecar_name
from _therock_utils._transfer_types import Conflict, FailedItem
from _therock_utils.artifact_names import preferred
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._fetch_plan import RunContents

State = Literal["new", "same", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One archive to copy and the sidecar that goes along, if the source has one; sizes in bytes.

    `sidecar`: its bytes at the source, None where there is none.
    """

    name: str
    size_bytes: int
    sidecar: bytes | None = None

    @property
    def sidecar_name(self) -> str:
        """The sidecar's file name."""
        return sidecar_name(self.name)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: `copied` are copied, `same` lie at the destination already; the rest says why not."""

    copied: tuple[Unit, ...] = ()
    same: tuple[Unit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failed: tuple[FailedItem, ...] = ()


def plan_copies(
    units: Iterable[Unit],
    there: RunContents,
    sidecars_there: Mapping[str, StoredBytes | None],
    *,
    destination: Callable[[str], StorageLocation],
    on_conflict: Literal["overwrite", "error", "skip"],
) -> Plan:
    """Compare `units` with what lies at the destination (`there`, and the bytes of its sidecars), and decide.

    With `on_conflict: error` nothing is copied where anything is in the way.
    """
    copied: list[Unit] = []
    same: list[Unit] = []
    conflicts: list[Conflict] = []
    failed: list[FailedItem] = []
    actions: dict[str, Literal["overwritten", "refused", "skipped"]] = {
        "overwrite": "overwritten",
        "error": "refused",
        "skip": "skipped",
    }
    for unit in units:
        state = _state_of(unit, there, sidecars_there)
        if state == "same":
            same.append(unit)
            continue
        if state != "new":
            in_the_way = unit.name if unit.name in there.archives else unit.sidecar_name
            if on_conflict == "overwrite" and unit.sidecar is None and unit.sidecar_name in there.sidecars:
                failed.append(FailedItem(unit.name, destination(unit.name), _foreign_sidecar(unit.name)))
                continue
            conflicts.append(Conflict(destination(in_the_way), state, "", actions[on_conflict]))
            if on_conflict == "skip":
                continue
        copied.append(unit)
    if on_conflict == "error" and conflicts:
        error = _refusal(conflicts, len(copied))
        failed += [FailedItem(unit.name, destination(unit.name), error) for unit in copied]
        copied = []
    return Plan(tuple(copied), tuple(same), tuple(conflicts), tuple(failed))


def _state_of(unit: Unit, there: RunContents, sidecars_there: Mapping[str, StoredBytes | None]) -> State:
    """`same` is the same size and the same digest beside it; without digests on both sides nothing can be said."""
    size_bytes, sidecar = there.archives.get(unit.name), sidecars_there.get(unit.sidecar_name)
    has_sidecar = unit.sidecar_name in there.sidecars
    if size_bytes is None:
        is_free = not has_sidecar or (sidecar is not None and sidecar.data == unit.sidecar)
        return "new" if is_free else "different"
    if size_bytes != unit.size_bytes:
        return "different"
    if unit.sidecar is None or sidecar is None:
        return "unknown"
    return "same" if sidecar.data == unit.sidecar else "different"


def _foreign_sidecar(name: str) -> ConflictError:
    return ConflictError(
        f"{name} has no digest in the source run, and one of other bytes lies at the destination",
        why="the copy would lie beside a digest that is not its own",
        remedy="Remove both objects at the destination, or set on_conflict: skip.",
    )


def _refusal(conflicts: Sequence[Conflict], number: int) -> ConflictError:
    return ConflictError(
        f"nothing was copied, because other bytes lie under {len(conflicts)} of {count(number, 'archive')}",
        why=f"the first is {visible(conflicts[0].location.relative_path)}",
        remedy="Choose on_conflict: overwrite or skip.",
    )


def overshadowed(units: Iterable[Unit], there: RunContents) -> tuple[str, ...]:
    """Names of archives at the destination that readers prefer to the `units` beside them: the other compression's."""
    found = []
    for unit in units:
        best = preferred([unit.name, f"{unit.name.rpartition('.')[0]}.zst"])[0]
        if str(best) != unit.name and str(best) in there.archives:
            found.append(str(best))
    return tuple(found)
