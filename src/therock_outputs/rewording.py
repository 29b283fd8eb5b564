"""The same error in the words of whoever meets it. Pure."""

from __future__ import annotations

from _therock_utils._errors import OutputsError


def reworded(error: OutputsError, what: str, *, why: str, remedy: str) -> OutputsError:
    """An error of the kind of `error`, so with its exit code, that says something else.

    Of a kind that is not made of words, such as CancelledError, it is the nearest one above that is.
    """
    return made_of_words(type(error))(what, why=why, remedy=remedy)


def made_of_words(kind: type[OutputsError]) -> type[OutputsError]:
    """`kind`, or the nearest one above it that is made as OutputsError is, of what, why and remedy."""
    while any("__init__" in vars(base) for base in kind.__mro__[: kind.__mro__.index(OutputsError)]):
        kind = next(base for base in kind.__bases__ if issubclass(base, OutputsError))
    return kind
