"""What fetch-artifacts does when the network, the service, the disk or a signal interferes: honest, and never half."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._errors import IntegrityError, NotFoundError, NotPermittedError, ServiceUnavailableError
from _therock_utils._s3_plan import MIB, PART_SIZE_BYTES, SINGLE_PUT_LIMIT_BYTES
from fakes.artifact_archives import make_archive, run_files, write_run
from fakes.contexts import make_context
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import Answer, CutShort, HoldUp, Reset, s3_error
from fakes.trees import digest, read_tree, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_s3.client import S3Client

    from _therock_utils.storage_backend import S3StorageBackend
    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket
    from therock_outputs.report import Report

_SOURCES = str(Path(__file__).parents[2] / "src")
P = "100-linux"
LARGE = "big_lib_generic.tar.zst"
SMALL = {
    "blas_lib_gfx1151.tar.zst": make_archive({"stage/lib/libblas.so": "blas"}),
    "hip_lib_generic.tar.xz": make_archive({"stage/lib/libhip.so": "hip"}, compression="xz"),
}


@pytest.fixture(scope="module")
def large() -> bytes:
    """An archive that is fetched in five ranges."""
    return make_archive({f"stage/{number}": os.urandom(MIB) for number in range(34)})


def put(client: S3Client, bucket: str, archives: dict[str, bytes], prefix: str = P) -> None:
    for name, data in run_files(archives).items():
        client.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=data)


def fetch(workspace: Path, backend: S3StorageBackend, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    values = {"stage": "all", "output_dir": "got"} | inputs
    context = make_context(workspace, Mode.FETCH_ARTIFACTS, backend=backend, **values)
    return load_mode(Mode.FETCH_ARTIFACTS).run(dataclasses.replace(context, staging_dir=None))


def is_get_of(name: str, request: Request) -> bool:
    return request.method == "GET" and request.path.endswith(name)


def is_archive(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith((".tar.zst", ".tar.xz"))


def asked_ranges(bucket: Bucket) -> list[tuple[int, int]]:
    """The byte ranges that were asked for of the large archive, end exclusive, in order."""
    headers = [request.headers.get("range", "") for request in bucket.proxy.requests if is_get_of(LARGE, request)]
    found = [re.fullmatch(r"bytes=(\d+)-(\d+)", header) for header in headers]
    return [(int(match[1]), int(match[2]) + 1) for match in found if match]


@pytest.mark.parametrize("fault", [CutShort(MIB), Reset(), s3_error(503, "SlowDown")])
def test_a_large_archive_that_breaks_off_in_mid_body_resumes_where_it_was(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, large: bytes, fault: Fault
) -> None:
    put(bucket.client, bucket.name, {LARGE: large})
    broken_at, faults = 3 * PART_SIZE_BYTES, iter([fault] * 6)  # more than obstore itself tries again

    def rule(request: Request) -> Fault:
        is_last = request.headers.get("range", "").startswith(f"bytes={broken_at}-")
        return next(faults, None) if is_get_of(LARGE, request) and is_last else None

    bucket.proxy.rule = rule
    report = fetch(tmp_path, backend, bucket=bucket.name, extract="none")
    assert report.error is None
    assert (tmp_path / "got" / LARGE).read_bytes() == large
    ranges, end = asked_ranges(bucket), broken_at + PART_SIZE_BYTES
    arrived_bytes = fault.after_bytes if isinstance(fault, CutShort) else 0
    again = [asked for asked in ranges if broken_at <= asked[0] < end][1:]
    assert again
    assert set(again) == {(broken_at + arrived_bytes, end)}  # what arrived of a range is not asked for again either
    written_before = sorted(asked for asked in ranges if asked[1] <= broken_at)
    assert written_before == [(start, start + PART_SIZE_BYTES) for start in range(0, broken_at, PART_SIZE_BYTES)]


def test_503_twice_and_then_an_answer_is_success(bucket: Bucket, backend: S3StorageBackend, tmp_path: Path) -> None:
    put(bucket.client, bucket.name, SMALL)
    bucket.proxy.rule = lambda request: s3_error(503, "SlowDown") if request.number <= 2 else None
    report = fetch(tmp_path, backend, bucket=bucket.name, extract="flatten")
    assert (report.error, report.warnings) == (None, ())
    assert read_tree(tmp_path / "got") == {"lib/libblas.so": b"blas", "lib/libhip.so": b"hip"}


@pytest.mark.parametrize("name", ["hip_lib_generic.tar.xz", LARGE])
@pytest.mark.parametrize("inputs", [{}, {"extract": "none"}, {"cache_dir": "cache"}])
def test_a_wrong_digest_leaves_no_file_and_names_both_digests(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, name: str, inputs: dict[str, str]
) -> None:
    good = SMALL.get(name, b"what should be there")
    bad = b"x" * (SINGLE_PUT_LIMIT_BYTES + 1 if name == LARGE else 10)
    put(bucket.client, bucket.name, {name: good})
    bucket.client.put_object(Bucket=bucket.name, Key=f"{P}/{name}", Body=bad)
    report = fetch(tmp_path, backend, bucket=bucket.name, **inputs)
    assert isinstance(report.error, IntegrityError)
    assert digest(good) in str(report.error)
    assert digest(bad) in str(report.error)
    assert read_tree(tmp_path) == {}


def _denied(request: Request) -> Fault:
    return None if request.is_listing else s3_error(403, "AccessDenied")


def _denied_archives(request: Request) -> Fault:
    return s3_error(403, "AccessDenied") if is_archive(request) else None


@pytest.mark.parametrize("rule", [_denied, _denied_archives], ids=["every object", "every archive"])
def test_403_on_every_object_is_one_error_and_never_success_with_no_files(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, rule: Callable[[Request], Fault]
) -> None:
    put(bucket.client, bucket.name, {f"a{number:02}_lib_generic.tar.xz": b"x" for number in range(40)})
    bucket.proxy.rule = rule
    report = fetch(tmp_path, backend, bucket=bucket.name)
    assert isinstance(report.error, NotPermittedError)
    assert (report.exit_code, len(report.result.failed), len(report.result.stored)) == (4, 40, 0)
    assert not report.error.what.startswith("40 of 40")  # the cause itself, told once
    assert report.parts[0].state == "failed"
    assert read_tree(tmp_path / "got") == {}


def test_a_listing_that_is_denied_is_the_error_and_not_an_empty_run(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    put(bucket.client, bucket.name, SMALL)
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    with pytest.raises(NotPermittedError):
        fetch(tmp_path, backend, bucket=bucket.name)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (s3_error(404, "NoSuchKey"), (NotFoundError, 3)),
        (s3_error(403, "AccessDenied"), (NotPermittedError, 4)),
        (Reset(), (ServiceUnavailableError, 5)),
    ],
)
def test_gone_denied_and_unreachable_are_told_apart(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path, fault: Fault, told: tuple[type, int]
) -> None:
    put(bucket.client, bucket.name, SMALL)
    bucket.proxy.rule = lambda request: fault if is_archive(request) else None
    report = fetch(tmp_path, impatient_backend, bucket=bucket.name)
    assert {(type(item.error), report.exit_code) for item in report.result.failed} == {told}


def test_one_archive_that_is_denied_costs_only_itself(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    put(bucket.client, bucket.name, SMALL)
    bucket.proxy.rule = lambda request: Answer(403) if is_get_of("hip_lib_generic.tar.xz", request) else None
    report = fetch(tmp_path, backend, bucket=bucket.name)
    assert report.exit_code == 4
    assert report.outputs["artifacts"] == '["blas_lib_gfx1151"]'


# --- an empty run ---------------------------------------------------------------------------------------------------


@pytest.fixture
def inventory(moto_client: S3Client) -> Iterator[S3Client]:
    """Two buckets of the inventory; the others are not there, and looking at them fails."""
    names = ("therock-ci-artifacts", "therock-nightly-artifacts")
    for name in names:
        moto_client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    yield moto_client
    for name in names:
        for entry in moto_client.list_objects_v2(Bucket=name).get("Contents", []):
            moto_client.delete_object(Bucket=name, Key=entry["Key"])
        moto_client.delete_bucket(Bucket=name)


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        (("therock-nightly-artifacts", P), "Set release_type: nightly."),
        (("therock-ci-artifacts", "100-windows"), "Set platform: windows."),
    ],
)
def test_an_empty_run_is_an_error_that_says_where_its_outputs_are(
    inventory: S3Client, backend: S3StorageBackend, tmp_path: Path, place: tuple[str, str], remedy: str
) -> None:
    put(inventory, place[0], SMALL, prefix=place[1])
    with pytest.raises(NotFoundError) as caught:
        fetch(tmp_path, backend)
    assert (caught.value.why, caught.value.remedy) == (f"found in s3://{'/'.join(place)}", remedy)
    assert not (tmp_path / "got").exists()


def test_buckets_that_cannot_be_looked_at_do_not_hide_that_a_run_is_empty(
    bucket: Bucket, inventory: S3Client, backend: S3StorageBackend, tmp_path: Path
) -> None:
    denied = ("/therock-nightly-artifacts", "/therock-dev-artifacts")
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.path.startswith(denied) else None
    with pytest.raises(NotFoundError) as caught:
        fetch(tmp_path, backend)
    assert "run 100 has no outputs" in caught.value.what
    assert re.search(r"\d more could not be looked at", caught.value.why)


# --- disk, signals, other processes ---------------------------------------------------------------------------------

_FULL_DISK = """
import dataclasses, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from fakes.contexts import make_context
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
workspace, disk = Path(sys.argv[3]), Path(sys.argv[4])
context = make_context(workspace, Mode.FETCH_ARTIFACTS, stage="all", output_dir=str(disk / "got"), extract=sys.argv[5])
report = load_mode(Mode.FETCH_ARTIFACTS).run(context)
print(report.exit_code, [item.path for item in report.result.failed], "space" in str(report.error))
print(report.outputs["artifacts"], sorted(path.name for path in (disk / "got").rglob("*") if path.is_file()))
"""


@pytest.mark.needs("unshare")
@pytest.mark.parametrize("extract", ["extract", "flatten"])
def test_a_disk_that_fills_up_while_extracting_costs_that_archive_and_leaves_nothing_half(
    tmp_path: Path, extract: str
) -> None:
    full = make_archive({f"stage/share/{number}": bytes(600_000) for number in range(5)})  # few bytes, until extracted
    write_run(tmp_path / "staged" / P, {"full_lib_generic.tar.zst": full, **SMALL})
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    script = [sys.executable, "-c", _FULL_DISK, _SOURCES, str(Path(_SOURCES).parent / "tests"), str(tmp_path)]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mounted, "sh", str(disk), *script, str(disk), extract],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"this machine lets nobody mount a file system: {done.stderr.strip()}")
    files = ["libblas.so", "libhip.so"]
    if extract == "extract":
        files = ["artifact_manifest.txt", "artifact_manifest.txt", *files]
    assert done.stdout.splitlines() == [
        "8 ['full_lib_generic.tar.zst'] True",
        f'["blas_lib_gfx1151", "hip_lib_generic"] {files}',
    ], done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("extract", ["extract", "none"])
def test_a_signal_in_mid_download_ends_the_step_and_leaves_nothing_half(
    bucket: Bucket, tmp_path: Path, large: bytes, number: signal.Signals, extract: str
) -> None:
    runner = FakeRunner(root=tmp_path / "job", github={"run_id": "100"})
    put(bucket.client, bucket.name, {LARGE: large})
    reached, released = threading.Event(), threading.Event()

    def rule(request: Request) -> Fault:
        if is_get_of(LARGE, request) and request.headers.get("range", "").startswith(f"bytes={PART_SIZE_BYTES}-"):
            reached.set()
            return HoldUp(released)
        return None

    bucket.proxy.rule = rule

    def interrupt(process: subprocess.Popen[bytes], _stdout: Path) -> None:
        while not reached.wait(0.05):
            assert process.poll() is None
        process.send_signal(number)

    try:
        result = runner.run(
            {
                "mode": "fetch-artifacts",
                "bucket": bucket.name,
                "stage": "all",
                "output_dir": "got",
                "cache_dir": "cache",
                "extract": extract,
            },
            env={
                "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
                "AWS_SECRET_ACCESS_KEY": "made-up",
                "AWS_ENDPOINT_URL_S3": bucket.proxy.url,
                "NO_PROXY": "127.0.0.1",
            },
            while_running=interrupt,
        )
    finally:
        released.set()
    assert result.exit_code == 128 + number, result.log
    assert result.outputs["artifacts"] == "[]"
    assert [path for name in ("got", "cache") for path in (runner.workspace / name).rglob("*") if path.is_file()] == []
    assert "cancelled" in result.summary


_SHARED_CACHE = """
import json, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from fakes.contexts import make_context
from fakes.trees import read_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
workspace, me, rounds = Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])
exit_codes, trees = [], []
for number in range(rounds):
    (workspace / f"ready-{number}-{me}").touch()
    while len(list(workspace.glob(f"ready-{number}-*"))) < 2:
        time.sleep(0.0005)
    got = workspace / f"got-{number}-{me}"
    extract = "flatten" if (number + int(me)) % 2 else "none"
    context = make_context(workspace, Mode.FETCH_ARTIFACTS, stage="all", output_dir=str(got), extract=extract,
                           cache_dir=str(workspace / f"cache-{number}"))
    exit_codes.append(load_mode(Mode.FETCH_ARTIFACTS).run(context).exit_code)
    trees.append({name: len(data) for name, data in read_tree(got).items()})
