"""Each error says what happened, why and what to do, and ends the process with a code of its own kind."""

from __future__ import annotations

import pytest

from _therock_utils import _errors
from _therock_utils._errors import OutputsError

ERRORS = [kind for kind in vars(_errors).values() if isinstance(kind, type) and issubclass(kind, OutputsError)]


@pytest.mark.parametrize(
    ("why", "remedy", "text"),
    [
        ("", "", "what"),
        ("why", "", "what\nwhy"),
        ("", "remedy", "what\nremedy"),
        ("why", "remedy", "what\nwhy\nremedy"),
    ],
)
def test_the_text_has_the_parts_that_are_known(why: str, remedy: str, text: str) -> None:
    assert str(OutputsError("what", why=why, remedy=remedy)) == text


@pytest.mark.parametrize("kind", ERRORS)
def test_every_kind_has_an_exit_code_that_the_module_explains(kind: type[OutputsError]) -> None:
    explained = str(_errors.__doc__).split("Exit codes:")[1]
    assert f"{kind.exit_code} " in explained
    assert kind.exit_code > 0


def test_only_what_passes_by_itself_is_transient() -> None:
    assert [kind.__name__ for kind in ERRORS if kind.transient] == ["ServiceUnavailableError"]


def test_bad_input_is_a_value_error_too() -> None:
    assert [kind.__name__ for kind in ERRORS if issubclass(kind, ValueError)] == ["InputError", "IllegalLocationError"]
