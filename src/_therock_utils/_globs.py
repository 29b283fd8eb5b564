"""Glob patterns over relative paths; one meaning for source folders, staging directories and object keys. Pure.

- A pattern without "/" matches the last segment at any depth (`*.tar.xz*`); one with "/" is anchored at the root, and a
  leading "/" does nothing but anchor (`/a.log` is the root's own file).
- `*`, `?` and `[...]` stay inside one segment; `[!...]` and `[^...]` negate. A dot is like any other character.
- A segment `**` stands for any number of segments, also none; at the end, as `logs/**` or `logs/`, it is everything
  below.
- Case-sensitive on every platform.

Own code, because no library has exactly this: pathspec (gitignore) takes `logs` for the whole subtree, and needs a
minute to try eight stars on 60 characters; wcmatch matches nothing below `logs/`, nothing with `/a.log`, and takes a
malformed `[abc` literally; the standard library's `glob.translate` came with Python 3.13 and backtracks.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import InputError
from _therock_utils._keys import MAX_KEY_BYTES, quote, segment_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

_ANYTHING = "(?s:.)+"
_STARTS = "(?:[^/]+/)*?"  # tries every segment's start, first to last


@dataclass(frozen=True, slots=True)
class PathFilter:
    """Compiled patterns. Matching one path takes time at most proportional to its length times the patterns' length."""

    _include: re.Pattern[str] | None
    _exclude: re.Pattern[str] | None
    _excluded_folders: re.Pattern[str] | None

    def selects(self, relative_path: str) -> bool:
        """Whether the file `relative_path` ("/"-separated) is included and not excluded."""
        if self._include is not None and self._include.match(relative_path) is None:
            return False
        return not self.excludes(relative_path)

    def excludes(self, relative_path: str) -> bool:
        """Whether a pattern of `exclude` matches `relative_path`."""
        return self._exclude is not None and self._exclude.match(relative_path) is not None

    def prunes(self, folder: str) -> bool:
        """Whether everything below `folder` is excluded for certain, so that it need not be read."""
        return self._excluded_folders is not None and self._excluded_folders.match(folder) is not None


def compile_filter(include: Sequence[str] | None = None, exclude: Sequence[str] | None = None) -> PathFilter:
    """Compile both lists; no `include` (None or empty) means everything, and `exclude` wins.

    Raises InputError for a pattern that cannot be meant: see `check_pattern`.
    """
    return _compile_filter(tuple(include or ()), tuple(exclude or ()))


