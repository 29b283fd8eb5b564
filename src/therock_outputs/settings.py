"""Inputs, GitHub's environment and the command line, as one frozen model.

An input arrives as `INPUT_<NAME>` from the runner (GitHub documentation, "Metadata syntax: inputs") or as `--name` from
the command line, which wins. All are strings there; empty means unset. Beside this model only `main` reads the
environment, for the runner's files, and `_therock_utils` what its clients of AWS and GitHub need.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AliasGenerator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from therock_outputs.mode_names import UPLOAD_MODES, Mode

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

INPUT_PREFIX: Final = "INPUT_"
_ALL: Final = tuple(Mode)
_MAX_CONCURRENCY: Final = 256
_LIST_SEPARATOR: Final = re.compile(r"[\n,;]")


def split_list(value: object) -> object:
    """Split at newlines, commas and semicolons; blank parts fall away. What is no string passes through."""
    return _parts(_LIST_SEPARATOR.split(value)) if isinstance(value, str) else value


def split_lines(value: object) -> object:
    """Split at newlines only, for values that may hold commas (paths, patterns)."""
    return _parts(value.split("\n")) if isinstance(value, str) else value


def _parts(values: list[str]) -> tuple[str, ...]:
    return tuple(part for part in (value.strip() for value in values) if part)


def _auto_is_none(value: object) -> object:
    return None if value == "auto" else value


_Concurrency = Annotated[int, Field(ge=1, le=_MAX_CONCURRENCY)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_list)]
Lines = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_lines)]


def _input(
    description: str,
    *,
    modes: tuple[Mode, ...] = _ALL,
    default: Any = "",  # noqa: ANN401 - as pydantic's Field
    shown: str = "",
    flags: tuple[str, ...] = (),
) -> Any:  # noqa: ANN401 - as pydantic's Field
    """Declare an input: `shown` is its default as documentation says it, `flags` are further command line names."""
    extra: Any = {"input": {"modes": [str(mode) for mode in modes], "shown": shown, "flags": list(flags)}}
    return Field(default, description=description, json_schema_extra=extra)


def _environment(name: str) -> Any:  # noqa: ANN401 - as pydantic's Field
    return Field("", validation_alias=name)


class Settings(BaseSettings):
    """Everything that a run is told. Raises pydantic.ValidationError; `command_line.load_settings` translates it."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        case_sensitive=True,
        env_ignore_empty=True,
        hide_input_in_errors=True,  # an input can be a token
        alias_generator=AliasGenerator(validation_alias=lambda name: f"{INPUT_PREFIX}{name.upper()}"),
    )

    mode: Mode = _input("What to do.", default=..., shown="(required)")
    run_id: str = _input("Whose outputs: a workflow run's number.", shown="this run")
    platform: Words = _input(
        "linux or windows; in mode locate also a list of both.", default=(), shown="linux in the container"
    )
    repository: str = _input(
        "owner/name of the repository in which the run ran.",
        shown="this repository",
        flags=("github-repository", "run-github-repo"),
    )
    lookup: Literal["auto", "true", "false"] = _input(
        "Ask GitHub's API about the run (fork, legacy bucket): true, false, or auto: when an upload to S3 is for "
        "another run than this job's; locate and staging_dir ask only with true.",
        default="auto",
        shown="auto",
    )
    release_type: str = _input("ci, dev, nightly, prerelease, dev-bkc or nightly-bkc.", shown="RELEASE_TYPE, else ci")
    artifact_group: str = _input(
        "Single-stage matrix variant, e.g. gfx94X-dcgpu.", modes=(Mode.LOCATE, Mode.UPLOAD_BUILD)
    )
    stage: str = _input(
        "Multi-arch stage, e.g. math-libs.", modes=(Mode.LOCATE, Mode.UPLOAD_STAGE), flags=("stage-name",)
    )
    family: str = _input(
        "GPU family of a per-arch stage, e.g. gfx1151; empty for a generic stage.",
        modes=(Mode.LOCATE, Mode.UPLOAD_STAGE),
        flags=("amdgpu-family",),
    )
    layout: Literal["auto", "single-stage", "multi-arch"] = _input(
        "single-stage, multi-arch, or auto: multi-arch in stage modes, else single-stage when artifact_group is set.",
        default="auto",
        shown="auto",
    )
    build_dir: str = _input(
        "The build tree, with logs/ and artifacts/.", modes=UPLOAD_MODES, default="build", shown="build"
    )
    include: Lines = _input("Globs, one a line: log files to store, relative to logs/.", modes=UPLOAD_MODES, default=())
    exclude: Lines = _input("Globs, one a line: log files to leave out.", modes=UPLOAD_MODES, default=())
    include_hidden: bool = _input(
        "false leaves out log files and folders whose name begins with a dot.",
        modes=UPLOAD_MODES,
        default=True,
        shown="true",
    )
    if_no_files_found: Literal["", "error", "warn", "ignore"] = _input(
        "error, warn or ignore, when there is nothing to store.",
        modes=UPLOAD_MODES,
        shown="error for artifacts, warn for logs and manifest",
    )
    on_conflict: Literal["overwrite", "error", "skip"] = _input(
        "When other bytes already lie under a key: overwrite (with a warning), error (nothing is stored) or skip.",
        modes=UPLOAD_MODES,
        default="overwrite",
        shown="overwrite",
    )
    index: Literal["auto", "write", "none"] = _input(
        "Index pages: auto (where the server does not write them), write or none.",
        modes=UPLOAD_MODES,
        default="auto",
        shown="auto",
    )
    staging_dir: str = _input("Store into this folder instead of S3; needs no AWS account and no network.")
    bucket: str = _input("Store in this bucket instead of the one that the rule picks.", shown="by the rule")
    github_token: SecretStr = _input(
        "Token for the lookup; needs actions: read.", default=SecretStr(""), shown="${{ github.token }}"
    )
    job_status: Literal["", "success", "failure", "cancelled"] = _input(
        "How the job went so far; artifacts of a build that did not succeed are not stored.",
        modes=UPLOAD_MODES,
        shown="${{ job.status }}",
    )
    dry_run: bool = _input(
        "Say what would be stored, and store nothing.", modes=UPLOAD_MODES, default=False, shown="false"
    )
    concurrency: Annotated[_Concurrency | None, BeforeValidator(_auto_is_none)] = _input(
        f"Small objects in flight, 1 to {_MAX_CONCURRENCY}.", modes=UPLOAD_MODES, default=None, shown="auto"
    )
    summary: bool = _input("Write the job summary.", default=True, shown="true")

    aws_endpoint_url: str = _environment("AWS_ENDPOINT_URL")
    aws_endpoint_url_s3: str = _environment("AWS_ENDPOINT_URL_S3")
    github_event_name: str = _environment("GITHUB_EVENT_NAME")
    github_event_path: str = _environment("GITHUB_EVENT_PATH")
    github_job: str = _environment("GITHUB_JOB")
    github_repository: str = _environment("GITHUB_REPOSITORY")
    github_run_attempt: str = _environment("GITHUB_RUN_ATTEMPT")
    github_run_id: str = _environment("GITHUB_RUN_ID")
    github_workspace: str = _environment("GITHUB_WORKSPACE")
    is_pr_from_fork: str = _environment("IS_PR_FROM_FORK")
    release_type_environment: str = _environment("RELEASE_TYPE")
    runner_os: str = _environment("RUNNER_OS")
    runner_temp: str = _environment("RUNNER_TEMP")
    runner_workspace: str = _environment("RUNNER_WORKSPACE")

    @model_validator(mode="before")
    @classmethod
    def _strip(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Blank is unset, too: a value written as a YAML block ends in a line end."""
        stripped = {name: value.strip() if isinstance(value, str) else value for name, value in values.items()}
        return {name: value for name, value in stripped.items() if value != ""}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line first, then the environment. No file of the checkout is read."""
        return init_settings, env_settings


class InputField:
    """One declared input, as documentation and command line see it."""

    __slots__ = ("default", "description", "flags", "modes", "name", "shown_default")

    def __init__(self, name: str, field: FieldInfo) -> None:
        """Read what `_input` left in the field."""
        declared: Any = field.json_schema_extra
        self.name = name
        self.description = field.description or ""
        self.modes = tuple(Mode(mode) for mode in declared["input"]["modes"])
        self.shown_default: str = declared["input"]["shown"]
        self.flags = tuple(f"--{flag}" for flag in (name.replace("_", "-"), *declared["input"]["flags"]))
        self.default = field.default

    @property
    def is_list(self) -> bool:
        """Whether the command line takes it several times."""
        return isinstance(self.default, tuple)

    @property
    def is_switch(self) -> bool:
        """Whether the command line takes it without a value, too."""
        return isinstance(self.default, bool)


def input_fields() -> tuple[InputField, ...]:
    """All declared inputs, in the order of the model."""
    return tuple(
        InputField(name, field)
        for name, field in Settings.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "input" in field.json_schema_extra
    )
