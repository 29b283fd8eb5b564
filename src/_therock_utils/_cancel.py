"""A token that tells every worker to stop; signal handlers set it."""

from __future__ import annotations

import threading

from _therock_utils._errors import CancelledError


class CancelToken:
    """Set once, by a signal handler or a caller; workers ask it between steps and sleep on it."""

    def __init__(self) -> None:
        """A fresh token is not set."""
        self._event = threading.Event()
        self.signal_number = 0

    def cancel(self, signal_number: int = 2) -> None:
        """Ask everybody to stop. The first signal wins: it decides the exit code."""
        if not self._event.is_set():
            self.signal_number = signal_number
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise CancelledError if somebody asked to stop."""
        if self._event.is_set():
            raise CancelledError(self.signal_number)

    def sleep(self, seconds: float) -> None:
        """Sleep, but wake up and raise CancelledError at once when somebody asks to stop."""
        if self._event.wait(seconds):
            raise CancelledError(self.signal_number)
