"""A wrong input is told with the nearest right one, and never repeats a value that may be a secret."""

from __future__ import annotations

import os

import pytest

from _therock_utils._errors import InputError
from therock_outputs.command_line import check_input_names, load_settings, suggest
from therock_outputs.mode_names import Mode
from therock_outputs.settings import input_fields

pytestmark = pytest.mark.usefixtures("no_job")


def refusal(*arguments: str) -> InputError:
    with pytest.raises(InputError) as caught:
        load_settings(arguments, os.environ)
    assert caught.value.exit_code == 2
    return caught.value


@pytest.mark.parametrize(
    ("given", "meant"), [("upload-sage", "upload-stage"), ("Locate", "locate"), ("upload_build", "upload-build")]
)
def test_a_misspelt_mode_is_told_with_the_nearest_one(given: str, meant: str) -> None:
    error = refusal(given)
    assert error.what == f"mode '{given}' is not known"
    assert error.why == f"Did you mean {meant}?"
    assert error.remedy == f"Use one of: {', '.join(Mode)}."


def test_no_mode_is_told_with_the_list() -> None:
    error = refusal()
    assert (error.what, error.why) == ("no mode was given", "")
    assert "upload-stage" in error.remedy


def test_the_mode_of_the_command_line_wins_over_a_wrong_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPUT_MODE", "nonsense")
    assert load_settings(["locate"], os.environ)[0].mode is Mode.LOCATE


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("INPUT_BUILD-DIR", "build_dir"),
        ("INPUT_ARTIFACTS_GROUP", "artifact_group"),
        ("INPUT_STAGES", "stage"),
        ("INPUT_AMDGPU_FAMILY", "family"),
        ("INPUT_STAGE-NAME", "stage"),
    ],
)
def test_an_input_that_looks_misspelt_is_an_error(monkeypatch: pytest.MonkeyPatch, variable: str, meant: str) -> None:
    monkeypatch.setenv(variable, "x")
    error = refusal("locate")
    assert error.what == f"input '{variable.removeprefix('INPUT_').lower()}' is not known"
    assert error.why == f"Did you mean {meant}?"
    assert "build_dir" in error.remedy


@pytest.mark.parametrize("way", ["environment", "option"])
def test_an_unknown_input_beside_the_one_it_looks_like_is_a_warning(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setenv("INPUT_STAGES", "of another action")
    monkeypatch.setenv("INPUT_STAGE", "math-libs" if way == "environment" else " ")
    arguments = ["upload-stage", *(["--stage", "math-libs"] if way == "option" else [])]
    settings, warnings = load_settings(arguments, os.environ)
    assert settings.stage == "math-libs"
    assert warnings == ("input 'stages' is not known and not used",)


def test_another_unknown_input_is_a_warning_and_its_value_is_not_told() -> None:
    warnings = check_input_names(
        {"INPUT_ZZZ\u202e": "secret", "INPUT_EMPTY_ONE": "", "OTHER": "x", "INPUT_MODE": "x"}, input_fields()
    )
    assert warnings == (r"input 'zzz\u202e' is not known and not used",)


def test_a_misspelt_option_is_told_with_the_nearest_one_and_without_its_value() -> None:
    error = refusal("locate", "--github-tokn=ghs_secret")
    assert error.what == "option '--github-tokn' is not known"
    assert error.why == "Did you mean --github-token?"
    assert "ghs_secret" not in str(error)


def test_an_option_cannot_be_shortened() -> None:
    assert refusal("locate", "--run", "5").what == "option '--run' is not known"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dry-run", "upload-stage"],
        ["upload-stage", "--dry-run"],
        ["--dry-run", "true", "upload-stage"],
        ["--summary", "false", "--dry-run", "upload-stage"],
        ["--dry-run=true", "upload-stage"],
    ],
)
def test_a_switch_does_not_take_the_mode_for_its_value(arguments: list[str]) -> None:
    settings, _warnings = load_settings(arguments, os.environ)
    assert (settings.mode, settings.dry_run) == (Mode.UPLOAD_STAGE, True)
    assert settings.summary == ("--summary" not in arguments)


