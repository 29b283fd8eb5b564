"""A signal cancels at once, also where the main thread is busy, and the process ends with the signal's exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")

# `busy` is what the main thread does once it has said that it is ready.
_PROGRAM = """
import sys, threading, time
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError
from therock_outputs import signals
signals.GRACE_SECONDS = {grace}
token = CancelToken()
def last_words():
    print("last words", flush=True)
    {last_words}
try:
    with signals.cancel_on_signals(token, last_words=last_words):
        print("ready", flush=True)
        {busy}
except CancelledError as error:
    print("ended by itself", flush=True)
    sys.exit(error.exit_code)
"""
# A library call that does not come back to Python's interpreter loop, as a lock taken for ever in the main thread.
_DEAF = "threading.Lock().__enter__(); lock = threading.Lock(); lock.acquire(); lock.acquire()"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(
    started: list[subprocess.Popen[str]], busy: str, *, grace: float = 30, last_words: str = "pass"
) -> subprocess.Popen[str]:
    source = _PROGRAM.format(busy=busy, grace=grace, last_words=last_words)
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_that_asks_ends_by_itself(
    started: list[subprocess.Popen[str]], number: signal.Signals, exit_code: int
) -> None:
    process = start(started, "token.sleep(600)")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (exit_code, "ended by itself\n", "")


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_main_thread_that_does_not_listen_is_ended_after_the_grace(
    started: list[subprocess.Popen[str]], number: signal.Signals, exit_code: int
) -> None:
    process = start(started, _DEAF, grace=0.2)
    process.send_signal(number)
    out, _err = process.communicate(timeout=60)
    assert (process.returncode, out) == (exit_code, "last words\n")


def test_a_failure_of_the_last_words_does_not_keep_the_process(started: list[subprocess.Popen[str]]) -> None:
    process = start(started, _DEAF, grace=0.2, last_words="raise OSError('pipe is gone')")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_the_first_signal_decides_and_later_ones_do_no_harm(started: list[subprocess.Popen[str]]) -> None:
    busy = "token._event.wait(); print('told', flush=True); sys.stdin.readline(); token.check()"
    source = _PROGRAM.format(busy=busy, grace=30, last_words="pass")
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "told\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (130, "ended by itself\n")


def test_after_the_work_signals_mean_what_they_meant_before(started: list[subprocess.Popen[str]]) -> None:
    busy = "pass\n    signals_before = __import__('signal')\n    print('left', flush=True)\n    time.sleep(600)"
    process = start(started, busy)
    assert process.stdout is not None
    assert process.stdout.readline() == "left\n"
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert process.returncode == -signal.SIGTERM
