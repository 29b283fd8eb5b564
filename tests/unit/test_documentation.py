"""action.yml, the README, the layout page and the code say the same."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from _therock_utils import _errors
from _therock_utils.workflow_outputs import ALIASES
from fakes.contexts import STAGED, make_context
from fakes.deb_packages import control_text, deb_of
from fakes.runner import PROJECT
from fakes.trees import write_tree
from fakes.wheels import make_wheel
from therock_outputs.documentation import (
    action_outputs,
    modes_of_output,
    render_action_yml,
    render_layout_page,
    render_readme,
    replace_section,
)
from therock_outputs.main import FAULT_EXIT_CODE
from therock_outputs.mode_names import UPLOAD_MODES, Mode
from therock_outputs.modes import load_mode
from therock_outputs.render_outputs import COMMON_OUTPUTS, render_outputs
from therock_outputs.settings import input_fields

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_job")

_ADVICE = "run .ci/document"


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


def action() -> Mapping[str, Any]:
    return yaml.safe_load(read("action.yml"))


@pytest.mark.parametrize(
    ("name", "render"),
    [
        ("action.yml", lambda _text: render_action_yml()),
        ("README.md", render_readme),
        ("docs/workflow_outputs.md", render_layout_page),
    ],
)
def test_the_file_is_what_the_code_makes_of_it(name: str, render: Any) -> None:  # noqa: ANN401 - two kinds of functions
    text = read(name)
    assert render(text) == text, _ADVICE


def test_action_yml_declares_exactly_the_inputs_of_the_settings() -> None:
    declared = action()["inputs"]
    assert list(declared) == [field.name for field in input_fields()]
    for name, spec in declared.items():
        assert set(spec) == ({"description", "required"} if name == "mode" else {"description", "required", "default"})
        assert spec["required"] == (name == "mode")
        assert "${{" not in spec["description"], "GitHub refuses expressions in a description"
        assert isinstance(spec.get("default", ""), str)
    filled = {name: spec["default"] for name, spec in declared.items() if spec.get("default")}
    assert filled == {"github_token": "${{ github.token }}", "job_status": "${{ job.status }}"}


def test_action_yml_declares_exactly_the_outputs_of_the_modes() -> None:
    declared = action()["outputs"]
    assert list(declared) == list(action_outputs())
    assert set(declared) == {*COMMON_OUTPUTS, *(name for mode in Mode for name in load_mode(mode).OUTPUTS)}
    assert all(spec["description"] for spec in declared.values())


def test_action_yml_is_a_container_action_made_of_this_checkout() -> None:
    assert action()["runs"] == {"using": "docker", "image": "Dockerfile"}
    assert (PROJECT / action()["runs"]["image"]).is_file()
    assert {"name", "description", "branding"} <= set(action())


_READING = {
    Mode.FETCH_ARTIFACTS: {"stage": "all", "output_dir": "fetched"},
    Mode.COPY_ARTIFACTS: {"stage": "all", "source_run_id": "99"},
    Mode.INDEX: {},
    Mode.VERIFY: {},
}
"""Modes that read what another stored, with inputs for that."""

_STORING = {
    Mode.UPLOAD_PYTHON: {"path": "python"},
    Mode.UPLOAD_TARBALLS: {"path": "tarballs"},
    Mode.UPLOAD_PACKAGES: {"path": "debs", "package_type": "deb"},
    Mode.UPLOAD_MANIFEST: {"path": "manifests", "family": "gfx1151"},
    Mode.UPLOAD_REPORT: {"path": "report", "subfolder": "manifest-diff"},
}
"""Modes that store a folder of their own, with inputs for that."""


@pytest.mark.parametrize(
    ("mode", "build"),
    [*((mode, "full") for mode in Mode), *((mode, "missing") for mode in Mode if mode not in _READING)],
)
def test_a_mode_has_exactly_the_outputs_that_it_declares(tmp_path: Path, mode: Mode, build: str) -> None:
    if build == "full":
        artifact = {"artifact_manifest.txt": "stage\n", "stage/lib/libblas.so": "x"}
        write_tree(tmp_path / "build", {"logs/a.log": "a", "artifacts/rand_lib_generic.tar.xz": "x"})
        write_tree(tmp_path / "build/artifacts/blas_lib_generic", artifact)
        for run_id in ("99", "100"):
            stored = load_mode(Mode.UPLOAD_ARTIFACTS).run(
                make_context(tmp_path, Mode.UPLOAD_ARTIFACTS, run_id=run_id, artifacts="blas", lookup="false")
            )
            assert stored.exit_code == 0
        write_tree(
            tmp_path,
            {
                "debs/logs/packaging.log": "built\n",
                "manifests/therock-manifest_torch_py3.12_main.json": "{}",
                "report/index.html": "<p>the same</p>",
            },
        )
        make_wheel(tmp_path / "python", "rocm")
        (tmp_path / "tarballs").mkdir()
        (tmp_path / "tarballs/therock-dist-linux-gfx1151-7.1.0.tar.gz").write_bytes(gzip.compress(b"x"))
        (tmp_path / "debs/rocm_7.1_amd64.deb").write_bytes(deb_of(control_text("rocm", "7.1")))
    about = {"artifact_group": "gfx94X-dcgpu", "stage": "math-libs", "family": "gfx1151"}
    (tmp_path / STAGED).mkdir(exist_ok=True)
    context = make_context(tmp_path, mode, lookup="false", **(_READING | _STORING).get(mode, about))
    report = load_mode(mode).run(context)
    assert set(report.outputs) == set(load_mode(mode).OUTPUTS)
    if build == "full" and mode in _STORING:
        assert report.exit_code == 0
        assert all(report.outputs.values())
    outputs = render_outputs(report, report_path="x")
    assert list(outputs) == [*COMMON_OUTPUTS, *report.outputs]
    assert all(mode in modes_of_output(name) for name in outputs)


def test_each_modes_purpose_and_inputs_are_told() -> None:
    assert set(UPLOAD_MODES) < set(Mode)
    assert all(mode.purpose for mode in Mode)
    modes_with_inputs = {mode for field in input_fields() for mode in field.modes}
    assert modes_with_inputs == set(Mode)


def exit_codes(error: type[_errors.OutputsError]) -> set[int]:
    return {error.exit_code}.union(*map(exit_codes, error.__subclasses__()))


def test_the_readmes_exit_codes_are_those_of_the_errors() -> None:
    _, _, section = read("README.md").partition("### Exit codes\n")
    rows = re.findall(r"^\| ([0-9, ]+) \|", section.partition("\n###")[0], flags=re.MULTILINE)
    told = {int(code) for row in rows for code in row.split(",")}
    cancelled = {_errors.CancelledError(number).exit_code for number in (2, 15)}
    assert told == {0, FAULT_EXIT_CODE} | cancelled | exit_codes(_errors.OutputsError)


def test_the_readmes_examples_give_declared_inputs_and_read_declared_outputs() -> None:
    text = read("README.md")
    steps = [
        step
        for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
        for step in steps_of(yaml.safe_load(block))
    ]
    ours = [step for step in steps if "therock-outputs" in step.get("uses", "")]
    assert len(ours) >= 3
    for step in ours:
        assert set(step["with"]) <= set(action()["inputs"])
        assert step["with"]["mode"] in set(Mode)
    read_outputs = re.findall(r"steps\.\w+\.outputs\.(\w+)", text)
    assert read_outputs
    assert set(read_outputs) <= set(action()["outputs"])


def steps_of(block: object) -> list[dict[str, Any]]:
    return block["steps"] if isinstance(block, dict) else block if isinstance(block, list) else []


def test_the_layout_page_shows_every_alias() -> None:
    text = read("docs/workflow_outputs.md")
    assert all(f"| `{first}` | `{second}` | {when} |" in text for first, second, when in ALIASES)


def test_a_section_is_replaced_between_its_markers_and_nowhere_else() -> None:
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n"
    assert replace_section(text, "x", "new") == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"
    with pytest.raises(ValueError, match="the markers of section y are missing"):
        replace_section(text, "y", "new")
