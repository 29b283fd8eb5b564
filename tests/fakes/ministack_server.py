"""A ministack server as a process of its own: it pins a botocore that is not ours."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 60


@contextmanager
def ministack_server(program: Path, folder: Path) -> Iterator[str]:
    """The server's URL while it runs; `folder` takes its log and whatever it keeps. Raises where it does not start."""
    port = _free_port()
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_HOST": "127.0.0.1",
        "SERVICES": "s3",
        "S3_PERSIST": "0",
        "LOG_LEVEL": "WARNING",
    }
    log = folder / "ministack.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program], env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(process, url, log)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/_localstack/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    message = f"ministack did not start: {log.read_text(errors='replace')[-2000:]}"
    raise RuntimeError(message)
