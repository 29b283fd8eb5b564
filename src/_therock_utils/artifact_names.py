"""Names of artifact archives, and which of them a GPU target or family means (specification, "S3 Layout"). Pure."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IllegalLocationError
from _therock_utils._gpu_families import FAMILIES, expand_families, is_known_family, targets_of
from _therock_utils._keys import quote, segment_fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "COMPONENTS",
    "EXTENSIONS",
    "FAMILIES",
    "GENERIC",
    "SIDECAR_EXTENSION",
    "ArchiveName",
    "ArtifactName",
    "base_target",
    "expand_families",
    "is_known_family",
    "matches_target",
    "preferred",
    "targets_of",
]

EXTENSIONS: Final = (".tar.zst", ".tar.xz")
"""Extensions of archives, the preferred one first."""

SIDECAR_EXTENSION: Final = ".sha256sum"
"""What follows an archive's name in the name of its digest."""

GENERIC: Final = "generic"
"""Target of an artifact that serves every GPU."""

COMPONENTS: Final = ("lib", "run", "dbg", "dev", "doc", "test")
"""Components that TheRock makes; others are accepted."""

_ARTIFACT: Final = re.compile(r"([^_/]+)_([^_/]+)_([^_/]+)")
_ARCHIVE: Final = re.compile(r"([^_/]+_[^_/]+_[^_/]+)\.tar\.(zst|xz)")
_COMPRESSIONS: Final = ("zst", "xz")


@dataclass(frozen=True, slots=True, order=True)
class ArtifactName:
    """An artifact's `{name}_{component}_{target}`, as its directory is called: `blas_lib_gfx942`.

    Raises IllegalLocationError for a part that is empty, `.` or `..`, or that has a `_`, a `/`, or what no object key
    may have.
    """

    name: str
    component: str
    target: str

    def __post_init__(self) -> None:
        if _ARTIFACT.fullmatch(str(self)) is None or any(map(segment_fault, (self.name, self.component, self.target))):
            raise IllegalLocationError(
                f"artifact {quote(str(self))} cannot be used: it is not of the form name_component_target"
            )

    @classmethod
    def parse(cls, text: str) -> ArtifactName | None:
        """Read `name_component_target`; None for anything else. Case-sensitive, the whole text."""
        match = _ARTIFACT.fullmatch(text)
        if match is None or any(map(segment_fault, match.groups())):
            return None
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"{self.name}_{self.component}_{self.target}"


@functools.total_ordering
@dataclass(frozen=True, slots=True)
class ArchiveName:
    """File name of an artifact's archive. Sorts by artifact, then the preferred compression first.

    `compression`: `zst` or `xz`. Raises IllegalLocationError for another one.
    """

    artifact: ArtifactName
    compression: str

    def __post_init__(self) -> None:
        if self.compression not in _COMPRESSIONS:
            raise IllegalLocationError(f"compression {quote(self.compression)} cannot be used: it must be zst or xz")

    @classmethod
    def parse(cls, filename: str) -> ArchiveName | None:
        """Read a file name; None where it is no artifact archive's. Case-sensitive, the whole name."""
        match = _ARCHIVE.fullmatch(filename)
        artifact = ArtifactName.parse(match[1]) if match is not None else None
        return cls(artifact, match[2]) if match is not None and artifact is not None else None

    def __str__(self) -> str:
        return f"{self.artifact}.tar.{self.compression}"

    def __lt__(self, other: ArchiveName) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[ArtifactName, int]:
        return self.artifact, _COMPRESSIONS.index(self.compression)


def preferred(filenames: Iterable[str]) -> tuple[ArchiveName, ...]:
    """The archives among `filenames`, sorted, one an artifact: where both compressions are there, the zstd one."""
    archives = {archive for archive in map(ArchiveName.parse, filenames) if archive is not None}
    first: dict[ArtifactName, ArchiveName] = {}
    for archive in sorted(archives):
        first.setdefault(archive.artifact, archive)
    return tuple(first.values())


def base_target(target: str) -> str:
    """The architecture of a target without the features behind ":": `gfx942:xnack+` -> `gfx942`."""
    return target.partition(":")[0]


def matches_target(target: str, wanted: Collection[str]) -> bool:
    """Whether an artifact of `target` serves one who asks for `wanted`.

    Generic always does; else it must be asked for, or be a variant by features of one that is: `gfx942` means
    `gfx942:xnack+` too, but not the other way round, and `gfx94X-dcgpu-asan` is meant by itself only.
    """
    return target == GENERIC or target in wanted or base_target(target) in wanted
