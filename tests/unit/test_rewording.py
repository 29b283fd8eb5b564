"""An error in other words keeps its kind and its exit code."""

from __future__ import annotations

import pytest

from _therock_utils._errors import CancelledError, NotPermittedError, OutputsError, ServiceUnavailableError
from therock_outputs.rewording import reworded


@pytest.mark.parametrize("error", [NotPermittedError("a", why="b"), ServiceUnavailableError("a")])
def test_the_kind_and_exit_code_stay_and_all_words_are_new(error: OutputsError) -> None:
    found = reworded(error, "what", why="why", remedy="remedy")
    assert (type(found), found.exit_code) == (type(error), error.exit_code)
    assert (found.what, found.why, found.remedy) == ("what", "why", "remedy")


def test_what_is_not_made_of_words_becomes_the_nearest_kind_that_is() -> None:
    assert type(reworded(CancelledError(15), "what", why="", remedy="")) is OutputsError
