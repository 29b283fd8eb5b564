"""Every input means the same as environment variable, as option and as further option name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from therock_outputs.command_line import load_settings
from therock_outputs.mode_names import Mode
from therock_outputs.settings import INPUT_PREFIX, InputField, Settings, input_fields, split_lines, split_list

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_job")

# An input, a value that is not its default, and what it becomes.
_SAMPLES: dict[str, tuple[str, Any]] = {
    "mode": ("upload-build", Mode.UPLOAD_BUILD),
    "run_id": ("12345", "12345"),
    "platform": ("linux, windows;linux", ("linux", "windows", "linux")),
    "repository": ("ROCm/rocm-libraries", "ROCm/rocm-libraries"),
    "lookup": ("false", "false"),
    "release_type": ("nightly", "nightly"),
    "artifact_group": ("gfx94X-dcgpu", "gfx94X-dcgpu"),
    "stage": ("math-libs", "math-libs"),
    "family": ("gfx1151", "gfx1151"),
    "topology": ("topology.toml", "topology.toml"),
    "families": ("gfx94X-dcgpu;gfx1151", ("gfx94X-dcgpu", "gfx1151")),
    "targets": ("gfx942, gfx1151", ("gfx942", "gfx1151")),
    "generic_only": ("true", True),
    "artifacts": ("blas_lib\nrand*", ("blas_lib", "rand*")),
    "exclude_artifacts": ("fft", ("fft",)),
    "exclude_components": ("dbg,test", ("dbg", "test")),
    "include_regex": ("blas_(lib|run)_.*, x\n^rand", ("blas_(lib|run)_.*, x", "^rand")),
    "exclude_regex": ("_dbg_", ("_dbg_",)),
    "if_missing": ("warn", "warn"),
    "layout": ("single-stage", "single-stage"),
    "build_dir": ("out/build dir", "out/build dir"),
    "path": ("out/artifacts", "out/artifacts"),
    "package_type": ("rpm", "rpm"),
    "subfolder": ("manifest-diff", "manifest-diff"),
    "index_file": ("report.html", "report.html"),
    "force_index": ("true", True),
    "output_dir": ("fetched", "fetched"),
    "extract": ("flatten", "flatten"),
    "cache_dir": ("cache", "cache"),
    "require_digest": ("true", True),
    "max_extracted_bytes": ("1000", 1000),
    "wait_seconds": ("1.5", 1.5),
    "commit": ("0123abc", "0123abc"),
    "branch": ("main", "main"),
    "workflow": ("ci.yml", "ci.yml"),
    "require_single_run": ("true", True),
    "require_successful_run": ("true", True),
    "source_run_id": ("99", "99"),
    "source_repository": ("ROCm/rocm-systems", "ROCm/rocm-systems"),
    "source_release_type": ("dev", "dev"),
    "source_bucket": ("other-bucket", "other-bucket"),
    "check": ("read", "read"),
    "compression": ("xz", "xz"),
    "compression_level": ("9", 9),
    "include": ("*.log\n\n a,b/** \r\n", ("*.log", "a,b/**")),
    "exclude": ("*.tmp", ("*.tmp",)),
    "include_hidden": ("false", False),
    "if_no_files_found": ("ignore", "ignore"),
    "on_conflict": ("skip", "skip"),
    "index": ("write", "write"),
    "staging_dir": ("staged", "staged"),
    "bucket": ("my-bucket", "my-bucket"),
    "github_token": ("ghs_secret", "ghs_secret"),
    "job_status": ("cancelled", "cancelled"),
    "dry_run": ("true", True),
    "concurrency": ("7", 7),
    "summary": ("false", False),
}
_FIELDS = {field.name: field for field in input_fields()}


def value_of(settings: Settings, name: str) -> object:
    value = getattr(settings, name)
    return value.get_secret_value() if name == "github_token" else value


def load(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings(arguments, environment)[0]


def test_every_input_is_tested_here() -> None:
    assert list(_SAMPLES) == list(_FIELDS)


@pytest.mark.parametrize("name", _SAMPLES)
def test_an_input_is_read_from_its_environment_variable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    given, expected = _SAMPLES[name]
    settings = load(monkeypatch, **{"INPUT_MODE": "locate", f"{INPUT_PREFIX}{name.upper()}": given})
    assert value_of(settings, name) == expected


_FLAGS = [(name, flag) for name, field in _FIELDS.items() if name != "mode" for flag in field.flags]


@pytest.mark.parametrize(("name", "flag"), _FLAGS)
def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, flag: str) -> None:
    given, expected = _SAMPLES[name]
    variable = f"{INPUT_PREFIX}{name.upper()}"
    mode = _FIELDS[name].modes[0]
    for arguments in ([flag, given], [f"{flag}={given}"]):
        settings = load(monkeypatch, mode, *arguments, INPUT_MODE="made-up", **{variable: "other"})
        assert value_of(settings, name) == expected
        assert settings.mode is mode


@pytest.mark.parametrize("name", [name for name, field in _FIELDS.items() if field.is_switch])
def test_a_switch_needs_no_value_as_an_option(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert getattr(load(monkeypatch, _FIELDS[name].modes[0], _FIELDS[name].flags[0]), name) is True


@pytest.mark.parametrize("blank", ["", " ", "\n"])
@pytest.mark.parametrize("name", [name for name in _SAMPLES if name != "mode"])
def test_an_empty_value_is_unset(monkeypatch: pytest.MonkeyPatch, name: str, blank: str) -> None:
    variable = f"{INPUT_PREFIX}{name.upper()}"
    unset = value_of(load(monkeypatch, "locate"), name)
    assert value_of(load(monkeypatch, "locate", **{variable: blank}), name) == unset
    given, expected = _SAMPLES[name]
    flag = _FIELDS[name].flags[0]
    assert value_of(load(monkeypatch, "locate", f"{flag}=", **{variable: given}), name) == expected


def test_a_value_written_as_a_yaml_block_loses_its_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, INPUT_MODE="locate\n", INPUT_LOOKUP="false\n", INPUT_SUMMARY=" false\n")
    assert (settings.mode, settings.lookup, settings.summary) == (Mode.LOCATE, "false", False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("GITHUB_RUN_ID", "github_run_id"), ("RELEASE_TYPE", "release_type_environment"), ("RUNNER_TEMP", "runner_temp")],
)
def test_the_environment_of_the_job_is_read_and_empty_is_unset(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    assert getattr(load(monkeypatch, "locate", **{name: "x"}), value) == "x"
    assert getattr(load(monkeypatch, "locate", **{name: ""}), value) == ""


def test_a_name_of_the_environment_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("stage", "lower-case")
    monkeypatch.setenv("STAGE", "no-prefix")
    assert load(monkeypatch, "locate").stage == ""


def test_files_of_the_checkout_are_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("INPUT_BUCKET=evil\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load(monkeypatch, "locate").bucket == ""


def test_a_stage_and_a_group_may_be_lists_where_a_mode_takes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, "copy-artifacts", INPUT_STAGE="a, b\nc", INPUT_ARTIFACT_GROUP="gfx1;gfx2")
    assert settings.stages == ("a", "b", "c")
    assert settings.artifact_groups == ("gfx1", "gfx2")


@pytest.mark.parametrize(("text", "expected"), [("auto", None), ("1", 1), ("256", 256)])
def test_concurrency_is_a_number_or_auto(monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None) -> None:
    assert load(monkeypatch, "locate", "--concurrency", text).concurrency == expected


def test_the_token_is_in_no_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, "locate", INPUT_GITHUB_TOKEN="ghs_secret")
    assert "ghs_secret" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_settings_cannot_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, "locate")
    with pytest.raises(ValidationError):
        settings.stage = "x"


def test_lists_are_split_and_blank_parts_fall_away() -> None:
    assert split_list("a, b;c\n\n;d ") == ("a", "b", "c", "d")
    assert split_lines("a, b;c\r\n\n d ") == ("a, b;c", "d")
    assert split_list(("a",)) == split_lines(("a",)) == ("a",)


def test_every_input_is_described() -> None:
    for field in _FIELDS.values():
        assert isinstance(field, InputField)
        assert field.description.endswith("."), field.name
        assert field.modes, field.name
    assert len({flag for field in _FIELDS.values() for flag in field.flags}) == sum(
        len(field.flags) for field in _FIELDS.values()
    )