def test_an_option_without_its_value_is_an_input_error() -> None:
    assert "--run-id" in refusal("locate", "--run-id").what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lookup", "ghs_secret"),
        ("layout", "ghs_secret"),
        ("concurrency", "0"),
        ("concurrency", "257"),
        ("concurrency", "ghs_secret"),
        ("dry_run", "ghs_secret"),
        ("if_no_files_found", "ghs_secret"),
        ("on_conflict", "ghs_secret"),
        ("job_status", "ghs_secret"),
    ],
)
@pytest.mark.parametrize("way", ["environment", "option"])
def test_a_value_that_does_not_fit_is_named_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, way: str
) -> None:
    arguments = ["locate"]
    if way == "environment":
        monkeypatch.setenv(f"INPUT_{name.upper()}", value)
    else:
        arguments += [f"--{name.replace('_', '-')}", value]
    error = refusal(*arguments)
    assert error.what.startswith(f"1 input cannot be used: {name}: ")
    assert "ghs_secret" not in f"{error} {error!r} {error.__cause__!r}"
    assert error.__suppress_context__


def test_several_faults_are_told_at_once() -> None:
    error = refusal("locate", "--lookup", "x", "--concurrency", "0", "--summary", "perhaps")
    assert error.what.startswith("3 inputs cannot be used: ")
    assert all(name in error.what for name in ("lookup: ", "concurrency: ", "summary: "))


@pytest.mark.skipif(os.name == "nt", reason="names are no bytes there")
def test_a_path_in_latin_1_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Übung".encode("latin-1")
    monkeypatch.setenv("INPUT_BUILD_DIR", os.fsdecode(name))
    assert os.fsencode(load_settings(["upload-stage"], os.environ)[0].build_dir) == name


def test_an_option_of_another_mode_is_an_error_before_anything_is_done() -> None:
    error = refusal("locate", "--build-dir", "x", "--dry-run", "--job-status", "failure")
    assert error.what == "mode locate does not use --build-dir, --dry-run"
    assert error.remedy == "therock-outputs locate --help lists the options of this mode."


def test_who_asks_to_store_into_an_output_dir_is_told_of_the_staging_folder() -> None:
    error = refusal("upload-tarballs", "--path", "x", "--output-dir", "out")
    assert error.remedy.startswith("To store into a folder, give --staging-dir. ")


def test_an_input_of_another_mode_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BUILD_DIR", "x"), ("DRY_RUN", "true"), ("INCLUDE", "*.log"), ("JOB_STATUS", "failure")):
        monkeypatch.setenv(f"INPUT_{name}", value)
    _settings, warnings = load_settings(["locate"], os.environ)
    assert warnings == tuple(f"input {name} is not used by mode locate" for name in ("build_dir", "include", "dry_run"))


def test_an_input_with_its_default_value_is_no_warning() -> None:
    assert load_settings(["locate", "--build-dir", "build", "--include-hidden"], os.environ)[1] == ()


def test_help_names_every_option_and_mode(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load_settings(["--help"], {})
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(flag in text for field in input_fields() if field.name != "mode" for flag in field.flags)
    assert all(mode.purpose in text for mode in Mode)


def test_help_of_a_mode_has_its_purpose_and_its_options_only(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["upload-tarballs", "--help"], ["help", "upload-tarballs"]):
        with pytest.raises(SystemExit):
            load_settings(arguments, {})
        text = capsys.readouterr().out
        assert text.startswith("usage: therock-outputs upload-tarballs ")
        assert Mode.UPLOAD_TARBALLS.purpose[1:] in text
        assert "--path" in text
        assert "--package-type" not in text
        assert Mode.VERIFY.purpose not in text


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(["--version"], {})
    assert capsys.readouterr().out.startswith("therock-outputs ")


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggest("zzzzzz", ["locate"]) == ""


def test_an_option_of_a_list_may_be_given_several_times() -> None:
    given = [
        "upload-stage",
        "--include",
        "*_build.log",
        "--include",
        "a,b.log",
        "--platform",
        "linux",
        "--platform=windows",
    ]
    settings, _ = load_settings(given, {})
    assert settings.include == ("*_build.log", "a,b.log")
    assert settings.platform == ("linux", "windows")


def test_a_misspelt_choice_is_told_with_the_nearest_one(no_job: None) -> None:
    with pytest.raises(InputError, match="Did you mean bootstrap") as caught:
        load_settings(["fetch-artifacts", "--extract", "bootstap"], {})
    assert "bootstap" not in str(caught.value)


def test_help_of_a_mode_has_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load_settings(["verify", "--help"], {})
    shown = capsys.readouterr().out
    assert "--check" in shown
    assert "--output-dir" not in shown
    assert "${{" not in shown
