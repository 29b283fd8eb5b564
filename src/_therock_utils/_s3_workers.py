"""Daemon threads that work through jobs, and a wait for them that a signal can end.

The threads are daemons, unlike those of concurrent.futures, because a request that hangs must not keep the process from
exiting after a cancel.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from _therock_utils._cancel import CancelToken

_T = TypeVar("_T")
_POLL_SECONDS = 0.1
_ABANDON_SECONDS = 0.5
_FILES_KEPT = 100  # standard streams, 4 large files with 8 connections each, libraries
_FILES_A_WORKER = 3  # a connection, a file, its folder


@dataclass(frozen=True, slots=True)
class Lane:
    """Jobs that are taken in their order by `threads` threads. A job deals with its own failures.

    `jobs` may wait for jobs to come: only this lane's threads wait with it.
    """

    jobs: Iterable[Callable[[], None]]
    threads: int


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


def lane(jobs: Sequence[Callable[[], None]], at_once: int) -> Lane:
    """A lane for jobs that are all known, with no more threads than jobs."""
    return Lane(jobs, min(at_once, len(jobs)))


def call_abandonably(call: Callable[[], _T], *, cancel: CancelToken) -> _T:
    """What `call` returns, from a thread that is left behind when it has not ended 0.5 seconds after a cancel.

    Raises what it raises, and CancelledError.
    """
    answers: list[_T] = []
    errors: list[BaseException] = []

    def job() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised below: a fault that a job lets through cancels
            errors.append(error)

    if not run_lanes([lane([job], 1)], cancel=cancel, grace_seconds=_ABANDON_SECONDS):
        cancel.check()
    for error in errors:
        raise error
    return answers[0]


def affordable_concurrency(wanted: int) -> int:
    """`wanted`, or less where the process may open few files: each worker takes up to three, the rest keeps 100."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, (soft_limit - _FILES_KEPT) // _FILES_A_WORKER))


class _Crew:
    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._running = 0
        self._fault: BaseException | None = None

    def start(self, lane: Lane) -> None:
        jobs, lock = iter(lane.jobs), threading.Lock()
        with self._condition:
            self._running += lane.threads
        for _ in range(lane.threads):
            threading.Thread(target=self._work, args=(jobs, lock), name="therock-transfer", daemon=True).start()

    def _work(self, jobs: Iterator[Callable[[], None]], lock: threading.Lock) -> None:
        try:
            while self._fault is None:
                with lock:
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
