"""Measure how artifact directories become archives, against what TheRock's scripts do.

    python tests/benchmarks/compression.py [--rounds 3] [--directories 8] [--size-mb 128] [--quick] [--json FILE]

Ours is the pipeline of mode upload-artifacts with its digests. The other side writes one archive after another with
tarfile over a zstd compressor of one thread at the same level, and reads each again for its digest. Both make the same
members. Each side is a process of its own; sides alternate. Needs 1.5 GB free in --folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
MB = 1_000_000
LEVEL = 3
GOAL = 1.7
SIDES = ("ours", "one by one")
WORDS = ["compiling", "hit", "miss", "/usr/bin/cc", "-O2", "-I/work/include", "rocBLAS", "kernel", "warning:", "unused"]


@dataclass(frozen=True)
class Measurement:
    """One run of a side over all directories: seconds, processor seconds, bytes, and peak memory above an idle one."""

    side: str
    wall_seconds: float
    cpu_seconds: float
    archive_bytes: int
    peak_bytes: int


def log_text(size_bytes: int, seed: int) -> Iterator[bytes]:
    """A build's log, 1 MB at a time: words in sentences, with numbers that differ."""
    choose = random.Random(seed)
    lines = [" ".join(choose.choices(WORDS, k=12)) for _ in range(500)]
    left_bytes = size_bytes
    while left_bytes > 0:
        block = "".join(f"[{choose.randrange(10**6)}] {line}\n" for line in choose.choices(lines, k=9000)).encode()
        yield block[:left_bytes]
        left_bytes -= len(block)


def binary_text(size_bytes: int, seed: int) -> Iterator[bytes]:
    """Code as a compiler makes it, 1 MB at a time: repeated sequences of instructions with operands between them."""
    choose = random.Random(seed)
    sequences = [choose.randbytes(choose.randrange(4, 40)) for _ in range(4000)]
    left_bytes = size_bytes
    while left_bytes > 0:
        block = b"".join(
            part for sequence in choose.choices(sequences, k=40_000) for part in (sequence, choose.randbytes(4))
        )
        yield block[:left_bytes]
        left_bytes -= len(block)


