"""Measure fetch-artifacts (download, verification, extraction) against boto3 and tarfile, one step after the other.

    python tests/benchmarks/fetching.py [--archives 20] [--megabytes 64] [--of compressed|content] [--rounds 3]
        [--extract extract] [--quick] [--json FILE]

The usual way: boto3 `download_file` of all archives in 10 threads, then each extracted by tarfile (`r|` over zstd); no
digest is checked. Ours: the mode's own code, digests verified. Both in a warm process of their own that has fetched a
small run before; sides alternate, and what came out is compared with what went in. Half the archives hold log-like
text, half what machine code looks like; `--of compressed`: 64 MB is an archive's size, `content`: what is in it.

Needs Debian's nginx and about 8 GB free in --folder, which must be in memory.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clients import BOTO3_THREADS, BUCKET, REPOSITORY, environment, peak_resident_bytes
from endpoint import Endpoint, EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Side = Literal["ours", "boto3"]

MB = 1_000_000
POOL_BYTES = 16 * MB
GOAL_RATIO = 2.0
GOAL_PEAK_MB = 500
TIMEOUT_SECONDS = 900.0
RUN, PROBE_RUN = "1", "2"  # run_id of the load, and of what both sides warm up with


@dataclass(frozen=True)
class Job:
    """One fetch: the archives of run `prefix` to `folder`."""

    run_id: str
    names: tuple[str, ...]
    folder: str
    extract: str


@dataclass(frozen=True)
class Measurement:
    """What one fetch took, and the most memory that its process held."""

    side: Side
    seconds: float
    cpu_seconds: float
    peak_bytes: int


# --- the load -------------------------------------------------------------------------------------------------------


def log_text(seed: int) -> bytes:
    """Lines as a build prints them."""
    chance = random.Random(seed)
    words = [f"{chance.choice('kgmtsl')}{chance.randbytes(3).hex()}" for _ in range(3000)]
    lines = io.BytesIO()
    number = 0
    while lines.tell() < POOL_BYTES:
        number += 1
        one, two, three = chance.choices(words, k=3)
        lines.write(
            f"[{number}/99999] {chance.random() * 90:.3f}s Building CXX object src/{one}/{two}.dir/{three}.cpp.o"
            f" -O3 -DNDEBUG -I/build/{one}/include -D{two.upper()}={chance.getrandbits(32):#x}\n".encode()
        )
    return lines.getvalue()[:POOL_BYTES]


def machine_code(seed: int) -> bytes:
    """Words that repeat unevenly, with operands that do not."""
    chance = random.Random(seed)
    codes = [chance.randbytes(4) for _ in range(2000)]
    weights = [1 / (rank + 1) for rank in range(len(codes))]
    parts = []
    for chosen in (chance.choices(codes, weights, k=1000) for _ in range(POOL_BYTES // 6000 + 1)):
        operands = chance.randbytes(2000)
        parts += [code + operands[2 * at : 2 * at + 2] for at, code in enumerate(chosen)]
    return b"".join(parts)[:POOL_BYTES]


def make_archive(path: Path, pool: bytes, *, size_bytes: int, of: str, seed: int) -> dict[str, tuple[int, str]]:
    """Write one archive of files of 4 kB to 4 MB; their sizes in bytes and SHA-256 by name."""
    from backports import zstd

    chance, made = random.Random(seed), {}
    with (
        path.open("wb") as raw,
        zstd.ZstdFile(raw, "wb", level=3) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        content_bytes = 0
        while (raw.tell() if of == "compressed" else content_bytes) < size_bytes:
            length = int(4000 * 1000 ** chance.random())
            start = chance.randrange(POOL_BYTES - length + 1)
            data = b"stage\n" if not made else pool[start : start + length]
            name = f"stage/{len(made) // 100}/{len(made)}.bin" if made else "artifact_manifest.txt"
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
            made[name] = (len(data), hashlib.sha256(data).hexdigest())
            content_bytes += len(data)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha256sum").write_text(f"{digest}  {path.name}\n", encoding="ascii")
    return made


def make_load(folder: Path, count: int, *, size_bytes: int, of: str) -> dict[str, dict[str, tuple[int, str]]]:
    """Write `count` archives; what each holds, by archive name."""
    folder.mkdir(parents=True)
    pools = log_text(1), machine_code(2)
    return {
        name: make_archive(folder / name, pools[number % 2], size_bytes=size_bytes, of=of, seed=number)
        for number, name in enumerate(f"a{number:02}_lib_generic.tar.zst" for number in range(count))
    }


# --- the warm process -----------------------------------------------------------------------------------------------


def ours(job: Job) -> None:
    """The mode, as `main` calls it."""
    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import create_storage_backend
    from therock_outputs.context import Context
    from therock_outputs.modes import load_mode
    from therock_outputs.paths import Workspace
    from therock_outputs.run_target import resolve_target
    from therock_outputs.settings import Settings

    given = {
        "MODE": "fetch-artifacts",
        "RUN_ID": job.run_id,
        "PLATFORM": "linux",
        "BUCKET": BUCKET,
        "LOOKUP": "false",
        "STAGE": "all",
        "OUTPUT_DIR": job.folder,
        "EXTRACT": job.extract,
    }
    settings = Settings(**{f"INPUT_{name}": value for name, value in given.items()})
    cancel = CancelToken()
    context = Context(
        settings=settings,
        target=resolve_target(settings, cancel, say=lambda _: None),
        workspace=Workspace(Path(job.folder).parent),
        staging_dir=None,
        cancel=cancel,
        open_backend=create_storage_backend,
        say=lambda _: None,
    )
    report = load_mode(settings.mode).run(context)
    if report.error is not None:
        raise report.error


def boto3_and_tarfile(job: Job) -> None:
    """All archives in 10 threads, then each extracted."""
    import boto3
    from backports import zstd

    client = boto3.client("s3")
    folder = Path(job.folder)
    downloads = folder.with_name("downloads")
    downloads.mkdir()

    def download(name: str) -> None:
        client.download_file(BUCKET, f"{job.run_id}-linux/{name}", str(downloads / name))

    with concurrent.futures.ThreadPoolExecutor(BOTO3_THREADS) as pool:
        list(pool.map(download, job.names))
    for name in job.names:
        target = folder / name.partition(".")[0]
        target.mkdir(parents=True)
        with zstd.open(downloads / name, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            archive.extractall(target, filter="tar")
        (downloads / name).unlink()
    downloads.rmdir()


def warm_process(side: Side) -> None:
    """Fetch the probe, then the load; print what the load took."""
    sys.path.append(str(REPOSITORY / "src"))  # an installed package, or PYTHONPATH, comes first
    probe, load = (Job(**said) for said in json.load(sys.stdin))
    fetch: Callable[[Job], None] = {"ours": ours, "boto3": boto3_and_tarfile}[side]
    fetch(probe)
    before, start = os.times(), time.perf_counter()
    fetch(load)
    seconds, after = time.perf_counter() - start, os.times()
    print(json.dumps(asdict(Measurement(side, seconds, sum(after[:4]) - sum(before[:4]), peak_resident_bytes()))))


# --- the benchmark --------------------------------------------------------------------------------------------------


def measure(side: Side, probe: Job, load: Job, url: str) -> Measurement:
    """One fetch in a process of its own. Raises SystemExit with what it said where it fails."""
    done = subprocess.run(
        [sys.executable, __file__, "--warm", side],
        env=environment(url),
        input=json.dumps([asdict(probe), asdict(load)]),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{side} failed: {done.stderr[-3000:]}")
    return Measurement(**json.loads(done.stdout))


def check(folder: Path, expected: Mapping[str, Mapping[str, tuple[int, str]]], extract: str) -> None:
    """Compare every size, and the digest of every tenth file. Raises SystemExit."""
    if extract != "extract":
        return
    for archive, files in expected.items():
        target = folder / archive.partition(".")[0]
        sizes = {
            path.relative_to(target).as_posix(): path.stat().st_size for path in target.rglob("*") if path.is_file()
        }
        if sizes != {name: size for name, (size, _) in files.items()}:
            raise SystemExit(f"{target.name} came out with other files")
        for name, (_, digest) in list(files.items())[::10]:
            if hashlib.sha256((target / name).read_bytes()).hexdigest() != digest:
                raise SystemExit(f"{target.name}/{name} came out with other bytes")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--warm", choices=["ours", "boto3"], help=argparse.SUPPRESS)
    parser.add_argument("--archives", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=64, help="of each archive")
    parser.add_argument("--of", choices=["compressed", "content"], default="compressed", help="what --megabytes counts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--extract", choices=["extract", "flatten", "bootstrap"], default="extract")
    parser.add_argument("--quick", action="store_true", help="4 archives of 8 MB, one round: does it work at all")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="a folder in memory")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.archives, chosen.megabytes, chosen.rounds = 4, 8, 1
    return chosen


def run_rounds(folder: Path, endpoint: Endpoint, chosen: argparse.Namespace) -> list[Measurement]:
    """Make the load, and measure both sides in turn."""
    source, probe_source, out = folder / "source", folder / "probe", folder / "out"
    load = make_load(source, chosen.archives, size_bytes=int(chosen.megabytes * MB), of=chosen.of)
    probe = make_load(probe_source, 1, size_bytes=MB, of="content")
    packed_bytes = sum((source / name).stat().st_size for name in load)
    content_bytes = sum(size for files in load.values() for size, _ in files.values())
    endpoint.publish(BUCKET, f"{RUN}-linux", source)
    endpoint.publish(BUCKET, f"{PROBE_RUN}-linux", probe_source)
    print(
        f"{len(load)} archives, {packed_bytes / MB:.0f} MB as archives, {content_bytes / MB:.0f} MB of content in "
        f"{sum(map(len, load.values())):,} files; {chosen.extract}"
    )
    found = []
    for number in range(chosen.rounds):
        sides: tuple[Side, ...] = ("ours", "boto3") if number % 2 == 0 else ("boto3", "ours")
        for side in sides:
            out.mkdir()
            jobs = (
                Job(PROBE_RUN, tuple(probe), str(out / "warm-up"), chosen.extract),
                Job(RUN, tuple(load), str(out / "load"), chosen.extract),
            )
            found.append(measure(side, *jobs, endpoint.url))
            check(out / "load", load, chosen.extract)
            shutil.rmtree(out)
            print(f"{side}: {found[-1].seconds:.2f} s", file=sys.stderr, flush=True)
    return found


def summarise(found: list[Measurement]) -> float:
    """Print a row a side; how many times our time the other took."""
    medians = {}
    print(f"{'side':6} {'seconds':>8} {'min':>7} {'max':>7} {'CPU s':>7} {'peak MB':>8}")
    for side in ("ours", "boto3"):
        mine = [one for one in found if one.side == side]
        medians[side] = statistics.median(one.seconds for one in mine)
        print(
            f"{side:6} {medians[side]:8.2f} {min(one.seconds for one in mine):7.2f} "
            f"{max(one.seconds for one in mine):7.2f} {statistics.median(one.cpu_seconds for one in mine):7.2f} "
            f"{max(one.peak_bytes for one in mine) / MB:8.0f}"
        )
    return medians["boto3"] / medians["ours"]


def main() -> int:
    """Measure, print, and return 1 where a goal is missed in a whole benchmark."""
    chosen = arguments()
    if chosen.warm:
        warm_process(chosen.warm)
        return 0
    names = ("boto3", "obstore", "backports.zstd")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    print(f"python {platform.python_version()}, {versions}, {os.cpu_count()} cores")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="fetching-", dir=chosen.folder) as name,
            Endpoint(Path(name, "endpoint")) as endpoint,
        ):
            found = run_rounds(Path(name), endpoint, chosen)
    except EndpointError as error:
        print(f"fetching: {error}", file=sys.stderr)
        return 2
    ratio = summarise(found)
    peak_mb = max(one.peak_bytes for one in found if one.side == "ours") / MB
    print(f"ratio {ratio:.2f} (goal {GOAL_RATIO}), our peak {peak_mb:.0f} MB (goal under {GOAL_PEAK_MB})")
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")
    return int(not chosen.quick and (ratio < GOAL_RATIO or peak_mb >= GOAL_PEAK_MB))


if __name__ == "__main__":
    sys.exit(main())
