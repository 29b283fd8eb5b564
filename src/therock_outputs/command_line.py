"""From argv and the environment to Settings; whatever does not fit becomes one InputError that says all of it."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Any, Final, Never

from pydantic import ValidationError

from _therock_utils._errors import InputError
from _therock_utils._keys import quote
from therock_outputs import VERSION
from therock_outputs.mode_names import STORING_MODES, Mode
from therock_outputs.settings import INPUT_PREFIX, InputField, Settings, input_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SUGGESTION_CUTOFF: Final = 0.6
_MISSPELT_CUTOFF: Final = 0.8
_QUOTED: Final = re.compile(r"'([^']+)'")


def load_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """Read the settings, and warnings about what was given and is not used.

    `arguments` is argv without the program's name. Raises InputError; exits for `--help` and `--version`.
    """
    fields = input_fields()
    given = _parse(arguments, fields)
    warnings = check_input_names({**environment, **given}, fields)
    given_mode = given.get(f"{INPUT_PREFIX}MODE") or environment.get(f"{INPUT_PREFIX}MODE", "").strip()
    check_mode(given_mode)
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise _translate(error) from None
    unused = unused_inputs(settings, fields)
    _check_options(settings, [field for field in unused if f"{INPUT_PREFIX}{field.name.upper()}" in given])
    return settings, (*warnings, *(f"input {field.name} is not used by mode {settings.mode}" for field in unused))


def check_mode(given: str) -> None:
    """Raise InputError, with the list and the nearest one, unless `given` is a mode."""
    modes = [str(mode) for mode in Mode]
    if given in modes:
        return
    what = f"mode {quote(given)} is not known" if given else "no mode was given"
    raise InputError(what, why=suggest(given, modes), remedy=f"Use one of: {', '.join(modes)}.")


def check_input_names(environment: Mapping[str, str], fields: Iterable[InputField]) -> tuple[str, ...]:
    """Look for inputs that nobody declared: the runner passes them on and only warns.

    Raises InputError where one looks like a misspelt input that is not given itself; returns warnings for the others:
    a variable INPUT_* of the whole job may be meant for another action.
    """
    fields = tuple(fields)
    names = [field.name for field in fields]
    known = {flag[2:].replace("-", "_"): field.name for field in fields for flag in field.flags}
    warnings = []
    for variable in sorted(environment):
        name = variable.removeprefix(INPUT_PREFIX).lower()
        if not variable.startswith(INPUT_PREFIX) or name in names or not environment[variable]:
            continue
        near = difflib.get_close_matches(name.replace("-", "_"), known, 1, _MISSPELT_CUTOFF)
        if near and not environment.get(f"{INPUT_PREFIX}{known[near[0]].upper()}", "").strip():
            message = f"input {quote(name)} is not known"
            why = f"Did you mean {known[near[0]]}?"
            raise InputError(message, why=why, remedy=f"The inputs are: {', '.join(names)}.")
        warnings.append(f"input {quote(name)} is not known and not used")
    return tuple(warnings)


def unused_inputs(settings: Settings, fields: Iterable[InputField]) -> tuple[InputField, ...]:
    """The inputs that were set and that the mode does not use."""
    return tuple(
        field
        for field in fields
        if settings.mode not in field.modes and getattr(settings, field.name) not in (field.default, "")
        if field.name != "job_status"  # action.yml always sets it
    )


def _check_options(settings: Settings, unused: Sequence[InputField]) -> None:
    """Raise InputError for options that do nothing: whoever types one means something by it.

    Inputs are another matter: a job may set them once for all its steps.
    """
    if not unused:
        return
    names = ", ".join(field.flags[0] for field in unused)
    remedy = f"therock-outputs {settings.mode} --help lists the options of this mode."
    if settings.mode in STORING_MODES and any(field.name == "output_dir" for field in unused):
        remedy = f"To store into a folder, give --staging-dir. {remedy}"
    raise InputError(f"mode {settings.mode} does not use {names}", remedy=remedy)


def suggest(given: str, known: Sequence[str]) -> str:
    """`Did you mean x?`, or "" where nothing is near."""
    near = difflib.get_close_matches(given.lower(), known, 1, _SUGGESTION_CUTOFF)
    return f"Did you mean {near[0]}?" if near else ""


class _Parser(argparse.ArgumentParser):
    """argparse that raises instead of exiting."""

    def error(self, message: str) -> Never:
        raise InputError(message, remedy="therock-outputs --help lists modes and options.")


def _parse(arguments: Sequence[str], fields: Iterable[InputField]) -> dict[str, Any]:
    fields = list(fields)
    if arguments[:1] in (["help"], ("help",)):
        arguments = [*arguments[1:], "--help"]
    parser = _build_parser(fields, next((Mode(word) for word in arguments if word in set(Mode)), None))
    known, unknown = parser.parse_known_args(_with_bare_switches(arguments, fields))
    if unknown:
        flags = [flag for field in fields for flag in field.flags]
        option = unknown[0].partition("=")[0]  # its value may be a secret
        message = f"option {quote(option)} is not known"
        raise InputError(message, why=suggest(option, flags), remedy="therock-outputs --help lists modes and options.")
    given = {
        name: "\n".join(value) if isinstance(value, list) else value
        for name, value in sorted(vars(known).items())
        if name != "json"  # it is about how results are printed, which `main` does
    }
    return {f"{INPUT_PREFIX}{name.upper()}": value for name, value in given.items() if value}


def _with_bare_switches(arguments: Sequence[str], fields: Iterable[InputField]) -> list[str]:
    """`arguments` with `=true` after each switch that a mode follows: it would be taken for the switch's value."""
    switches = {flag for field in fields if field.is_switch for flag in field.flags}
    modes = set(Mode)
    return [
        f"{argument}=true" if argument in switches and follower in modes else argument
        for argument, follower in zip(arguments, (*arguments[1:], ""), strict=False)
    ]