def make_directories(root: Path, count: int, size_bytes: int) -> int:
    """Artifact directories, of sizes around `size_bytes`, half log-like and half binary text; bytes in all."""
    total_bytes = 0
    for number in range(count):
        folder = root / f"a{number}_lib_generic"
        share = size_bytes * (2 + number % 3) // 3  # two thirds, one, four thirds
        makers: list[tuple[str, Callable[[int, int], Iterator[bytes]]]] = [("log", log_text), ("so", binary_text)]
        for extension, maker in makers:
            for file in range(4):
                path = folder / "core" / "stage" / "lib" / f"part-{file}.{extension}"
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as stream:
                    for block in maker(share // 8, number * 10 + file):
                        stream.write(block)
                        total_bytes += len(block)
        (folder / "artifact_manifest.txt").write_text("core/stage\n")
    return total_bytes


def ours(folders: list[Path], target: Path) -> Callable[[], int]:
    """The pipeline, ready to go. It returns the bytes of all archives."""
    sys.path.insert(0, str(REPOSITORY / "src"))
    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import UploadItem
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._artifact_pipeline import ArchivePipeline, Making

    items = [UploadItem(folder, StorageLocation("benchmark", f"{folder.name}.tar.zst")) for folder in folders]
    making = Making.on_this_machine("zst", LEVEL, count=len(items))

    def run() -> int:
        total_bytes = 0
        with ArchivePipeline(items, target, making, keeps_all=False, cancel=CancelToken(), say=_nobody) as pipeline:
            for batch in pipeline.batches():
                for made in batch:
                    if made.archive is None:
                        raise SystemExit(f"compression: {made.error}")
                    total_bytes += made.archive.size_bytes
        return total_bytes

    return run


def _nobody(_text: str) -> None:
    """The console of nobody."""


def one_by_one(folders: list[Path], target: Path) -> Callable[[], int]:
    """tarfile over a compressor of one thread, then the digest. It returns the bytes of all archives."""

    def run() -> int:
        total_bytes = 0
        for folder in folders:
            path = target / f"{folder.name}.tar.zst"
            with zstd.open(path, "wb", level=LEVEL) as file, tarfile.open(fileobj=file, mode="w|") as archive:
                archive.add(folder / "artifact_manifest.txt", "artifact_manifest.txt")
                archive.add(folder / "core" / "stage", "core/stage")
            with path.open("rb") as stream:
                hashlib.file_digest(stream, "sha256")
            total_bytes += path.stat().st_size
        return total_bytes

    return run


def measure(side: str, root: Path) -> Measurement:
    """Run one side in this process, with everything imported before the clock starts."""
    import resource

    folders = sorted((path for path in root.iterdir() if path.is_dir()), key=lambda path: (-_size(path), path.name))
    with tempfile.TemporaryDirectory(dir=root.parent) as target:
        run = (ours if side == "ours" else one_by_one)(folders, Path(target))
        idle_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        before, start = os.times(), time.perf_counter()
        archive_bytes = run()
        wall_seconds, after = time.perf_counter() - start, os.times()
        check(folders, Path(target))
    cpu_seconds = after.user + after.system - before.user - before.system
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - idle_bytes
    return Measurement(side, wall_seconds, cpu_seconds, archive_bytes, peak_bytes)


def check(folders: list[Path], target: Path) -> None:
    """Every archive must give back every file."""
    for folder in folders:
        with zstd.open(target / f"{folder.name}.tar.zst") as file, tarfile.open(fileobj=file, mode="r|") as archive:
            found = {member.name: member.size for member in archive if member.isreg()}
        wanted = {p.relative_to(folder).as_posix(): p.stat().st_size for p in folder.rglob("*") if p.is_file()}
        if found != wanted:
            raise SystemExit(f"compression: {folder.name} was not archived whole")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run_side(side: str, root: Path) -> Measurement:
    """Run one side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--root", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return Measurement(**json.loads(done.stdout))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directories", type=int, default=8)
    parser.add_argument("--size-mb", type=int, default=128, help="content of a directory, on average")
    parser.add_argument("--quick", action="store_true", help="an eighth of the load, one round: does it work at all")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Make the load, measure both sides and print the table."""
    chosen = arguments()
    if chosen.side:
        print(json.dumps(asdict(measure(chosen.side, chosen.root))))
        return
    rounds, size_mb = (1, chosen.size_mb // 8) if chosen.quick else (chosen.rounds, chosen.size_mb)
    found: dict[str, list[Measurement]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="compression-", dir=chosen.folder) as name:
        root = Path(name, "artifacts")
        content_bytes = make_directories(root, chosen.directories, size_mb * MB)
        for number in range(rounds):
            for side in SIDES if number % 2 == 0 else SIDES[::-1]:
                found[side].append(run_side(side, root))
    print(
        f"Python {sys.version.partition(' ')[0]}, {os.cpu_count()} cores, {content_bytes / MB:,.0f} MB in"
        f" {chosen.directories} directories, zstd level {LEVEL}, medians of {rounds}"
    )
    print(f"{'side':12} {'wall s':>7} {'CPU s':>7} {'CPU/wall':>8} {'MB/s':>6} {'archives MB':>11} {'peak MB':>8}")
    for side, runs in found.items():
        wall, cpu = (statistics.median(getattr(one, f"{what}_seconds") for one in runs) for what in ("wall", "cpu"))
        share = statistics.median(one.cpu_seconds / one.wall_seconds for one in runs)
        peak = max(one.peak_bytes for one in runs)
        print(
            f"{side:12} {wall:7.2f} {cpu:7.2f} {share:8.2f} {content_bytes / MB / wall:6.0f}"
            f" {runs[0].archive_bytes / MB:11.1f} {peak / MB:8.0f}"
        )
    mine, other = (statistics.median(one.wall_seconds for one in runs) for runs in found.values())
    share = statistics.median(one.cpu_seconds / one.wall_seconds for one in found["ours"])
    print(f"ours is {other / mine:.2f} times as fast; CPU/wall {share:.2f} (goal {GOAL} on 2 cores)")
    if chosen.json:
        chosen.json.write_text(
            json.dumps({side: [asdict(one) for one in runs] for side, runs in found.items()}, indent=1)
        )


if __name__ == "__main__":
    main()
