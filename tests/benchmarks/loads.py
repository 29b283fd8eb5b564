"""The files that the transfer benchmark moves: the same bytes on every machine, none of them alike."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KIB, MIB = 1024, 1024 * 1024
SAMPLED_SMALL_FILES = 20


@dataclass(frozen=True)
class LoadFile:
    """One file: its path below the load's folder (`/` between segments), its size and its SHA-256."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Load:
    """`small` files of 1 to 64 KiB in folders of 100, and `large` files of `large_bytes`."""

    name: str
    small: int = 0
    large: int = 0
    large_bytes: int = 0

    def describe(self) -> str:
        """The load in words."""
        parts = [f"{self.small:,} files of 1-64 KiB"] if self.small else []
        parts += [f"{self.large} files of {self.large_bytes // MIB} MiB"] if self.large else []
        return " + ".join(parts)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of every file."""
        sizes = random.Random(self.name)
        for number in range(self.small):
            yield f"logs/component-{number // 100:02}/step-{number % 100:02}.log", sizes.randint(KIB, 64 * KIB)
        for number in range(self.large):
            yield f"artifacts/component-{number:02}.tar.zst", self.large_bytes

    def make(self, folder: Path) -> tuple[LoadFile, ...]:
        """Write the files below `folder`. Holds one block of 1 MiB at a time."""
        block = random.Random(0).randbytes(MIB)
        made = []
        for number, (name, size) in enumerate(self.sizes()):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with path.open("wb") as stream:
                for start in range(0, size, MIB):
                    head = f"{self.name} {number} {start}\n".encode()  # no two blocks are the same
                    data = (head + block[len(head) :])[: size - start]
                    digest.update(data)
                    stream.write(data)
            made.append(LoadFile(name, size, digest.hexdigest()))
        return tuple(made)


LOADS = {
    load.name: load
    for load in (
        Load("small", small=3000),
        Load("large", large=4, large_bytes=512 * MIB),
        Load("mixed", small=800, large=20, large_bytes=64 * MIB),
    )
}
QUICK_LOADS = {
    load.name: load
    for load in (
        Load("small", small=300),
        Load("large", large=2, large_bytes=64 * MIB),
        Load("mixed", small=80, large=4, large_bytes=32 * MIB),
    )
}
PROBE = Load("probe", small=1)  # what a program's start-up, and a connection's, is measured and warmed with


def sample(files: tuple[LoadFile, ...]) -> tuple[LoadFile, ...]:
    """Files whose digest is compared: every nth small one, and the first and last large one."""
    small = [file for file in files if file.size_bytes <= 64 * KIB]
    large = [file for file in files if file.size_bytes > 64 * KIB]
    step = max(1, len(small) // SAMPLED_SMALL_FILES)
    return (*small[::step], *large[:1], *large[1:][-1:])


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
