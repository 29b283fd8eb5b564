"""Mode upload-stage: logs of one stage of a multi-arch build, and the run's manifest from the stage that owns it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from therock_outputs.modes._build_tree import BuildTree, plan_logs, plan_manifest
from therock_outputs.modes._pages import FolderPage, is_left_to_server, store_page
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.modes.locate import subject_of
from therock_outputs.run_target import single_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.report import Report

MANIFEST_STAGE: Final = "compiler-runtime"
"""The stage that uploads the run's manifest."""

OUTPUTS: Final[Mapping[str, str]] = {
    "log_url": "Page of the logs, made by the server where it makes pages and `index` is auto. Empty where no log was "
    "stored.",
    "manifest_url": "The run's manifest; empty but for the stage that owns it.",
}


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use."""
    settings = context.settings
    root = single_root(context.target)
    if not settings.stage:
        message = "mode upload-stage needs stage"
        raise InputError(message, remedy="Give the stage's name, e.g. stage: math-libs.")
    if settings.layout == "single-stage":
        message = "mode upload-stage writes the multi-arch layout"
        raise InputError(message, remedy="Use mode upload-build for a single-stage build.")
    folder = root.log_stage_dir(settings.stage, settings.family)
    page = root.log_stage_index(settings.stage, settings.family)
    by_server = is_left_to_server(context, root)
    writes_page = not by_server and settings.index != "none"
    tree = BuildTree.find(context)
    with contextlib.ExitStack() as scratch:
        logs = plan_logs(context, tree, folder, scratch).with_page(page, by_server=by_server)
        owns_manifest = settings.stage == MANIFEST_STAGE
        parts = (logs, *([plan_manifest(context, tree, root.manifest_root())] if owns_manifest else []))

        def store(uploader: Uploader) -> None:
            uploader.store([item for part in parts for item in part.items])
            if writes_page and logs.is_stored_in_part(uploader.result) and not logs.brings(page):
                store_page(uploader, FolderPage(page, f"Logs: {subject_of(settings)}"))

        def outputs(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
            has_logs = any(item.destination in opens for item in logs.items)
            return {
                "log_url": page.https_url if page in opens or (by_server and has_logs) else "",
                "manifest_url": root.manifest_root().https_url if root.manifest_root() in opens else "",
            }

        return upload_in_steps(context, tree.folder, parts, store=store, outputs=outputs)
