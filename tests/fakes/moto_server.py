"""An S3 (and STS) server of moto in a thread of the test process, on a free port of 127.0.0.1."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest import mock

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def moto_server() -> Iterator[str]:
    """The server's URL while it runs. All its state is the process's: give each test a bucket of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request would bury a test's own output
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with mock.patch.object(S3Response, "put_object", _one_at_a_time(S3Response.put_object)):
        server.start()
        try:
            host, port = server.get_host_and_port()
            yield f"http://{host}:{port}"
        finally:
            server.stop()


def _one_at_a_time(method: Callable[[S3Response], Any]) -> Callable[[S3Response], Any]:
    """As S3 keeps it: moto checks a condition and stores the object in two steps, and others may come between."""
    lock = threading.Lock()

    @wraps(method)
    def locked(self: S3Response) -> Any:  # noqa: ANN401 - as moto's
        with lock:
            return method(self)

    return locked
