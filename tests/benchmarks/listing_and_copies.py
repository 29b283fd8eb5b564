"""Measure listing and server-side copies against boto3: its paginator, and its `copy` in 10 threads.

    python tests/benchmarks/listing_and_copies.py [--keys 10000] [--objects 600] [--rounds 5] [--json FILE]

Needs Debian's nginx and libnginx-mod-http-lua, and this project installed in the Python that runs it (or only its
dependencies). Each side is one process that has done everything once before it is timed; sides alternate. What was
listed and copied is counted and compared after every run. `ours` copies without knowing a size before; `ours, sizes
known` is told them, as from a listing of the source.

Run as `listing_and_copies.py SIDE` it is that process: a job a line comes in, a measurement a line goes out, both JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from clients import BOTO3_THREADS, BUCKET, REPOSITORY, environment
from endpoint import CLOCK_TICKS, Endpoint, EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

GOALS = {"list": 8.0, "copy": 5.0}
OBJECT_BYTES = 4096
LISTED, SOURCE = "12345-linux", "source-linux"
SIDES = {"list": ("ours", "boto3"), "copy": ("ours", "ours, sizes known", "boto3")}


@dataclass(frozen=True)
class Job:
    """List everything below `source`, or copy `names` from there to `target`."""

    work: str
    side: str
    source: str
    target: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What one job took, how many keys or copies it gave, and their bytes. `other_cpu_share`: of other processes."""

    work: str
    side: str
    seconds: float
    cpu_seconds: float
    count: int
    total_bytes: int
    other_cpu_share: float = 0.0
    wrong: str = ""


# --- the process of one side ------------------------------------------------------------------------------------------


def our_work() -> Callable[[Job], tuple[int, int]]:
    """Ours: how many keys were listed, or objects copied, and their bytes."""
    sys.path.append(str(REPOSITORY / "src"))  # an installed package, or PYTHONPATH, comes first
    from _therock_utils.storage_backend import S3StorageBackend
    from _therock_utils.storage_location import StorageLocation

    backend = S3StorageBackend()

    def work(job: Job) -> tuple[int, int]:
        if job.work == "list":
            listed = list(backend.list_objects(StorageLocation(BUCKET, job.source)))
            return len(listed), sum(entry.size_bytes for entry in listed)
        source, target = StorageLocation(BUCKET, job.source), StorageLocation(BUCKET, job.target)
        pairs = [(source.child(name), target.child(name)) for name in job.names]
        known = dict.fromkeys((there for there, _ in pairs), OBJECT_BYTES) if "known" in job.side else None
        result = backend.copy(pairs, known_sizes=known)
        return len(result.stored), result.total_bytes

    return work


def boto3_work() -> Callable[[Job], tuple[int, int]]:
    """boto3's, as TheRock's scripts use it."""
    import boto3

    client = boto3.client("s3")

    def work(job: Job) -> tuple[int, int]:
        if job.work == "list":
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{job.source}/")
            listed = [entry for page in pages for entry in page.get("Contents", [])]
            return len(listed), sum(entry["Size"] for entry in listed)

        def copy(name: str) -> None:
            client.copy({"Bucket": BUCKET, "Key": f"{job.source}/{name}"}, BUCKET, f"{job.target}/{name}")

        with concurrent.futures.ThreadPoolExecutor(BOTO3_THREADS) as pool:
            list(pool.map(copy, job.names))
        return len(job.names), len(job.names) * OBJECT_BYTES  # a failure was raised

    return work


def serve(side: str) -> None:
    """Do the jobs that come in."""
    work = boto3_work() if side == "boto3" else our_work()
    for line in sys.stdin:
        said = json.loads(line)
        job = Job(**{**said, "names": tuple(said["names"])})
        before, start = os.times(), time.perf_counter()
        count, total_bytes = work(job)
        seconds = time.perf_counter() - start
        cpu_seconds = sum(os.times()[:2]) - sum(before[:2])
        measurement = Measurement(job.work, job.side, seconds, cpu_seconds, count, total_bytes)
        print(json.dumps(asdict(measurement)), flush=True)


# --- the bench --------------------------------------------------------------------------------------------------------


