"""An S3 (and STS) server of moto in a thread of the test process, on a free port of 127.0.0.1."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def moto_server() -> Iterator[str]:
    """The server's URL while it runs. All its state is the process's: give each test a bucket of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request would bury a test's own output
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()
