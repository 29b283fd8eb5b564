"""Transfers work in a small process: few open files, little memory, and an exit that nothing delays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.s3_fault_proxy import Stall

if TYPE_CHECKING:
    from faults.conftest import Bucket

_SOURCES = str(Path(__file__).parents[2] / "src")

_FEW_FILES = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from _therock_utils._transfer_types import DownloadItem, UploadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
folder, bucket = Path(sys.argv[2]), sys.argv[3]
for number in range(500):
    (folder / f"{number}.log").write_bytes(b"%d" % number)
backend = S3StorageBackend(upload_concurrency=400)
at = [StorageLocation(bucket, f"run/{number}.log") for number in range(500)]
stored = backend.upload([UploadItem(folder / location.relative_path[4:], location) for location in at])
fetched = backend.download([DownloadItem(location, folder / "new" / location.relative_path) for location in at])
print(len(stored.stored), len(stored.failed), len(fetched.downloaded), len(fetched.failed))
"""

_FULL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from _therock_utils._transfer_types import DownloadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
folder = Path(sys.argv[2])
items = [DownloadItem(StorageLocation(sys.argv[3], "large"), folder / f"{number}") for number in range(200)]
result = S3StorageBackend().download(items)
print(len(result.failed), {type(item.error).__name__ for item in result.failed}, "space" in str(result.failed[0].error))
print(len({id(item.error) for item in result.failed}) <= 4, [path.name for path in folder.iterdir()])
"""

_EXIT = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from _therock_utils._cancel import CancelToken
from _therock_utils._transfer_types import UploadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
cancel = CancelToken()
threading.Timer(1, cancel.cancel).start()
items = [UploadItem(b"data", StorageLocation(sys.argv[2], f"{number}.log")) for number in range(100)]
result = S3StorageBackend().upload(items, cancel=cancel)
print(len(result.failed), flush=True)
sys.exit(result.failed[0].error.exit_code)
"""


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, _SOURCES, *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def test_500_files_go_up_and_down_with_256_open_files(bucket: Bucket, tmp_path: Path) -> None:
    done = _run(_FEW_FILES, str(tmp_path), bucket.name)
    assert (done.stdout.split(), done.stderr) == (["500", "0", "500", "0"], "")


@pytest.mark.needs("unshare")
def test_a_full_disk_is_told_once_and_leaves_no_partial_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=b"x" * (20 * 1024 * 1024))
    mounted = 'mount -t tmpfs -o size=1m none "$1" && shift && exec "$@"'
    script = [
        "sh",
        "-c",
        mounted,
        "sh",
        str(tmp_path),
        sys.executable,
        "-c",
        _FULL_DISK,
        _SOURCES,
        str(tmp_path),
        bucket.name,
    ]
    done = subprocess.run(["unshare", "-rm", *script], capture_output=True, text=True, timeout=100, check=False)
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"this machine lets nobody mount a file system: {done.stderr.strip()}")
    assert done.stdout.splitlines() == ["200 {'LocalFileError'} True", "True []"], done.stderr


def test_requests_that_hang_do_not_keep_a_cancelled_process_from_its_exit_code(bucket: Bucket) -> None:
    bucket.proxy.rule = lambda request: Stall() if request.method == "PUT" else None
    done = _run(_EXIT, bucket.name)
    assert (done.returncode, done.stdout.split(), done.stderr) == (130, ["100"], "")
