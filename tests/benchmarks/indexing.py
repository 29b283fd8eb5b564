"""Measure mode index against boto3: its paginator once a folder, and one page after another stored with `put_object`.

    python tests/benchmarks/indexing.py [--objects 10000] [--folders 200] [--rounds 5] [--latency 0.0] [--json FILE]

Needs Debian's nginx (for a latency also libnginx-mod-http-lua), and this project installed in the Python that runs it
(or only its dependencies). Every run of a side is a process of its own. It lists one object, from where on its memory
is measured; it writes that object's pages, so that all is imported; and only then it is timed. Sides alternate. The
pages are counted, and their rows, after every run.

Run as `indexing.py SIDE` it is that process: it prints one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import html
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clients import BUCKET, REPOSITORY, environment
from endpoint import Endpoint, EndpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOAL = 3.0
GOAL_BYTES = 64 * 1024 * 1024
RUN_ID = "12345"
PROBE_ID = "1"
RUN, PROBE = f"{RUN_ID}-linux", f"{PROBE_ID}-linux"
SIDES = ("ours", "boto3")
PARENTS = 10


@dataclass(frozen=True)
class Measurement:
    """What one run took. `more_bytes`: peak memory above what the process had after its listing of one object."""

    side: str
    seconds: float
    cpu_seconds: float
    more_bytes: int
    wrong: str = ""


# --- the process of one side ------------------------------------------------------------------------------------------


def our_work() -> Callable[[str], None]:
    """Mode index, as the program runs it."""
    sys.path.append(str(REPOSITORY / "src"))  # an installed package, or PYTHONPATH, comes first
    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import create_storage_backend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.mode_names import Mode
    from therock_outputs.modes import load_mode
    from therock_outputs.paths import Workspace
    from therock_outputs.run_target import resolve_target
    from therock_outputs.settings import Settings

    backend, cancel = create_storage_backend(), CancelToken()
    assert len(list(backend.list_objects(StorageLocation(BUCKET, PROBE)))) == 1

    def work(run_id: str) -> None:
        inputs = {"MODE": Mode.INDEX, "RUN_ID": run_id, "PLATFORM": "linux", "BUCKET": BUCKET, "LOOKUP": "false"}
        settings = Settings(**{f"INPUT_{name}": value for name, value in inputs.items()})
        context = Context(
            settings=settings,
            target=resolve_target(settings, cancel, say=lambda _text: None),
            workspace=Workspace(Path.cwd()),
            staging_dir=None,
            cancel=cancel,
            open_backend=lambda: backend,
            say=lambda _text: None,
        )
        report = load_mode(Mode.INDEX).run(context)
        if report.error is not None:
            raise SystemExit(str(report.error))

    return work


def boto3_work() -> Callable[[str], None]:
    """The plain way: each folder is listed, and its page stored, before the next one."""
    import boto3

    client = boto3.client("s3")
    paginator = client.get_paginator("list_objects_v2")
    assert len(client.list_objects_v2(Bucket=BUCKET, Prefix=f"{PROBE}/")["Contents"]) == 1

    def work(run_id: str) -> None:
        waiting = [f"{run_id}-linux/"]
        while waiting:
            prefix = waiting.pop()
            rows = []
            for page in paginator.paginate(Bucket=BUCKET, Prefix=prefix, Delimiter="/"):
                folders = [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
                waiting += folders
                rows += [(f"{folder.removeprefix(prefix)}index.html", "", "") for folder in folders]
                rows += [
                    (entry["Key"].removeprefix(prefix), str(entry["Size"]), entry["LastModified"].isoformat())
                    for entry in page.get("Contents", [])
                ]
            body = "\n".join(
                f'<tr><td><a href="./{urllib.parse.quote(name)}">{html.escape(name)}</a><td>{size}<td>{modified}'
                for name, size, modified in rows
            )
            document = f"<!doctype html><title>{html.escape(prefix)}</title><table>\n{body}\n</table>\n".encode()
            client.put_object(Bucket=BUCKET, Key=f"{prefix}index.html", Body=document, ContentType="text/html")

    return work


def serve(side: str) -> None:
    """Do it once."""
    work = our_work() if side == "ours" else boto3_work()
    memory_bytes = _memory_bytes("VmRSS")
    work(PROBE_ID)
    before, start = os.times(), time.perf_counter()
    work(RUN_ID)
    seconds = time.perf_counter() - start
    cpu_seconds = sum(os.times()[:2]) - sum(before[:2])
    print(json.dumps(asdict(Measurement(side, seconds, cpu_seconds, _memory_bytes("VmHWM") - memory_bytes))))


def _memory_bytes(field: str) -> int:
    """Of this process (proc(5)): VmRSS is what it has in memory now, VmHWM the most it ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (kibibytes,) = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kibibytes) * 1024


# --- the bench --------------------------------------------------------------------------------------------------------


