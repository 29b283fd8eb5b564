"""Waiting for a producer ends when nothing is lacking, when the time is over, and at a signal."""

from __future__ import annotations

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, NotFoundError
from therock_outputs.waiting import wait_for


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


def wait(answers: list[tuple[str, str]], *, wait_seconds: float, clock: Clock, said: list[str]) -> str:
    """Wait with these answers, the last of them again and again."""
    look = iter(answers)
    return wait_for(
        lambda: next(look, answers[-1]),
        wait_seconds=wait_seconds,
        cancel=CancelToken(),
        say=said.append,
        now=clock.now,
        sleep=clock.sleep,
    )


def test_what_is_complete_is_returned_at_once() -> None:
    clock, said = Clock(), list[str]()
    assert wait([("all", "")], wait_seconds=60, clock=clock, said=said) == "all"
    assert (clock.pauses, said) == ([], [])


def test_it_asks_again_until_nothing_is_lacking() -> None:
    clock, said = Clock(), list[str]()
    answers = [("none", "blas"), ("some", "rand"), ("all", "")]
    assert wait(answers, wait_seconds=600, clock=clock, said=said) == "all"
    assert clock.pauses == [5.0, 7.5]
    assert said == ["waiting, 600 s at most: blas", "waiting, 595 s at most: rand"]


def test_after_the_time_it_returns_what_is_there() -> None:
    clock = Clock()
    assert wait([("some", "rand")], wait_seconds=20, clock=clock, said=[]) == "some"
    assert sum(clock.pauses) == pytest.approx(20)


def test_without_waiting_it_asks_once() -> None:
    clock = Clock()
    assert wait([("some", "rand"), ("all", "")], wait_seconds=0, clock=clock, said=[]) == "some"
    assert clock.pauses == []


def test_pauses_grow_to_a_minute() -> None:
    clock = Clock()
    wait([("some", "rand")], wait_seconds=3600, clock=clock, said=[])
    assert max(clock.pauses) == pytest.approx(60)
    assert clock.pauses[:-1] == sorted(clock.pauses[:-1])


def test_an_error_ends_it() -> None:
    def look() -> tuple[str, str]:
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError):
        wait_for(look, wait_seconds=60, cancel=CancelToken(), say=lambda _text: None)


def test_a_signal_ends_a_pause() -> None:
    cancel = CancelToken()

    def look() -> tuple[str, str]:
        cancel.cancel(15)
        return "some", "rand"

    with pytest.raises(CancelledError):
        wait_for(look, wait_seconds=60, cancel=cancel, say=lambda _text: None)
