"""Measure uploads and downloads against boto3 (as TheRock's scripts use it), s5cmd and aws s3 cp.

    python tests/benchmarks/transfers.py [--loads small,large,mixed,delayed] [--sides ours,boto3,s5cmd,aws]
        [--rounds 3] [--latency-ms 20] [--max-other-load 0.1] [--quick] [--json FILE]

Needs Debian's nginx and libnginx-mod-http-lua, this project installed in the Python that runs it (or only its
dependencies), and about 6 GB free in --folder, which must be in memory. s5cmd and awscli are installed in an
environment of their own at the first run. Sides alternate; a run that other processes disturbed is repeated; after
every transfer all sizes and a sample of digests are compared with what was sent.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from clients import (
    BUCKET,
    PROGRAMS,
    SIDES,
    ClientError,
    Direction,
    Job,
    Measurement,
    Programs,
    clean,
    run_program,
    run_warm,
)
from endpoint import CLOCK_TICKS, Endpoint, EndpointError
from loads import LOADS, MIB, PROBE, QUICK_LOADS, LoadFile, digest_of, sample

if TYPE_CHECKING:
    from collections.abc import Iterator

DELAYED = "delayed"  # the load `small`, with --latency-ms added to every answer
START_UP_RUNS = 3
ATTEMPTS = 4
PATIENCE_SECONDS = 20.0
NEEDED_BYTES = 6 * 1024 * MIB


@dataclass(frozen=True)
class Run:
    """One transfer that was measured, and checked where `wrong` is empty."""

    load: str
    direction: Direction
    side: str
    round: int
    measurement: Measurement | None
    server_cpu_seconds: float
    other_cpu_share: float
    wrong: str = ""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loads", default="small,large,mixed,delayed", help="which loads, by commas")
    parser.add_argument("--directions", default="upload,download")
    parser.add_argument("--sides", default=",".join(SIDES), help="who, by commas; ratios are against ours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=20.0, help="of the load `delayed`")
    parser.add_argument(
        "--max-other-load",
        type=float,
        default=0.1,
        help=f"share of the processors that others may use during a run; it is repeated up to {ATTEMPTS} times",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round: does it work at all")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="a folder in memory")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--programs", type=Path, default=cache / "therock-outputs-benchmarks")
    chosen = parser.parse_args()
    for given, known in (
        (chosen.loads, (*LOADS, DELAYED)),
        (chosen.sides, SIDES),
        (chosen.directions, get_args(Direction)),
    ):
        if unknown := set(given.split(",")) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    return chosen


def busy_seconds() -> float:
    """Processor time that the whole machine has used."""
    fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / CLOCK_TICKS


def own_seconds() -> float:
    """Processor time of this process and of the clients that have ended."""
    return sum(os.times()[:4])


@dataclass(frozen=True)
class Leg:
    """One direction of one load: what every side is measured on."""

    load: str
    direction: Direction
    files: tuple[LoadFile, ...]
    url: str


class Bench:
    """Runs the sides on one load after the other, below `folder`."""

    def __init__(
        self, folder: Path, endpoint: Endpoint, programs: Programs, *, quick: bool, max_other_load: float
    ) -> None:
        self.endpoint = endpoint
        self.programs = programs
        self.max_other_load = max_other_load
        self.loads = QUICK_LOADS if quick else LOADS
        self.source, self.target = folder / "source", folder / "target"
        self.probe_source, self.probe_target = folder / "probe-source", folder / "probe-target"
        self.probe = PROBE.make(self.probe_source)
        self.start_up: dict[str, Measurement] = {}
        self._count = 0

    def measure(self, name: str, directions: list[str], sides: list[str], rounds: int) -> Iterator[Run]:
        """Every run of one load, sides alternating, a different one first each round."""
        load = self.loads["small" if name == DELAYED else name]
        url = self.endpoint.delayed_url if name == DELAYED else self.endpoint.url
        files = load.make(self.source)
        try:
            for direction in get_args(Direction):
                if direction not in directions:
                    continue
                leg = Leg(name, direction, files, url)
                for side in [side for side in sides if side in PROGRAMS]:
                    self._measure_start_up(leg, side)
                for number in range(rounds):
                    first = number % len(sides)
                    for side in sides[first:] + sides[:first]:
                        yield self._calm_run(leg, side, number)
        finally:
            shutil.rmtree(self.source, ignore_errors=True)

    def _job(self, leg: Leg) -> Job:
        """A transfer with fresh prefixes: what it needs is there, nothing else."""
        self._count += 1
        prefix, probe_prefix = f"run-{self._count}", f"probe-{self._count}"
        upload = leg.direction == "upload"
        if not upload:
            self.endpoint.publish(BUCKET, prefix, self.source)
            self.endpoint.publish(BUCKET, probe_prefix, self.probe_source)
            clean(self.target)
            clean(self.probe_target)
        return Job(
            direction=leg.direction,
            folder=str(self.source if upload else self.target),
            prefix=prefix,
            probe_folder=str(self.probe_source if upload else self.probe_target),
            probe_prefix=probe_prefix,
            names=tuple(file.name for file in leg.files),
            digests=tuple(file.sha256 for file in leg.files),
            probe_names=tuple(file.name for file in self.probe),
            probe_digests=tuple(file.sha256 for file in self.probe),
        )

    def _forget(self, job: Job) -> None:
        self.endpoint.remove(BUCKET, job.prefix)
        self.endpoint.remove(BUCKET, job.probe_prefix)
        clean(self.target)
        clean(self.probe_target)

    def _measure_start_up(self, leg: Leg, side: str) -> None:
        """What a program takes for one small file is taken off its times: the others are warm too."""
        found = []
        for _ in range(START_UP_RUNS):
            job = self._job(leg)
            found.append(run_program(self.programs.command(side, job, leg.url, probe=True), leg.url))
            self._forget(job)
        self.start_up[f"{leg.load} {leg.direction} {side}"] = sorted(found, key=lambda one: one.seconds)[
            len(found) // 2
        ]

    def _calm_run(self, leg: Leg, side: str, number: int) -> Run:
        """A run during which the machine did little else; the calmest where none was calm. Failures count at once."""
        runs: list[Run] = []
        for _ in range(ATTEMPTS):
            self._wait_for_calm()
            runs.append(self._run(leg, side, number))
            if runs[-1].wrong or runs[-1].other_cpu_share <= self.max_other_load:
                return runs[-1]
        return min(runs, key=lambda run: run.other_cpu_share)

    def _wait_for_calm(self) -> None:
        """Wait for half a second with little load, but not for ever."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        load = 1.0
        while load > self.max_other_load and time.monotonic() < deadline:
            busy, start = busy_seconds(), time.monotonic()
            time.sleep(0.5)
            load = (busy_seconds() - busy) / (time.monotonic() - start) / (os.cpu_count() or 1)

    def _run(self, leg: Leg, side: str, number: int) -> Run:
        job = self._job(leg)
        busy, own, server, start = busy_seconds(), own_seconds(), self.endpoint.cpu_seconds(), time.perf_counter()
        measurement, wrong = None, ""
        try:
            measurement = self._measure(leg, side, job)
        except ClientError as error:
            wrong = str(error)
        elapsed = time.perf_counter() - start
        server = self.endpoint.cpu_seconds() - server
        others = busy_seconds() - busy - (own_seconds() - own) - server
        wrong = wrong or self._check(job, leg.files)
        self._forget(job)
        share = max(0.0, others) / elapsed / (os.cpu_count() or 1)
        return Run(leg.load, leg.direction, side, number, measurement, server, share, wrong)

    def _measure(self, leg: Leg, side: str, job: Job) -> Measurement:
        if side not in PROGRAMS:
            return run_warm(side, job, leg.url)
        whole = run_program(self.programs.command(side, job, leg.url, probe=False), leg.url)
        idle = self.start_up[f"{leg.load} {leg.direction} {side}"]
        return replace(whole, seconds=whole.seconds - idle.seconds, cpu_seconds=whole.cpu_seconds - idle.cpu_seconds)

    def _check(self, job: Job, files: tuple[LoadFile, ...]) -> str:
        """What is wrong with what arrived, or nothing."""
        expected = {file.name: file.size_bytes for file in files}
        upload = job.direction == "upload"
        if upload:
            arrived = self.endpoint.sizes(BUCKET, job.prefix)
        else:
            paths = (path for path in self.target.rglob("*") if path.is_file())
            arrived = {path.relative_to(self.target).as_posix(): path.stat().st_size for path in paths}
        if arrived != expected:
            odd = sorted(set(arrived.items()) ^ set(expected.items()))
            return f"{len(odd)} names or sizes differ, as {odd[0]}"
        if self.endpoint.open_uploads():
            return "a multipart upload was left open"
        for file in sample(files):
            found = (
                self.endpoint.stored_digest(BUCKET, f"{job.prefix}/{file.name}")
                if upload
                else digest_of(self.target / file.name)
            )
            if found != file.sha256:
                return f"{file.name} arrived with other bytes"
        return ""