def is_selected(
    relative_path: str, *, include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> bool:
    """Whether `relative_path` matches a pattern of `include` (None or empty: all) and none of `exclude`.

    Raises InputError as `compile_filter` does.
    """
    return compile_filter(include, exclude).selects(relative_path)


def matches(relative_path: str, pattern: str) -> bool:
    """Whether `relative_path` matches `pattern`. Raises InputError as `compile_filter` does."""
    return compile_filter([pattern]).selects(relative_path)


def check_pattern(pattern: str) -> str:
    """Return `pattern`, or raise InputError where it is empty, too long, malformed, or could match no legal path."""
    _segments(pattern)
    return pattern


@functools.lru_cache(maxsize=64)
def _compile_filter(include: tuple[str, ...], exclude: tuple[str, ...]) -> PathFilter:
    excluded = [_segments(pattern) for pattern in exclude]
    return PathFilter(
        _any_of([_expression(_segments(pattern)) + r"\Z" for pattern in include]),
        _any_of([_expression(segments) + r"\Z" for segments in excluded]),
        _any_of([_folder_expression(segments) for segments in excluded if segments[-1] == "**"]),
    )


def _any_of(expressions: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(expressions)) if expressions else None


def _segments(pattern: str) -> list[str]:
    """The segments of `pattern`, with `**` written out where it is implied and never twice in a row."""
    if not pattern or pattern == "/":
        raise _bad_pattern(pattern, "it is empty")
    if len(pattern) > MAX_KEY_BYTES:
        raise _bad_pattern(pattern, f"it has {len(pattern)} characters, more than {MAX_KEY_BYTES}")
    segments = pattern.removeprefix("/").split("/")
    if not segments[-1]:
        segments[-1] = "**"
    if "/" not in pattern:
        segments.insert(0, "**")
    for segment in segments:
        fault = segment_fault(segment)
        if fault:
            raise _bad_pattern(pattern, fault, "Folders are separated by '/'; a literal * ? [ is written [*] [?] [[].")
        _segment_expression(segment, pattern)
    return [
        segment for index, segment in enumerate(segments) if segments[max(index - 1, 0) : index + 1] != ["**", "**"]
    ]


def _expression(segments: list[str]) -> str:
    """A regular expression that matches the path from its start; the caller says what follows.

    What stands between two `**` is an atomic group that takes its first place in the path: a later one could not help
    what follows, so nothing is tried twice and the time cannot explode.
    """
    parts: list[str] = []
    block: list[str] = []
    floating = False  # whether `block` comes after a `**`
    for segment in segments:
        if segment != "**":
            block.append(_segment_expression(segment, segment))
            continue
        if block:
            fixed = "/".join(block) + "/"
            parts.append(f"(?>{_STARTS}{fixed})" if floating else fixed)
        block, floating = [], True
    parts.append((_STARTS if floating else "") + "/".join(block) if block else _ANYTHING)
    return "".join(parts)


def _folder_expression(segments: list[str]) -> str:
    """For a pattern that ends in `**`: matches each folder that lies in the subtree, and the subtree's own root."""
    root = segments[:-1]
    return _expression(root) + r"(?:/|\Z)" if root else ""


def _segment_expression(segment: str, pattern: str) -> str:
    """One segment as an atomic group. Each `*` but the last takes as little as it can, which is enough for globs."""
    chunks = [""]
    position = 0
    while position < len(segment):
        character = segment[position]
        if character == "[":
            expression, position = _class_expression(segment, position, pattern)
            chunks[-1] += expression
            continue
        if character == "*":
            if chunks[-1] or len(chunks) == 1:
                chunks.append("")
        else:
            chunks[-1] += "[^/]" if character == "?" else re.escape(character)
        position += 1
    first, *others = chunks
    if not others:
        return first
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in others[:-1])
    return rf"(?>{first}{middle}[^/]*{others[-1]}(?=/|\Z))"


def _class_expression(segment: str, start: int, pattern: str) -> tuple[str, int]:
    """The class whose "[" is at `start`, and the position after its "]"."""
    begin = start + 1
    negated = segment[begin : begin + 1] in {"!", "^"}
    begin += negated
    end = segment.find("]", begin + 1)  # a "]" in the first place is a literal
    if end < 0:
        raise _bad_pattern(pattern, "a '[' has no ']'", "A literal '[' is written '[[]'.")
    characters = segment[begin:end]
    if any(opening in characters for opening in ("[:", "[.", "[=")):
        raise _bad_pattern(pattern, "named classes are not supported", "Write [a-zA-Z] for [[:alpha:]].")
    members: list[str] = []
    position = 0
    while position < len(characters):
        first = characters[position]
        if characters[position + 1 : position + 2] == "-" and position + 2 < len(characters):
            last = characters[position + 2]
            if first > last:
                raise _bad_pattern(pattern, f"the range {quote(f'{first}-{last}')} is empty")
            members.append(f"{re.escape(first)}-{re.escape(last)}")
            position += 3
        else:
            members.append(re.escape(first))
            position += 1
    return f"(?!/)[{'^' if negated else ''}{''.join(members)}]", end + 1


def _bad_pattern(pattern: str, why: str, remedy: str = "") -> InputError:
    return InputError(f"the glob pattern {quote(pattern)} cannot be used: {why}", remedy=remedy)
