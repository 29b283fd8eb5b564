"""What GitHub's runner reads of a step: its console lines and its command files, parsed by the runner's own rules."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMMARY_LIMIT_BYTES = 1_048_576
OUTPUTS_LIMIT_BYTES = 1_048_576
ANNOTATIONS_PER_TYPE = 10

_ANNOTATION_LEVELS = ("error", "warning", "notice")
_COMMANDS = frozenset(
    {
        *_ANNOTATION_LEVELS,
        "add-mask",
        "add-matcher",
        "debug",
        "echo",
        "endgroup",
        "group",
        "remove-matcher",
        "save-state",
        "set-env",
        "set-output",
        "stop-commands",
    }
)
_UNESCAPED_DATA = {"%0D": "\r", "%0A": "\n", "%25": "%"}
_UNESCAPED_PROPERTY = {**_UNESCAPED_DATA, "%3A": ":", "%2C": ","}
_UNESCAPED_BRACKET = {**_UNESCAPED_DATA, "%3B": ";", "%5D": "]"}
_FORBIDDEN_ENVIRONMENT = frozenset({"NODE_OPTIONS"})


class FileCommandError(ValueError):
    """A command file with a line that the runner refuses; the step fails."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command found on the console: `::name properties::value` or `##[name properties]value`, unescaped."""

    name: str
    value: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """An error, warning or notice as GitHub shows it beside the run."""

    level: str
    message: str
    title: str = ""
    file: str = ""
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Console:
    """What the runner makes of a step's output: `log` is what a person sees, secrets masked as `***`."""

    commands: tuple[Command, ...]
    annotations: tuple[Annotation, ...]
    masks: tuple[str, ...]
    log: str


def parse_command(line: str) -> Command | None:
    """Find the command in one console line: `::` counts at its start (after spaces), `##[` anywhere."""
    return _colon_command(line.lstrip()) or _bracket_command(line)


def read_console(*streams: str, masks: tuple[str, ...] = ()) -> Console:
    r"""Read whole streams one after another; a line ends at \n, \r or both, as for the runner.

    Commands between `::stop-commands::token` and `::token::` are plain text. Ten annotations of a level are kept.
    """
    commands: list[Command] = []
    annotations: list[Annotation] = []
    log: list[str] = []
    secrets = list(masks)
    counts: Counter[str] = Counter()
    for stream in streams:
        stop_token = ""
        for line in re.split(r"\r\n|\r|\n", stream.removesuffix("\n")) if stream else ():
            if stop_token:
                if line.strip().lower() == f"::{stop_token}::".lower():
                    stop_token = ""
                else:
                    log.append(_masked(line, secrets))
                continue
            command = parse_command(line)
            if command is None:
                log.append(_masked(line, secrets))
                continue
            commands.append(command)
            if command.name == "stop-commands":
                stop_token = command.value
            elif command.name == "add-mask":
                secrets += [part for part in (command.value, *command.value.splitlines()) if part.strip()]
            elif command.name in _ANNOTATION_LEVELS:
                counts[command.name] += 1
                if counts[command.name] <= ANNOTATIONS_PER_TYPE:
                    annotations.append(_annotation(command, secrets))
                log.append(_masked(f"{command.name}: {command.value}", secrets))
            else:
                log.append(_masked(command.value, secrets))
    unique_masks = tuple(dict.fromkeys(secrets))
    return Console(
        commands=tuple(commands), annotations=tuple(annotations), masks=unique_masks, log="\n".join(log) + "\n"
    )


def parse_key_values(text: str, *, file_name: str) -> dict[str, str]:
    r"""Read `name=value` and `name<<delimiter ... delimiter` lines; only \n ends a line.

    Raises:
        FileCommandError: a line is neither, a name or delimiter is empty, or a delimiter never comes.
    """
    values: dict[str, str] = {}
    lines = text.removeprefix("\ufeff").split("\n")
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line:
            continue
        equals, heredoc = line.find("="), line.find("<<")
        if equals >= 0 and (heredoc < 0 or equals < heredoc):
            name, _, value = line.partition("=")
        elif heredoc >= 0:
            name, _, delimiter = line.partition("<<")
            if not delimiter:
                raise FileCommandError(f"{file_name}: invalid format '{line}': the delimiter is empty")
            if delimiter not in lines[position:]:
                raise FileCommandError(f"{file_name}: invalid value: matching delimiter not found '{delimiter}'")
            end = lines.index(delimiter, position)
            value = "\n".join(lines[position:end])
            position = end + 1
        else:
            raise FileCommandError(f"{file_name}: invalid format '{line}'")
        if not name:
            raise FileCommandError(f"{file_name}: invalid format '{line}': the name is empty")
        values[name] = value
    return values


def parse_environment(text: str) -> dict[str, str]:
    """Read GITHUB_ENV: as outputs, without the names that the runner forbids."""
    values = parse_key_values(text, file_name="GITHUB_ENV")
    if forbidden := sorted(_FORBIDDEN_ENVIRONMENT.intersection(name.upper() for name in values)):
        raise FileCommandError(f"GITHUB_ENV: can't store {forbidden[0]}")
    return values


def _colon_command(text: str) -> Command | None:
    end = text.find("::", 2) if text.startswith("::") else -1
    if end < 0:
        return None
    name, _, properties = text[2:end].partition(" ")
    return _command(name, properties, text[end + 2 :], ",", _UNESCAPED_PROPERTY, _UNESCAPED_DATA)


def _bracket_command(text: str) -> Command | None:
    start = text.find("##[")
    end = text.find("]", start) if start >= 0 else -1
    if end < 0:
        return None
    name, _, properties = text[start + 3 : end].partition(" ")
    return _command(name, properties, text[end + 1 :], ";", _UNESCAPED_BRACKET, _UNESCAPED_BRACKET)


def _command(  # noqa: PLR0917 - two callers with the same six things
    name: str, properties: str, value: str, separator: str, escapes: Mapping[str, str], value_escapes: Mapping[str, str]
) -> Command | None:
    if name.lower() not in _COMMANDS:
        return None
    pairs = (item.partition("=") for item in properties.strip().split(separator) if "=" in item)
    return Command(
        name=name.lower(),
        value=_unescaped(value, value_escapes),
        properties={key.strip(): _unescaped(text, escapes) for key, _, text in pairs},
    )


def _unescaped(text: str, escapes: Mapping[str, str]) -> str:
    """Undo the escapes; `%25` comes last, so that `%250A` becomes `%0A`."""
    for escape, character in escapes.items():
        if escape != "%25":
            text = text.replace(escape, character)
    return text.replace("%25", "%")


def _annotation(command: Command, secrets: list[str]) -> Annotation:
    shown = {name: _masked(command.properties.get(name, ""), secrets) for name in ("title", "file", "line")}
    return Annotation(level=command.name, message=_masked(command.value, secrets), **shown)


def _masked(text: str, secrets: list[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