def summarise(runs: list[Run]) -> list[dict[str, object]]:
    """One row a load, direction and side: medians, and how many times our time it took."""
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.load, run.direction, run.side].append(run)
    rows: list[dict[str, object]] = []
    times: dict[tuple[str, str, str], float] = {}
    for key, group in groups.items():
        good = [run.measurement for run in group if run.measurement is not None and not run.wrong]
        if good:
            times[key] = statistics.median(one.seconds for one in good)
    for (load, direction, side), group in groups.items():
        good = [run.measurement for run in group if run.measurement is not None and not run.wrong]
        row: dict[str, object] = {"load": load, "direction": direction, "side": side}
        if good:
            ours, own = times.get((load, direction, "ours")), times[load, direction, side]
            row |= {
                "seconds": own,
                "fastest": min(one.seconds for one in good),
                "slowest": max(one.seconds for one in good),
                "times_ours": own / ours if ours else None,
                "cpu_seconds": statistics.median(one.cpu_seconds for one in good),
                "peak_mb": max(one.peak_bytes for one in good) / 1e6,
                "server_cpu_seconds": statistics.median(run.server_cpu_seconds for run in group),
                "other_cpu_share": statistics.median(run.other_cpu_share for run in group),
            }
        row["failed"] = [run.wrong for run in group if run.wrong]
        rows.append(row)
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """The rows as text."""
    head = (
        f"{'load':8} {'direction':9} {'side':6} {'seconds':>8} {'min':>7} {'max':>7} {'x ours':>7} {'CPU s':>7} "
        f"{'peak MB':>8} {'server CPU s':>12} {'other load':>10}"
    )
    lines = [head]
    previous = ""
    for row in rows:
        group = f"{row['load']:8} {row['direction']:9}"
        if group != previous:
            lines.append("-" * len(head))
        previous = group
        if "seconds" in row:
            ratio = f"{row['times_ours']:7.2f}" if row["times_ours"] else "      -"
            lines.append(
                f"{group} {row['side']:6} {row['seconds']:8.3f} {row['fastest']:7.3f} {row['slowest']:7.3f} {ratio} "
                f"{row['cpu_seconds']:7.2f} {row['peak_mb']:8.1f} {row['server_cpu_seconds']:12.2f} "
                f"{row['other_cpu_share']:10.0%}"
            )
        lines += [f"{group} {row['side']:6} FAILED: {wrong}" for wrong in (row["failed"] or ())]  # type: ignore[attr-defined] # rows are JSON
    return "\n".join(lines)


