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

from therock_outputs.mode_names import (
    BUILD_MODES,
    LOG_MODES,
    PATH_MODES,
    SELECTING_MODES,
    STORING_MODES,
    Mode,
)

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

INPUT_PREFIX: Final = "INPUT_"
_ALL: Final = tuple(Mode)
_MAX_CONCURRENCY: Final = 256
_MAX_EXTRACTED_BYTES: Final = 64 * 2**30
_MAX_WAIT_SECONDS: Final = 6 * 3600  # the longest that a job on GitHub's runners lasts
_MAX_LEVEL: Final = 19
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
_Level = Annotated[int, Field(ge=0, le=_MAX_LEVEL)]
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
        flags=("github-repository", "run-github-repo", "repo"),
    )
    lookup: Literal["auto", "true", "false"] = _input(
        "Ask GitHub's API about the run (fork, legacy bucket): true, false, or auto: when a run in S3 is another one "
        "than this job's; locate and staging_dir ask only with true.",
        default="auto",
        shown="auto",
    )
    release_type: str = _input("ci, dev, nightly, prerelease, dev-bkc or nightly-bkc.", shown="RELEASE_TYPE, else ci")
    artifact_group: str = _input(
        "Single-stage matrix variant, e.g. gfx94X-dcgpu; in find-artifacts also a list.",
        modes=(
            Mode.LOCATE,
            Mode.UPLOAD_BUILD,
            Mode.UPLOAD_ARTIFACTS,
            Mode.UPLOAD_PYTHON,
            Mode.UPLOAD_MANIFEST,
            Mode.FETCH_ARTIFACTS,
            Mode.FIND_ARTIFACTS,
            Mode.COPY_ARTIFACTS,
        ),
    )
    stage: str = _input(
        "Multi-arch stage, e.g. math-libs. upload-artifacts: what it makes, or all; fetch-artifacts: what it needs, or "
        "all; copy-artifacts: a list, what they make.",
        modes=(
            Mode.LOCATE,
            Mode.UPLOAD_STAGE,
            Mode.UPLOAD_ARTIFACTS,
            Mode.FETCH_ARTIFACTS,
            Mode.COPY_ARTIFACTS,
        ),
        flags=("stage-name",),
    )
    family: str = _input(
        "GPU family of a per-arch stage, or of packages or manifests of one family, e.g. gfx1151; empty for a generic "
        "stage.",
        modes=(
            Mode.LOCATE,
            Mode.UPLOAD_STAGE,
            Mode.UPLOAD_ARTIFACTS,
            Mode.UPLOAD_PYTHON,
            Mode.UPLOAD_MANIFEST,
        ),
        flags=("amdgpu-family",),
    )
    topology: str = _input(
        "The build's topology, needed where a stage must become artifact names.",
        modes=(Mode.UPLOAD_ARTIFACTS, Mode.FETCH_ARTIFACTS, Mode.COPY_ARTIFACTS),
        shown="BUILD_TOPOLOGY.toml in the workspace",
    )
    families: Words = _input(
        "GPU families: each stands for itself and its targets. Generic artifacts are always included.",
        modes=SELECTING_MODES[1:],
        default=(),
        flags=("amdgpu-families",),
    )
    targets: Words = _input(
        "GPU targets; gfx942 also means gfx942:xnack+. Generic artifacts are always included.",
        modes=SELECTING_MODES[1:],
        default=(),
        flags=("amdgpu-targets", "amdgpu-target"),
    )
    generic_only: bool = _input(
        "true leaves out the artifacts of one GPU.", modes=SELECTING_MODES[1:], default=False, shown="false"
    )
    artifacts: Words = _input(
        "Globs over name, name_component or name_component_target, e.g. blas or blas_lib.",
        modes=SELECTING_MODES,
        default=(),
    )
    exclude_artifacts: Words = _input("The same, to leave out.", modes=SELECTING_MODES, default=())
    exclude_components: Words = _input("Components to leave out, e.g. dbg, test.", modes=SELECTING_MODES, default=())
    include_regex: Lines = _input(
        "Regular expressions over archive names, one a line: fetch takes what matches one, find needs a match of each.",
        modes=(Mode.FETCH_ARTIFACTS, Mode.FIND_ARTIFACTS),
        default=(),
        flags=("require-artifact",),
    )
    exclude_regex: Lines = _input(
        "Regular expressions, one a line: archives to leave out.",
        modes=(Mode.FETCH_ARTIFACTS, Mode.FIND_ARTIFACTS),
        default=(),
    )
    if_missing: Literal["error", "warn", "ignore"] = _input(
        "error, warn or ignore, when an artifact that was asked for by name is not there.",
        modes=(Mode.FETCH_ARTIFACTS, Mode.COPY_ARTIFACTS),
        default="error",
        shown="error",
    )
    layout: Literal["auto", "single-stage", "multi-arch"] = _input(
        "single-stage, multi-arch, or auto: multi-arch in stage modes, else single-stage when artifact_group is set.",
        modes=(Mode.LOCATE, *LOG_MODES, Mode.UPLOAD_PYTHON),
        default="auto",
        shown="auto",
    )
    build_dir: str = _input(
        "The build tree, with logs/ and artifacts/.", modes=BUILD_MODES, default="build", shown="build"
    )
    path: str = _input(
        "The folder of what is stored; required but for upload-artifacts. upload-python takes its dist/ if it has one.",
        modes=(Mode.UPLOAD_ARTIFACTS, *PATH_MODES),
        shown="artifacts in build_dir, for upload-artifacts",
        flags=("input-packages-dir", "input-tarballs-dir", "package-dir", "dist-dir", "report-path"),
    )
    package_type: Literal["", "deb", "rpm"] = _input(
        "deb or rpm; required.", modes=(Mode.UPLOAD_PACKAGES,), flags=("pkg-type",)
    )
    subfolder: str = _input(
        "upload-report: the folder below logs/, required. index: the folder of the run whose pages are written, with "
        "those above and below it, e.g. logs/math-libs.",
        modes=(Mode.UPLOAD_REPORT, Mode.INDEX),
        shown="the whole run, for index",
    )
    index_file: str = _input(
        "Name of the report's own page, which is kept, or else of the page that is made.",
        modes=(Mode.UPLOAD_REPORT,),
        default="index.html",
        shown="index.html",
        flags=("index-file-name",),
    )
    force_index: bool = _input(
        "true replaces pages that another program made, too.", modes=(Mode.INDEX,), default=False, shown="false"
    )
    output_dir: str = _input(
        "Where the artifacts go; required.", modes=(Mode.FETCH_ARTIFACTS,), flags=("download-dir",)
    )
    extract: Literal["extract", "flatten", "bootstrap", "none"] = _input(
        "extract: a folder an artifact; flatten: all merged into one tree; bootstrap: back into the build tree, with "
        ".prebuilt markers; none: the archives.",
        modes=(Mode.FETCH_ARTIFACTS,),
        default="extract",
        shown="extract",
    )
    cache_dir: str = _input(
        "Keep verified archives in this folder, and take them from it; several jobs may share it.",
        modes=(Mode.FETCH_ARTIFACTS,),
        shown="none is kept",
        flags=("download-cache-dir",),
    )
    require_digest: bool = _input(
        "true makes an archive without a .sha256sum an error.",
        modes=(Mode.FETCH_ARTIFACTS,),
        default=False,
        shown="false",
    )
    max_extracted_bytes: Annotated[int, Field(ge=1)] = _input(
        "Bytes that one archive may extract to.",
        modes=(Mode.FETCH_ARTIFACTS,),
        default=_MAX_EXTRACTED_BYTES,
        shown="64 GiB",
    )
    wait_seconds: Annotated[float, Field(ge=0, le=_MAX_WAIT_SECONDS)] = _input(
        "Wait so long for the artifacts of a run that is still under way.",
        modes=(Mode.FETCH_ARTIFACTS, Mode.FIND_ARTIFACTS),
        default=0.0,
        shown="0",
    )
    commit: str = _input("Commit whose runs are looked through, in full or short.", modes=(Mode.FIND_ARTIFACTS,))
    branch: str = _input("Branch whose runs are looked through.", modes=(Mode.FIND_ARTIFACTS,))
    workflow: str = _input(
        "File name of the workflow whose runs are looked through.",
        modes=(Mode.FIND_ARTIFACTS,),
        default="multi_arch_ci.yml",
        shown="multi_arch_ci.yml",
    )
    require_single_run: bool = _input(
        "true: one run must hold everything; else the runs of one commit may hold it together.",
        modes=(Mode.FIND_ARTIFACTS,),
        default=False,
        shown="false",
    )
    require_successful_run: bool = _input(
        "true leaves out runs that did not succeed.", modes=(Mode.FIND_ARTIFACTS,), default=False, shown="false"
    )
    source_run_id: str = _input("The run to copy from.", modes=(Mode.COPY_ARTIFACTS,))
    source_repository: str = _input(
        "owner/name of the repository in which that run ran.", modes=(Mode.COPY_ARTIFACTS,), shown="this repository"
    )
    source_release_type: str = _input("That run's release type.", modes=(Mode.COPY_ARTIFACTS,), shown="release_type")
    source_bucket: str = _input(
        "Copy from this bucket instead of the one that the rule picks.",
        modes=(Mode.COPY_ARTIFACTS,),
        shown="bucket, else by the rule",
    )
    check: Literal["size", "stored", "read"] = _input(
        "size: compare sizes; stored: also the SHA-256 that the service keeps; read: read every byte.",
        modes=(Mode.VERIFY,),
        default="stored",
        shown="stored",
    )
    compression: Literal["zst", "xz"] = _input("zst or xz.", modes=(Mode.UPLOAD_ARTIFACTS,), default="zst", shown="zst")
    compression_level: Annotated[_Level | None, BeforeValidator(_auto_is_none)] = _input(
        "1 to 19 for zst, 0 to 9 for xz.", modes=(Mode.UPLOAD_ARTIFACTS,), default=None, shown="3 for zst, 6 for xz"
    )
    include: Lines = _input(
        "Globs, one a line: files to store, relative to path, of a build to its logs/.",
        modes=(*LOG_MODES, *PATH_MODES),
        default=(),
    )
    exclude: Lines = _input("Globs, one a line: files to leave out.", modes=(*LOG_MODES, *PATH_MODES), default=())
    include_hidden: bool = _input(
        "false leaves out log and report files, and folders, whose name begins with a dot.",
        modes=(*LOG_MODES, Mode.UPLOAD_REPORT),
        default=True,
        shown="true",
    )
    if_no_files_found: Literal["", "error", "warn", "ignore"] = _input(
        "error, warn or ignore, when there is nothing to store.",
        modes=STORING_MODES,
        shown="warn for logs, manifests and reports, else error",
    )
    on_conflict: Literal["overwrite", "error", "skip"] = _input(
        "When other bytes already lie under a key: overwrite (with a warning), error (nothing is stored) or skip. A "
        "package that a repository names is never overwritten: the new one gets a name of its own.",
        modes=STORING_MODES,
        default="overwrite",
        shown="overwrite",
    )
    index: Literal["auto", "write", "none"] = _input(
        "Index pages: auto (where the server does not write them), write or none.",
        modes=(*LOG_MODES, *PATH_MODES),
        default="auto",
        shown="auto",
    )
    staging_dir: str = _input(
        "Use this folder instead of S3; needs no AWS account and no network.", flags=("local-staging-dir",)
    )
    bucket: str = _input("Use this bucket instead of the one that the rule picks.", shown="by the rule")
    github_token: SecretStr = _input(
        "Token for the lookup; needs actions: read.", default=SecretStr(""), shown="${{ github.token }}"
    )
    job_status: Literal["", "success", "failure", "cancelled"] = _input(
        "How the job went so far; artifacts of a build that did not succeed are not stored.",
        modes=BUILD_MODES,
        shown="${{ job.status }}",
    )
    dry_run: bool = _input(
        "Say what would be done, and store or fetch nothing.",
        modes=(*STORING_MODES, Mode.FETCH_ARTIFACTS, Mode.INDEX),
        default=False,
        shown="false",
    )
    concurrency: Annotated[_Concurrency | None, BeforeValidator(_auto_is_none)] = _input(
        f"Small objects in flight, 1 to {_MAX_CONCURRENCY}.", default=None, shown="auto"
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
    github_server_url: str = _environment("GITHUB_SERVER_URL")
    github_workspace: str = _environment("GITHUB_WORKSPACE")
    is_pr_from_fork: str = _environment("IS_PR_FROM_FORK")
    release_type_environment: str = _environment("RELEASE_TYPE")
    runner_os: str = _environment("RUNNER_OS")
    runner_temp: str = _environment("RUNNER_TEMP")
    runner_workspace: str = _environment("RUNNER_WORKSPACE")

    @property
    def stages(self) -> tuple[str, ...]:
        """`stage`, where it may be a list."""
        return _parts(_LIST_SEPARATOR.split(self.stage))

    @property
    def artifact_groups(self) -> tuple[str, ...]:
        """`artifact_group`, where it may be a list."""
        return _parts(_LIST_SEPARATOR.split(self.artifact_group))

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
