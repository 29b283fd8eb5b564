"""Daemon threads that work through jobs, and a wait for them that a signal can end.

The threads are daemons, unlike those of concurrent.futures, because a request that hangs must not keep the process from
exiting after a cancel.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from _therock_utils._cancel import CancelToken

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Lane:
    """Jobs that run in their order, at most `concurrency` of them at once. A job deals with its own failures."""

    jobs: Sequence[Callable[[], None]]
    concurrency: int


def run_lanes(lanes: Sequence[Lane], *, cancel: CancelToken, grace_seconds: float) -> bool:
    """Run all lanes at the same time; True when every job has ended.

    After a cancel the jobs have `grace_seconds` to end; False when some have not (their threads are left behind).
    Raises the first exception that a job let through; an exception in the waiting thread (KeyboardInterrupt) cancels.
    """
    crew = _Crew()
    for lane in lanes:
        crew.start(lane)
    try:
        return crew.wait(cancel, grace_seconds)
    except BaseException:
        cancel.cancel()
        crew.wait(cancel, grace_seconds)
        raise


class _Crew:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._running = 0
        self._fault: BaseException | None = None

    def start(self, lane: Lane) -> None:
        jobs = iter(lane.jobs)
        count = min(lane.concurrency, len(lane.jobs))
        with self._condition:
            self._running += count
        for _ in range(count):
            threading.Thread(target=self._work, args=(jobs,), name="therock-transfer", daemon=True).start()

    def _work(self, jobs: Iterator[Callable[[], None]]) -> None:
        try:
            while self._fault is None:
                with self._condition:
                    job = next(jobs, None)
                if job is None:
                    break
                job()
        except BaseException as fault:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self._fault = self._fault or fault
        finally:
            with self._condition:
                self._running -= 1
                self._condition.notify_all()

    def wait(self, cancel: CancelToken, grace_seconds: float) -> bool:
        deadline: float | None = None
        with self._condition:
            while self._running:
                if cancel.cancelled and deadline is None:
                    deadline = time.monotonic() + grace_seconds
                if deadline is not None and time.monotonic() >= deadline:
                    break
                self._condition.wait(_POLL_SECONDS)  # short, so that signal handlers run in the main thread
            fault, self._fault = self._fault, None
            finished = not self._running
        if fault is not None:
            raise fault
        return finished
