"""What a mode gets to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._transfer_types import Origin

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import StorageBackend
    from therock_outputs.paths import Workspace
    from therock_outputs.run_target import RunTarget
    from therock_outputs.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """Settings and what was decided from them. `open_backend` makes the storage backend: heavy imports wait for it."""

    settings: Settings
    target: RunTarget
    workspace: Workspace
    staging_dir: Path | None
    cancel: CancelToken
    open_backend: Callable[[], StorageBackend]
    say: Callable[[str], None]
    warnings: tuple[str, ...] = ()

    @property
    def origin(self) -> Origin | None:
        """This job, as the objects it writes name their writer; None outside GitHub Actions."""
        settings = self.settings
        if not (settings.github_run_id and settings.github_job):
            return None
        return Origin(settings.github_run_id, settings.github_job, settings.github_run_attempt or "1")
