"""SIGINT and SIGTERM become a cancel token, also where the main thread is inside a long library call.

The runner sends SIGINT, 7.5 s later SIGTERM, 2.5 s later it kills (runner documentation, "Cancelling a workflow run").
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _therock_utils._cancel import CancelToken

GRACE_SECONDS: Final = 4.8
"""Time between the signal and the process's end, however busy it is."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def cancel_on_signals(cancel: CancelToken, *, last_words: Callable[[], None]) -> Iterator[None]:
    """Set `cancel` at a signal; if the process has not ended in time, call `last_words` and end it at once.

    On POSIX a thread of its own waits for the signals, which are blocked elsewhere: Python's handlers would have to
    wait for the main thread. They keep a handler too: process 1 of a container is not sent what it does not handle.
    """
    finished = threading.Event()

    def watch(signal_number: int) -> None:
        cancel.cancel(signal_number)
        if not finished.wait(GRACE_SECONDS):
            try:
                last_words()
            finally:
                os._exit(128 + signal_number)

    def start_watching(signal_number: int, _frame: object) -> None:
        threading.Thread(target=watch, args=(signal_number,), daemon=True).start()

    earlier = {number: signal.signal(number, start_watching) for number in _SIGNALS}
    waits = hasattr(signal, "pthread_sigmask")
    if waits:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=lambda: watch(signal.sigwait(_SIGNALS)), daemon=True).start()
    try:
        yield
    finally:
        finished.set()
        if waits:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for number, handler in earlier.items():
            signal.signal(number, handler)
