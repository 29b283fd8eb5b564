"""What action.yml and the tables of the documents say, made from the settings model and the modes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from _therock_utils.workflow_outputs import ALIASES
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode
from therock_outputs.render_outputs import COMMON_OUTPUTS
from therock_outputs.settings import InputField, input_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPRESSIONS: Final = {"github_token": "${{ github.token }}", "job_status": "${{ job.status }}"}
"""Defaults that only the runner can fill in."""

_TITLE: Final = "therock-outputs"
_DESCRIPTION: Final = "Stores, finds and links the outputs of a ROCm CI run in S3."


def action_outputs() -> Mapping[str, str]:
    """Output name to description, common ones first; one that several modes have is described once."""
    outputs = dict(COMMON_OUTPUTS)
    for mode in Mode:
        for name, description in load_mode(mode).OUTPUTS.items():
            outputs.setdefault(name, description)
    return outputs


def modes_of_output(name: str) -> tuple[Mode, ...]:
    """The modes that have the output `name`."""
    return tuple(mode for mode in Mode if name in COMMON_OUTPUTS or name in load_mode(mode).OUTPUTS)


def render_action_yml() -> str:
    """action.yml. Strings are quoted as JSON, which YAML reads the same."""
    lines = [
        "# Made by `.ci/document` from src/therock_outputs/settings.py and the modes; a test holds them equal.",
        f"name: {_TITLE}",
        f"description: {json.dumps(_DESCRIPTION)}",
        "branding:",
        "  icon: archive",
        "  color: red",
        "inputs:",
    ]
    for field in input_fields():
        lines += [
            f"  {field.name}:",
            f"    description: {json.dumps(_input_description(field))}",
            f"    required: {json.dumps(field.name == 'mode')}",
        ]
        if field.name != "mode":
            lines.append(f"    default: {json.dumps(_EXPRESSIONS.get(field.name, ''))}")
    lines.append("outputs:")
    for name, description in action_outputs().items():
        lines += [f"  {name}:", f"    description: {json.dumps(description + _modes_note(modes_of_output(name)))}"]
    lines += ["runs:", "  using: docker", "  image: Dockerfile", ""]
    return "\n".join(lines)


def render_modes_table() -> str:
    """Markdown: a row a mode."""
    rows = [f"| `{mode}` | {mode.purpose} |" for mode in Mode]
    return "\n".join(["| mode | what it does |", "|---|---|", *rows])


def render_inputs_table() -> str:
    """Markdown: a row an input."""
    rows = [
        f"| `{field.name}` | {_cell(field.shown_default)} | {_cell(field.description)} | {_modes_cell(field.modes)} |"
        for field in input_fields()
    ]
    return "\n".join(["| input | default | meaning | modes |", "|---|---|---|---|", *rows])


def render_outputs_table() -> str:
    """Markdown: a row an output."""
    rows = [
        f"| `{name}` | {_cell(description)} | {_modes_cell(modes_of_output(name))} |"
        for name, description in action_outputs().items()
    ]
    return "\n".join(["| output | meaning | modes |", "|---|---|---|", *rows])


def replace_section(text: str, name: str, body: str) -> str:
    """`text` with `body` between its markers `<!-- name -->` and `<!-- /name -->`. Raises ValueError without them."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        message = f"the markers of section {name} are missing"
        raise ValueError(message)
    return f"{before}{begin}\n{body}\n{end}{after}"


def render_readme(text: str) -> str:
    """The README with its tables made anew."""
    for name, body in (
        ("modes", render_modes_table()),
        ("inputs", render_inputs_table()),
        ("outputs", render_outputs_table()),
    ):
        text = replace_section(text, name, body)
    return text


def render_layout_page(text: str) -> str:
    """docs/workflow_outputs.md with its table of aliases made anew."""
    rows = [f"| `{first}` | `{second}` | {when} |" for first, second, when in ALIASES]
    return replace_section(text, "aliases", "\n".join(["| method | method | when |", "|---|---|---|", *rows]))


def _input_description(field: InputField) -> str:
    default = f" Default: {field.shown_default}." if field.shown_default and field.name != "mode" else ""
    modes = f" One of: {', '.join(Mode)}." if field.name == "mode" else _modes_note(field.modes)
    return (field.description + default + modes).replace("${{ ", "").replace(" }}", "")


def _modes_note(modes: tuple[Mode, ...]) -> str:
    return "" if len(modes) == len(Mode) else f" ({', '.join(modes)})"


def _modes_cell(modes: tuple[Mode, ...]) -> str:
    return "all" if len(modes) == len(Mode) else ", ".join(f"`{mode}`" for mode in modes)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
