"""A token tells every worker to stop, at once and with the first signal's number."""

from __future__ import annotations

import signal
import threading

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError


def test_a_fresh_token_stops_nobody() -> None:
    token = CancelToken()
    assert not token.cancelled
    token.check()
    token.sleep(0)


def test_the_first_signal_decides_the_exit_code() -> None:
    token = CancelToken()
    token.cancel(signal.SIGTERM)
    token.cancel(signal.SIGINT)
    assert token.cancelled
    for stop in (token.check, lambda: token.sleep(3600)):
        with pytest.raises(CancelledError, match="signal 15") as caught:
            stop()
        assert caught.value.exit_code == 143


def test_a_sleeper_is_woken() -> None:
    token, woken = CancelToken(), []

    def sleep() -> None:
        try:
            token.sleep(3600)
        except CancelledError as error:
            woken.append(error.exit_code)

    sleepers = [threading.Thread(target=sleep) for _ in range(3)]
    for sleeper in sleepers:
        sleeper.start()
    token.cancel()
    for sleeper in sleepers:
        sleeper.join(60)
    assert woken == [130] * 3
