"""Contexts in which a mode runs, and backends that fail as storage does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _therock_utils._cancel import CancelToken
from _therock_utils.storage_backend import LocalStorageBackend
from therock_outputs.context import Context
from therock_outputs.paths import Workspace
from therock_outputs.run_target import resolve_target
from therock_outputs.settings import INPUT_PREFIX, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import ListedObject, StoredBytes, StoredObject, UploadItem, UploadResult
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.mode_names import Mode

STAGED = "staged"


def make_context(
    workspace: Path,
    mode: Mode,
    *,
    backend: StorageBackend | None = None,
    cancel: CancelToken | None = None,
    environment: dict[str, str] | None = None,
    said: list[str] | None = None,
    warnings: tuple[str, ...] = (),
    **inputs: object,
) -> Context:
    """A context of run 100 of ROCm/TheRock that stages into `workspace`/staged, with these inputs."""
    values: dict[str, Any] = {"MODE": mode, "RUN_ID": "100", "PLATFORM": "linux"}
    values |= {name.upper(): value for name, value in inputs.items()}
    given = {f"{INPUT_PREFIX}{name}": value for name, value in values.items()}
    job = {"GITHUB_RUN_ID": "100", "GITHUB_REPOSITORY": "ROCm/TheRock", "GITHUB_JOB": "build"}
    settings = Settings(**given, **(job | (environment or {})))
    cancel = cancel or CancelToken()
    staging_dir = workspace / STAGED
    return Context(
        settings=settings,
        target=resolve_target(settings, cancel, say=lambda _text: None),
        workspace=Workspace(workspace),
        staging_dir=staging_dir,
        cancel=cancel,
        open_backend=lambda: backend or LocalStorageBackend(staging_dir, dry_run=settings.dry_run),
        say=(said if said is not None else []).append,
        warnings=warnings,
    )


class TroubledBackend(LocalStorageBackend):
    """A staging folder that behaves as troubled storage: each hook may raise before the call is made."""

    def __init__(
        self,
        staging_dir: Path,
        *,
        on_upload: Callable[[Sequence[UploadItem]], None] = lambda _items: None,
        on_replace: Callable[[], None] = lambda: None,
        listing: OutputsError | None = None,
        reading: OutputsError | None = None,
        put_new: OutputsError | None = None,
    ) -> None:
        super().__init__(staging_dir)
        self.uploads: list[list[str]] = []
        self._on_upload, self._on_replace = on_upload, on_replace
        self._listing, self._reading, self._put_new = listing, reading, put_new

    def upload(self, items: Sequence[UploadItem], **options: Any) -> UploadResult:  # noqa: ANN401 - as LocalStorageBackend's
        self.uploads.append([item.destination.relative_path for item in items])
        self._on_upload(items)
        return super().upload(items, **options)

    def list_objects(self, location: StorageLocation, **options: Any) -> Iterator[ListedObject]:  # noqa: ANN401 - as above
        if self._listing is not None:
            raise self._listing
        return super().list_objects(location, **options)

    def read_small(self, location: StorageLocation, **options: Any) -> StoredBytes | None:  # noqa: ANN401 - as above
        if self._reading is not None:
            raise self._reading
        return super().read_small(location, **options)

    def replace(self, location: StorageLocation, data: bytes, content_type: str, **options: Any) -> StoredObject:  # noqa: ANN401 - as above
        self.uploads.append([location.relative_path])
        self._on_replace()
        return super().replace(location, data, content_type, **options)

    def put_new(self, location: StorageLocation, data: bytes, content_type: str, **options: Any) -> StoredObject:  # noqa: ANN401 - as above
        if self._put_new is not None:
            raise self._put_new
        return super().put_new(location, data, content_type, **options)
