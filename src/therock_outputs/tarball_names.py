"""Names of install tarballs: `therock-dist-{platform}-{family or multiarch}[-tests]-{version}.tar.gz`. Pure.

Source: specification, "S3 Layout". Families and versions both may hold hyphens, so what divides them is their form: a
family is known, or of the words of one (`gfx94X-dcgpu-asan`); a version begins with a digit (PEP 440), or is one word
in capitals (`ADHOCBUILD`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from _therock_utils._errors import IllegalLocationError
from _therock_utils._gpu_families import FAMILIES, is_known_family
from _therock_utils._keys import quote

TARBALL_EXTENSION: Final = ".tar.gz"
MULTIARCH: Final = "multiarch"
"""Stands for the family in the name of a tarball that serves all of the run's."""

VARIANTS: Final = ("asan", "host-asan", "tsan", "host-tsan", "ubsan", "debug")
"""Build variants that TheRock appends to a family; others of that form are accepted, too."""

_TESTS: Final = "-tests"
_KNOWN: Final = "|".join(sorted(map(re.escape, (*FAMILIES, MULTIARCH)), key=lambda name: (-len(name), name)))
# A known family, or the first word of one that is not in the table: a target (gfx94X) or a group of them (dcgpu).
_FIRST: Final = rf"(?:{_KNOWN}|gfx[0-9][0-9A-Za-z]*|[a-z]*gpu)"
_WORDS: Final = r"(?:-(?!tests-)[a-z][0-9a-z]*)*"
_VERSION: Final = r"(?:[0-9][0-9A-Za-z]*(?:[._][0-9A-Za-z]+)*(?:\+[0-9A-Za-z]+(?:[._-][0-9A-Za-z]+)*)?|[A-Z][0-9A-Z]*)"
_NAME: Final = re.compile(
    rf"therock-dist-([a-z0-9]+)-({_FIRST}{_WORDS})({_TESTS})?-({_VERSION}){re.escape(TARBALL_EXTENSION)}"
)


def tarball_pattern(platform: str) -> str:
    """The form of a tarball's name, for people."""
    return f"therock-dist-{platform}-{{family or {MULTIARCH}}}[{_TESTS}]-{{version}}{TARBALL_EXTENSION}"


@dataclass(frozen=True, slots=True, order=True)
class TarballName:
    """The parts of a tarball's file name. Raises IllegalLocationError for parts that would be read as others."""

    platform: str
    family: str
    version: str
    is_tests: bool = False

    def __post_init__(self) -> None:
        match = _NAME.fullmatch(str(self))
        parts = (match[1], match[2], match[4], match[3] is not None) if match is not None else ()
        if parts != (self.platform, self.family, self.version, self.is_tests):
            raise IllegalLocationError(f"the tarball name {quote(str(self))} cannot be used: its parts are not clear")

    @classmethod
    def parse(cls, filename: str) -> TarballName | None:
        """Read a file name; None where it is no tarball's. Case-sensitive, the whole name."""
        match = _NAME.fullmatch(filename)
        return cls(match[1], match[2], match[4], match[3] is not None) if match is not None else None

    def __str__(self) -> str:
        tests = _TESTS if self.is_tests else ""
        return f"therock-dist-{self.platform}-{self.family}{tests}-{self.version}{TARBALL_EXTENSION}"

    @property
    def key(self) -> str:
        """What names it among the tarballs of one version: the family or `multiarch`, and `-tests` for tests."""
        return f"{self.family}{_TESTS}" if self.is_tests else self.family

    @property
    def is_known(self) -> bool:
        """Whether the family is one of the table, or multiarch, with or without one of VARIANTS."""
        bases = (self.family, *(self.family.removesuffix(f"-{variant}") for variant in VARIANTS))
        return any(base == MULTIARCH or is_known_family(base) for base in bases)