class Bench:
    """Runs both sides on one endpoint."""

    def __init__(self, endpoint: Endpoint, *, objects: int, folders: int) -> None:
        """Lays the run: `objects` in `folders` that lie in a few others."""
        self._endpoint = endpoint
        self._folders = folders
        self._keys = [
            f"{RUN}/logs/stage-{at % folders % PARENTS}/gfx{at % folders:04}/{at:05}_therock-component_build.log"
            for at in range(objects)
        ]
        endpoint.lay(BUCKET, self._keys, b"x" * 100)
        endpoint.lay(BUCKET, [f"{PROBE}/a"], b"x")

    def measure(self, rounds: int) -> Iterator[Measurement]:
        """Rounds of both sides, another one first each time; the first round warms the server up and does not count."""
        # Every run begins without pages and has listed before it writes, so a listing's pages are the same each time.
        self._endpoint.keep_listings()
        for number in range(rounds + 1):
            for side in SIDES[:: 1 if number % 2 else -1]:
                measurement = self._run(side)
                if number:
                    yield measurement

    def _run(self, side: str) -> Measurement:
        url = self._endpoint.delayed_url or self._endpoint.url
        command = [sys.executable, __file__, side]
        done = subprocess.run(command, env=environment(url), stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise EndpointError(f"{side} failed")  # it has said why on stderr
        said = json.loads(done.stdout)
        measurement = Measurement(**{**said, "wrong": self._fault(side)})
        for folder in (RUN, PROBE):
            for path in (self._endpoint.data / BUCKET / folder).rglob("index.*"):
                path.unlink()
        return measurement

    def _fault(self, side: str) -> str:
        """What is wrong with the pages, if anything."""
        root = self._endpoint.data / BUCKET / RUN
        folders = {str(Path(key).parent) for key in self._keys}
        expected = {str(parent) for folder in folders for parent in (Path(folder), *Path(folder).parents)} - {"."}
        expected = {folder for folder in expected if folder == RUN or folder.startswith(f"{RUN}/")}
        for name in ("index.html", *(("index.json",) if side == "ours" else ())):
            pages = list(root.rglob(name))
            if {f"{path.parent.relative_to(self._endpoint.data / BUCKET)}" for path in pages} != expected:
                return f"there are {len(pages)} {name}, and {len(expected)} are wanted"
            named = sum(path.read_text().count("_build.log") for path in pages)
            wanted = len(self._keys) * 2
            if named != wanted:
                return f"files are named {named} times in {name}, and {wanted} times are wanted"
        return ""


def table(measurements: list[Measurement]) -> str:
    """Medians, and how many times our time each side took."""
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for one in measurements:
        groups[one.side].append(one)
    medians = {side: statistics.median(one.seconds for one in group) for side, group in groups.items()}
    lines = [f"{'side':6} {'seconds':>8} {'min':>7} {'max':>7} {'x ours':>7} {'CPU s':>7} {'more MiB':>9}"]
    for side, group in groups.items():
        seconds = [one.seconds for one in group]
        cpu_seconds = statistics.median(one.cpu_seconds for one in group)
        more = max(one.more_bytes for one in group) / 1024**2
        ratio = medians[side] / medians["ours"]
        lines.append(
            f"{side:6} {medians[side]:8.3f} {min(seconds):7.3f} {max(seconds):7.3f} {ratio:7.2f} {cpu_seconds:7.2f} "
            f"{more:9.1f}"
        )
        lines += [f"{side:6} FAILED: {one.wrong}" for one in group if one.wrong]
    ratio = medians["boto3"] / medians["ours"]
    lines.append(f"index: {ratio:.1f} times as fast as boto3, the goal is {GOAL:.0f}")
    more_bytes = max(one.more_bytes for one in groups["ours"])
    lines.append(f"memory: {more_bytes / 1024**2:.0f} MiB more than before, the goal is below {GOAL_BYTES // 1024**2}")
    return "\n".join(lines)


def main() -> int:
    """Measure, print the table, and return 1 where a page was wrong or missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--folders", type=int, default=200, help="how many of them hold objects")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer, as of a distant region")
    parser.add_argument("--json", type=Path, help="write every measurement there")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="a folder in memory")
    chosen = parser.parse_args()
    try:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="indexing-", dir=chosen.folder)))
            endpoint = stack.enter_context(Endpoint(folder / "endpoint", latency_seconds=chosen.latency))
            bench = Bench(endpoint, objects=chosen.objects, folders=chosen.folders)
            measurements = list(bench.measure(chosen.rounds))
    except EndpointError as error:
        print(f"indexing: {error}", file=sys.stderr)
        return 2
    versions = {name: importlib.metadata.version(name) for name in ("boto3", "obstore", "jinja2")}
    print(f"python {platform.python_version()}, {os.cpu_count()} cores, {versions}, medians of {chosen.rounds}")
    print(f"{chosen.objects} objects in {chosen.folders} folders; ours stores index.json beside each page, too")
    print(table(measurements))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(one) for one in measurements], indent=1) + "\n")
    return 1 if any(one.wrong for one in measurements) else 0


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in SIDES:
        serve(sys.argv[1])
    else:
        sys.exit(main())
