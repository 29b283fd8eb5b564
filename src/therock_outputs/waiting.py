"""Waits for a producer: asks again, with growing pauses, until what is asked for is complete or the time is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from _therock_utils._cancel import CancelToken

_T = TypeVar("_T")
_FIRST_PAUSE_SECONDS: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
_GROWTH: Final = 1.5


def wait_for(
    look: Callable[[], tuple[_T, str]],
    *,
    wait_seconds: float,
    cancel: CancelToken,
    say: Callable[[str], None],
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] | None = None,
) -> _T:
    """What `look` found, as soon as nothing is lacking or `wait_seconds` are over; it is asked once at least.

    `look` returns what it found and what is lacking, in words, "" where nothing is. Raises what it raises, and
    CancelledError during a pause.
    """
    sleep = sleep or cancel.sleep
    deadline, pause_seconds = now() + wait_seconds, _FIRST_PAUSE_SECONDS
    while True:
        found, lacking = look()
        left_seconds = deadline - now()
        if not lacking or left_seconds <= 0:
            return found
        say(f"waiting, {left_seconds:.0f} s at most: {lacking}")
        sleep(min(pause_seconds, left_seconds))
        pause_seconds = min(pause_seconds * _GROWTH, _LONGEST_PAUSE_SECONDS)
