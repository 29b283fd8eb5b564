"""GPU families and the targets they stand for (ROCm/TheRock, August 2026). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_TARGETS_OF: Final = {
    family: tuple(targets.split())
    for family, targets in {
        "dcgpu-all": "gfx908 gfx90a gfx942 gfx950 gfx1250",
        "dgpu-all": "gfx900 gfx906 gfx1010 gfx1011 gfx1012 gfx1030 gfx1031 gfx1032 gfx1034 gfx1100 gfx1101 gfx1102 "
        "gfx1200 gfx1201",
        "gfx101X-all": "gfx1010 gfx1011 gfx1012",
        "gfx101X-dgpu": "gfx1010 gfx1011 gfx1012",
        "gfx103X-all": "gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036",
        "gfx103X-dgpu": "gfx1030 gfx1031 gfx1032 gfx1034",
        "gfx103X-igpu": "gfx1033 gfx1035 gfx1036",
        "gfx110X-all": "gfx1100 gfx1101 gfx1102 gfx1103",
        "gfx110X-dgpu": "gfx1100 gfx1101 gfx1102",
        "gfx110X-igpu": "gfx1103",
        "gfx115X-all": "gfx1150 gfx1151 gfx1152 gfx1153",
        "gfx115X-igpu": "gfx1150 gfx1151 gfx1152 gfx1153",
        "gfx120X-all": "gfx1200 gfx1201",
        "gfx125X-all": "gfx1250",
        "gfx125X-dcgpu": "gfx1250",
        "gfx900-dgpu": "gfx900",
        "gfx906-dgpu": "gfx906",
        "gfx908-dcgpu": "gfx908",
        "gfx90a-dcgpu": "gfx90a",
        "gfx90c-igpu": "gfx90c",
        "gfx94X-all": "gfx942",
        "gfx94X-dcgpu": "gfx942",
        "gfx950-all": "gfx950",
        "gfx950-dcgpu": "gfx950",
        "igpu-all": "gfx90c gfx1033 gfx1035 gfx1036 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153",
    }.items()
}
FAMILIES: Final = tuple(sorted({*_TARGETS_OF, *(target for targets in _TARGETS_OF.values() for target in targets)}))
"""Every known family, sorted; a single target is a family of its own."""


def is_known_family(family: str) -> bool:
    """Whether `family` is a family or a target of the table."""
    return family in FAMILIES


def targets_of(family: str) -> tuple[str, ...]:
    """The targets that `family` stands for; a target, and a family that is not known, stand for themselves."""
    return _TARGETS_OF.get(family, (family,))


def expand_families(families: Iterable[str]) -> tuple[str, ...]:
    """Every family and the targets it stands for, once each, in the order given."""
    return tuple(dict.fromkeys(name for family in families for name in (family, *targets_of(family))))
