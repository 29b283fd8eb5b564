"""A bound on the bytes that are in flight, and buffers that are used again and again."""

from __future__ import annotations

import contextlib
import mmap
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _therock_utils._cancel import CancelToken

_POLL_SECONDS = 0.1


class ByteBudget:
    """At most `limit_bytes` are held at once; a single larger amount is let through alone."""

    def __init__(self, limit_bytes: int) -> None:
        """Nothing is held yet."""
        self._limit_bytes = limit_bytes
        # Re-entrant: a buffer may be released by the garbage collector, in a thread that holds the lock.
        self._condition = threading.Condition(threading.RLock())
        self._held_bytes = 0

    def acquire(self, size_bytes: int, cancel: CancelToken) -> None:
        """Wait until `size_bytes` fit. Raises CancelledError when somebody asks to stop meanwhile."""
        with self._condition:
            while self._held_bytes and self._held_bytes + size_bytes > self._limit_bytes:
                cancel.check()
                self._condition.wait(_POLL_SECONDS)
            self._held_bytes += size_bytes

    def try_acquire(self, size_bytes: int) -> bool:
        """Hold `size_bytes` if they fit now."""
        with self._condition:
            fits = not self._held_bytes or self._held_bytes + size_bytes <= self._limit_bytes
            if fits:
                self._held_bytes += size_bytes
            return fits

    def release(self, size_bytes: int) -> None:
        """Give `size_bytes` back."""
        with self._condition:
            self._held_bytes -= size_bytes
            self._condition.notify_all()

    @contextlib.contextmanager
    def holding(self, size_bytes: int, cancel: CancelToken) -> Iterator[None]:
        """Hold `size_bytes` for the length of a block."""
        self.acquire(size_bytes, cancel)
        try:
            yield
        finally:
            self.release(size_bytes)


class PartBuffers:
    """Buffers for parts, at most `limit_bytes` of them in use.

    A buffer comes back by itself when the last reference to its view is gone, which is when obstore has sent the part:
    obstore keeps that very object, and makes no copy. Anonymous mappings keep the C heap from fragmenting.
    """

    def __init__(self, limit_bytes: int, *, kept_bytes: int) -> None:
        """No buffer exists yet. Buffers of `kept_bytes` are kept for the next part, others are given up."""
        self._budget = ByteBudget(limit_bytes)
        self._lock = threading.RLock()
        self._kept_bytes = kept_bytes
        self._free: list[mmap.mmap] = []
        self._references: dict[int, weakref.ref[memoryview]] = {}

    def take(self, size_bytes: int, capacity_bytes: int, cancel: CancelToken) -> memoryview:
        """A writable view of `size_bytes` (over 0) of a buffer of `capacity_bytes`.

        Waits as `ByteBudget.acquire` does, and raises as it does.
        """
        self._budget.acquire(capacity_bytes, cancel)
        with self._lock:
            reusable = self._free and capacity_bytes == self._kept_bytes
            buffer = self._free.pop() if reusable else mmap.mmap(-1, capacity_bytes)

        def give_back(reference: weakref.ref[memoryview]) -> None:
            with self._lock:
                del self._references[id(reference)]
                if capacity_bytes == self._kept_bytes:
                    self._free.append(buffer)
            self._budget.release(capacity_bytes)

        view = memoryview(buffer)[:size_bytes]
        reference = weakref.ref(view, give_back)
        with self._lock:
            self._references[id(reference)] = reference  # a weak reference that is itself dropped calls nobody
        return view