print(json.dumps([exit_codes, trees]))
"""


def test_two_processes_share_one_cache_at_the_same_time(tmp_path: Path) -> None:
    rounds, noise = 20, os.urandom(300_000)
    archives = {
        f"a{number}_lib_generic.tar.xz": make_archive({f"stage/a{number}": noise[number:]}, compression="xz")
        for number in range(6)
    }
    write_run(tmp_path / "staged" / P, archives)
    entries = {f"{digest(data)[:2]}/{digest(data)}.tar.xz": data for data in archives.values()}
    for number in range(rounds):  # begun with what a crash, a full disk and a faulty copy leave
        left = dict(zip(entries, (b"", noise[:1000], *list(entries.values())[2:4]), strict=False))
        write_tree(tmp_path / f"cache-{number}", left)
    command = [sys.executable, "-c", _SHARED_CACHE, _SOURCES, str(Path(_SOURCES).parent / "tests"), str(tmp_path)]
    processes = [
        subprocess.Popen([*command, me, str(rounds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for me in "01"
    ]
    try:
        answers = [process.communicate(timeout=100) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    flat = {f"a{number}": len(noise) - number for number in range(6)}
    whole = {name: len(data) for name, data in archives.items()}
    for me, (stdout, stderr) in enumerate(answers):
        exit_codes, trees = json.loads(stdout or b"[[], []]")
        assert exit_codes == [0] * rounds, stderr.decode()
        assert trees == [flat if (number + me) % 2 else whole for number in range(rounds)]
    for number in range(rounds):
        assert read_tree(tmp_path / f"cache-{number}") == entries


def test_a_cache_that_another_process_keeps_clearing_still_serves(tmp_path: Path) -> None:
    write_run(tmp_path / "staged" / P, SMALL)
    cache, ended = tmp_path / "cache", threading.Event()

    def clear() -> None:
        while not ended.is_set():
            for path in cache.glob("*/*.tar.*"):
                path.unlink(missing_ok=True)
            time.sleep(0)

    clearing = threading.Thread(target=clear)
    clearing.start()
    try:
        for number in range(20):
            context = make_context(
                tmp_path, Mode.FETCH_ARTIFACTS, stage="all", output_dir=f"got-{number}", cache_dir=str(cache)
            )
            report = load_mode(Mode.FETCH_ARTIFACTS).run(context)
            gone = [item for item in report.result.failed if "does not keep" not in item.error.what]
            assert not gone
            for item in report.result.stored:
                assert (tmp_path / f"got-{number}" / item.location.name.partition(".")[0]).is_dir()
    finally:
        ended.set()
        clearing.join()