class Side:
    """A running process of one side."""

    def __init__(self, side: str, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, side],
            env=environment(url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        """It is running already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let it end."""
        self._process.communicate()

    def do(self, job: Job) -> Measurement:
        """Have one job done. Raises EndpointError where the process ended instead; it has said why on stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EndpointError(f"{job.side} failed at {job.work}")
        said: dict[str, Any] = json.loads(line)
        return Measurement(**said)


class Bench:
    """Runs all sides on one endpoint."""

    def __init__(self, endpoint: Endpoint, sides: dict[str, Side], *, keys: int, objects: int) -> None:
        self._endpoint = endpoint
        self._sides = sides
        self._keys = keys
        self._names = tuple(f"artifact-{number:04}_lib_gfx942.tar.zst" for number in range(objects))

    def listings(self, rounds: int) -> Iterator[Measurement]:
        """Every timed listing."""
        self._endpoint.lay(
            BUCKET, (f"{LISTED}/logs/stage-{at % 7}/{at:05}_build.log" for at in range(self._keys)), b"x"
        )
        self._endpoint.keep_listings()
        yield from self._alternate("list", rounds, lambda side, _: Job("list", side, LISTED))
        self._endpoint.remove(BUCKET, LISTED)

    def copies(self, rounds: int) -> Iterator[Measurement]:
        """Every timed copy, each to a folder of its own."""
        self._endpoint.lay(BUCKET, (f"{SOURCE}/{name}" for name in self._names), bytes(OBJECT_BYTES))

        def job(side: str, number: int) -> Job:
            target = f"target-{number}-{'-'.join(side.split())}"
            self._endpoint.make_folder(BUCKET, target)
            return Job("copy", side, SOURCE, target, self._names)

        yield from self._alternate("copy", rounds, job)

    def _alternate(self, work: str, rounds: int, make: Callable[[str, int], Job]) -> Iterator[Measurement]:
        """Rounds of all sides, another one first each time; the first round warms up and does not count."""
        sides = SIDES[work]
        for number in range(rounds + 1):
            first = number % len(sides)
            for side in [*sides[first:], *sides[:first]]:
                measurement = self._run(make(side, number))
                if number:
                    yield measurement

    def _run(self, job: Job) -> Measurement:
        before, start = _busy_seconds(), time.perf_counter()
        known = self._endpoint.cpu_seconds() + sum(os.times()[:2])
        measurement = self._sides["boto3" if job.side == "boto3" else "ours"].do(job)
        elapsed = time.perf_counter() - start
        known = self._endpoint.cpu_seconds() + sum(os.times()[:2]) - known + measurement.cpu_seconds
        share = max(0.0, _busy_seconds() - before - known) / elapsed / (os.cpu_count() or 1)
        said = {**asdict(measurement), "other_cpu_share": share, "wrong": self._fault(job, measurement)}
        return Measurement(**said)

    def _fault(self, job: Job, measurement: Measurement) -> str:
        expected = self._keys if job.work == "list" else len(self._names)
        size_bytes = 1 if job.work == "list" else OBJECT_BYTES
        if (measurement.count, measurement.total_bytes) != (expected, expected * size_bytes):
            return f"{measurement.count} of {expected} are there, with {measurement.total_bytes} bytes"
        if job.work == "copy" and self._endpoint.sizes(BUCKET, job.target) != dict.fromkeys(self._names, OBJECT_BYTES):
            return "what is stored is not what was copied"
        return ""


def _busy_seconds() -> float:
    """Processor time that the whole machine has used."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / CLOCK_TICKS


def table(measurements: list[Measurement]) -> str:
    """Medians, and how many times our time each side took."""
    groups: dict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for one in measurements:
        groups[one.work, one.side].append(one)
    medians = {key: statistics.median(one.seconds for one in group) for key, group in groups.items()}
    lines = [
        f"{'work':5} {'side':18} {'seconds':>8} {'min':>7} {'max':>7} {'x ours':>7} {'CPU s':>7} {'other load':>10}"
    ]
    for (work, side), group in groups.items():
        seconds = [one.seconds for one in group]
        cpu_seconds = statistics.median(one.cpu_seconds for one in group)
        share = statistics.median(one.other_cpu_share for one in group)
        ratio = medians[work, side] / medians[work, "ours"]
        lines.append(
            f"{work:5} {side:18} {medians[work, side]:8.3f} {min(seconds):7.3f} {max(seconds):7.3f} {ratio:7.2f} "
            f"{cpu_seconds:7.2f} {share:10.0%}"
        )
        lines += [f"{work:5} {side:18} FAILED: {one.wrong}" for one in group if one.wrong]
    for work, goal in GOALS.items():
        if (work, "boto3") in medians:
            ratio = medians[work, "boto3"] / medians[work, "ours"]
            lines.append(f"{work}: {ratio:.1f} times as fast as boto3, the goal is {goal:.0f}")
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table, and return 1 where something was listed or copied wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=10_000, help="how many are listed")
    parser.add_argument("--objects", type=int, default=600, help="how many are copied")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="a folder in memory")
    chosen = parser.parse_args()
    try:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="listing-", dir=chosen.folder)))
            endpoint = stack.enter_context(Endpoint(folder / "endpoint", copies=True))
            sides = {side: stack.enter_context(Side(side, endpoint.url)) for side in ("ours", "boto3")}
            bench = Bench(endpoint, sides, keys=chosen.keys, objects=chosen.objects)
            measurements = [*bench.listings(chosen.rounds), *bench.copies(chosen.rounds)]
    except EndpointError as error:
        print(f"listing_and_copies: {error}", file=sys.stderr)
        return 2
    versions = {name: importlib.metadata.version(name) for name in ("boto3", "obstore")}
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, {versions}, medians of {chosen.rounds}")
    print(f"list: {chosen.keys} keys; copy: {chosen.objects} objects inside a bucket, boto3 in {BOTO3_THREADS} threads")
    print(table(measurements))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in measurements], indent=1) + "\n")
    return 1 if any(one.wrong for one in measurements) else 0


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in {"ours", "boto3"}:
        serve(sys.argv[1])
    else:
        sys.exit(main())