def versions(programs: Programs, sides: list[str]) -> dict[str, str]:
    """What was measured, on what."""
    found = {"python": platform.python_version(), "cores": str(os.cpu_count()), "machine": platform.platform()}
    for name in ("boto3", "botocore", "obstore"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    for side, program, option in (("s5cmd", programs.s5cmd, "version"), ("aws", programs.aws, "--version")):
        if side in sides:
            done = subprocess.run([program, option], capture_output=True, text=True, check=False)
            found[side] = done.stdout.partition("\n")[0]
    return found


def check_folder(folder: Path, *, quick: bool) -> None:
    """Refuse a folder that is too small. Raises EndpointError."""
    free = shutil.disk_usage(folder).free
    needed = NEEDED_BYTES // 10 if quick else NEEDED_BYTES
    if free < needed:
        raise EndpointError(f"{folder} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} are needed: choose --folder")


def main() -> int:
    """Measure, print the table, and return 1 where a transfer failed or arrived wrong."""
    chosen = arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that nginx and the folder go away too
    sides, loads = chosen.sides.split(","), chosen.loads.split(",")
    rounds = 1 if chosen.quick else chosen.rounds
    latency_ms = chosen.latency_ms if DELAYED in loads else 0.0
    programs = Programs(chosen.programs)
    runs: list[Run] = []
    try:
        if set(sides) & set(PROGRAMS):
            programs.install()
        check_folder(chosen.folder, quick=chosen.quick)
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="transfers-", dir=chosen.folder)))
            endpoint = stack.enter_context(Endpoint(folder / "endpoint", latency_seconds=latency_ms / 1000))
            bench = Bench(folder, endpoint, programs, quick=chosen.quick, max_other_load=chosen.max_other_load)
            for load in loads:
                for run in bench.measure(load, chosen.directions.split(","), sides, rounds):
                    took = f"{run.measurement.seconds:.3f} s" if run.measurement else "failed"
                    print(f"{load} {run.direction} {run.side}: {took} {run.wrong}", file=sys.stderr, flush=True)
                    runs.append(run)
    except (ClientError, EndpointError) as error:
        print(f"transfers: {error}", file=sys.stderr)
        return 2
    rows = summarise(runs)
    found = versions(programs, sides)
    print(", ".join(f"{name} {value}" for name, value in found.items()))
    for name in loads:
        load = bench.loads["small" if name == DELAYED else name]
        print(f"{name}: {load.describe()}" + (f", {latency_ms:g} ms added to each answer" if name == DELAYED else ""))
    print(f"medians of {rounds}")
    print(table(rows))
    print("start-up of the programs, taken off above (seconds, CPU seconds):")
    for name, one in bench.start_up.items():
        print(f"  {name}: {one.seconds:.3f} {one.cpu_seconds:.2f}")
    if chosen.json:
        start_up = {name: asdict(one) for name, one in bench.start_up.items()}
        every = [asdict(run) for run in runs]
        chosen.json.write_text(
            json.dumps({"versions": found, "rows": rows, "start_up": start_up, "runs": every}, indent=1) + "\n"
        )
    return 1 if any(run.wrong for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