def _build_parser(fields: Iterable[InputField], mode: Mode | None = None) -> _Parser:
    """The parser; its help has the options of `mode`, all where it is None."""
    modes = "\n".join(f"  {each:<16} {each.purpose}" for each in Mode)
    about = f"Where a ROCm CI run's outputs live, and how they get there.\n\nmodes:\n{modes}"
    if mode is not None:
        about = f"{mode.purpose[:1].upper()}{mode.purpose[1:]}.\n\nREADME.md and docs/ have examples."
    parser = _Parser(
        prog="therock-outputs",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=about,
        usage=f"therock-outputs {mode or 'MODE'} [--option VALUE ...]",
    )
    parser.add_argument("mode", nargs="?", metavar="MODE", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"therock-outputs {VERSION}")
    parser.add_argument("--json", action="store_true", help="Print the outputs as one JSON object.")
    for field in fields:
        if field.name == "mode":
            continue
        default = field.shown_default.removeprefix("${{ ").removesuffix(" }}")
        shown = f" [{default}]".replace("%", "%%") if default else ""
        is_used = mode is None or mode in field.modes
        several = " (several times for several)" if field.is_list else ""
        kind: dict[str, Any] = {"nargs": "?", "const": "true"} if field.is_switch else {}
        if field.is_list:
            kind = {"action": "append"}
        parser.add_argument(
            *field.flags,
            dest=field.name,
            metavar="BOOLEAN" if field.is_switch else "VALUE",
            help=field.description + several + shown if is_used else argparse.SUPPRESS,
            **kind,
        )
    return parser


def _translate(error: ValidationError) -> InputError:
    """One InputError for all that does not fit. The values are not repeated: one of them can be a token."""
    faults = []
    for detail in error.errors(include_url=False):
        name = str(detail["loc"][0]) if detail["loc"] else "settings"
        shown = name.removeprefix(INPUT_PREFIX).lower() if name.startswith(INPUT_PREFIX) else name
        near = suggest(str(detail["input"]), _QUOTED.findall(str(detail.get("ctx", {}).get("expected", ""))))
        said = detail["msg"].replace("'', ", "")  # empty is unset, and no value that anybody gives
        faults.append(f"{shown}: {said[:1].lower()}{said[1:]}" + (f". {near}" if near else ""))
    return InputError(
        f"{len(faults)} input{'s' if len(faults) > 1 else ''} cannot be used: {'; '.join(faults)}",
        remedy="The README's table of inputs says what each takes.",
    )
