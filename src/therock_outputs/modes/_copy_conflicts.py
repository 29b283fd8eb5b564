"""What of the archives to copy lies at the destination already, and what follows from it. Pure.

An archive and its sidecar are one unit: what happens to the archive happens to the digest beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from _therock_utils._errors import ConflictError
from _therock_utils._sidecar import parse_sidecar, sidecar_name
from _therock_utils._transfer_types import Conflict, FailedItem
from _therock_utils.artifact_names import preferred
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._fetch_plan import RunContents

State = Literal["new", "same", "unproven", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class Unit:
    """One archive to copy and the sidecar that goes along, if the source has one; sizes in bytes.

    `sidecar`: its bytes at the source, None where there is none. `sha256`: hex digest that the archive at the source
    has and its sidecar names, "" where nobody compared them.
    """

    name: str
    size_bytes: int
    sidecar: bytes | None = None
    sha256: str = ""

    @property
    def sidecar_name(self) -> str:
        """The sidecar's file name."""
        return sidecar_name(self.name)

    @property
    def digest(self) -> str:
        """The digest that the sidecar names, "" where it names none of this archive. It is a claim."""
        return parse_sidecar(self.sidecar, name=self.name) if self.sidecar is not None else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done: `copied` are copied, `same` lie at the destination already; the rest says why not.

    `unproven`: those of `copied` that look the same at the destination, where no digest of their bytes says so.
    `conflicts` are as they are if all of `copied` arrives.
    """

    copied: tuple[Unit, ...] = ()
    same: tuple[Unit, ...] = ()
    unproven: tuple[Unit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    failed: tuple[FailedItem, ...] = ()


def plan_copies(
    units: Iterable[Unit],
    there: RunContents,
    sidecars_there: Mapping[str, StoredBytes | None],
    digests_there: Mapping[str, str],
    *,
    destination: Callable[[str], StorageLocation],
    on_conflict: Literal["overwrite", "error", "skip"],
) -> Plan:
    """Compare `units` with what lies at the destination, and decide.

    `there` is its listing, `sidecars_there` the bytes of its sidecars, `digests_there` the SHA-256 of its archives by
    name, "" or none where that is not known. With `on_conflict: error` nothing is copied where anything is in the way.
    """
    copied: list[Unit] = []
    same: list[Unit] = []
    unproven: list[Unit] = []
    conflicts: list[Conflict] = []
    failed: list[FailedItem] = []
    actions: dict[str, Literal["overwritten", "refused", "skipped"]] = {
        "overwrite": "overwritten",
        "error": "refused",
        "skip": "skipped",
    }
    for unit in units:
        state = _state_of(unit, there, sidecars_there, digests_there.get(unit.name, ""))
        if state == "same":
            same.append(unit)
            continue
        if state == "unproven" and on_conflict == "overwrite":
            unproven.append(unit)
        elif state != "new":
            in_the_way = unit.name if unit.name in there.archives else unit.sidecar_name
            if on_conflict == "overwrite" and unit.sidecar is None and unit.sidecar_name in there.sidecars:
                failed.append(FailedItem(unit.name, destination(unit.name), _foreign_sidecar(unit.name)))
                continue
            kind: Literal["different", "unknown"] = "different" if state == "different" else "unknown"
            conflicts.append(Conflict(destination(in_the_way), kind, "", actions[on_conflict]))
            if on_conflict == "skip":
                continue
        copied.append(unit)
    if on_conflict == "error" and conflicts:
        error = _refusal(conflicts, len(copied))
        failed += [FailedItem(unit.name, destination(unit.name), error) for unit in copied]
        copied = []
    return Plan(tuple(copied), tuple(same), tuple(unproven), tuple(conflicts), tuple(failed))


def _state_of(
    unit: Unit, there: RunContents, sidecars_there: Mapping[str, StoredBytes | None], digest_there: str
) -> State:
    """`same` is the same sidecar beside bytes that have the digest in it; what only looks so is `unproven`.

    Such bytes without a sidecar are what a copy leaves that was stopped half way: not in the way of the next one.
    """
    size_bytes, sidecar = there.archives.get(unit.name), sidecars_there.get(unit.sidecar_name)
    has_sidecar = unit.sidecar_name in there.sidecars
    if size_bytes is None:
        is_free = not has_sidecar or (sidecar is not None and sidecar.data == unit.sidecar)
        return "new" if is_free else "different"
    is_proven = bool(digest_there) and digest_there == unit.digest
    if size_bytes != unit.size_bytes or (unit.digest and digest_there and not is_proven):
        return "different"
    if unit.sidecar is None or sidecar is None:
        return "new" if is_proven and not has_sidecar else "unknown"
    if sidecar.data != unit.sidecar:
        return "different"
    return "same" if is_proven else "unproven"


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
