"""Text from outside, made harmless for a log line, a Markdown table or a workflow command. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BACKTICKS: Final = re.compile(r"`+")
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_UNIT_STEP: Final = 1000
_TEN: Final = 10
_FENCE: Final = 3


def visible(text: str) -> str:
    r"""`text` on one line: control, bidirectional and other invisible characters become `\xNN` or `\uNNNN`."""
    if text.isprintable():  # most text is, and this asks without a look at each character from Python
        return text
    return "".join(
        _escaped(character) if unicodedata.category(character) in _INVISIBLE else character for character in text
    )


def log_line(text: str) -> str:
    """`text` as one line that the runner takes for no command (it reads `::` at a line's start, `##[` anywhere)."""
    line = visible(text).replace("##[", r"#\x23[")
    return re.sub(r"^(\s*):(?=:)", r"\1\\x3a", line)


def command_data(text: str) -> str:
    """`text` as the message of a workflow command (GitHub documentation, "Workflow commands")."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """`text` as a property's value in a workflow command."""
    return command_data(text).replace(":", "%3A").replace(",", "%2C")


def code(text: str) -> str:
    r"""`text` as a Markdown code span that may stand in a table; nothing in it acts (GitHub Flavored Markdown, 6.3).

    A `|` becomes `\x7c`: whether a backslash before it counts differs between tables, lists and implementations.
    """
    shown = visible(text).replace("|", r"\x7c")
    longest = max((len(run) for run in _BACKTICKS.findall(shown)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if not shown.strip() or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def code_block(lines: Iterable[str], language: str) -> str:
    """`lines` as a fenced code block (GitHub Flavored Markdown, 4.5), one line each; nothing in them ends it early."""
    shown = [visible(line) for line in lines]
    longest = max((len(run) for line in shown for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(_FENCE, longest + 1)
    return "\n".join((f"{fence}{language}", *shown, fence))


def prose(text: str) -> str:
    """`text` as Markdown prose that may stand in a table: every character that could act is escaped.

    What GitHub looks for after it has undone escapes (addresses, mentions, issues, formulas) is broken up by an empty
    comment or an element.
    """
    shown = visible(text).strip().replace("&", "&amp;").replace("<", "&lt;")
    escaped = re.sub(r"([\\`*_\[\]!~])", r"\\\1", shown)
    escaped = re.sub(r"^(?=[-+>=#])", r"\\", escaped)
    escaped = re.sub(r"^(\d+)(?=[.)])", r"\1\\", escaped)
    escaped = re.sub(r"(?i)(https?|ftp)(?=:)|(www)(?=\.)|(@|#(?=\w))", r"\1\2\3<!-- -->", escaped)
    return escaped.replace("$", "<span>$</span>").replace("|", "&#124;")


def link(text: str, url: str) -> str:
    """A Markdown link. `url` is percent-encoded already (StorageLocation.https_url)."""
    return f"[{prose(text)}](<{url}>)"


def size(size_bytes: int) -> str:
    """`size_bytes` for people, in decimal units: `999 B`, `1.5 kB`, `23 MB`."""
    value = float(size_bytes)
    for unit in _UNITS[:-1]:
        if value < _UNIT_STEP - 0.5:
            return _rounded(value, unit)
        value /= _UNIT_STEP
    return _rounded(value, _UNITS[-1])


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`, with thousands separated."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _rounded(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}" if value < _TEN and unit != "B" else f"{value:.0f} {unit}"


def _escaped(character: str) -> str:
    number = ord(character)
    if number <= 0xFF:  # noqa: PLR2004 - one byte
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - two bytes
