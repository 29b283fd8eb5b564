"""Mode upload-build: everything of a single-stage build: logs, manifest, artifact archives, and their pages."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError
from therock_outputs.modes._artifacts import plan_artifacts, store_with_artifacts
from therock_outputs.modes._build_tree import BuildTree, plan_logs, plan_manifest
from therock_outputs.modes._pages import FolderPage, ListPage, store_page
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.report import Part, Report
from therock_outputs.run_target import single_root

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context

OUTPUTS: Final[Mapping[str, str]] = {
    "log_url": "Page of the logs; empty where none was stored.",
    "observability_url": "The build's resource report; empty where there is none.",
    "manifest_url": "The manifest; empty where there is none.",
    "artifact_index_url": "Page of this group's artifacts; empty where none was stored.",
}


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use."""
    settings = context.settings
    root = single_root(context.target)
    group = settings.artifact_group
    if not group:
        message = "mode upload-build needs artifact_group"
        raise InputError(message, remedy="Give the matrix variant, e.g. artifact_group: gfx94X-dcgpu.")
    if settings.layout == "multi-arch":
        message = "mode upload-build writes the single-stage layout"
        raise InputError(message, remedy="Use mode upload-stage for a stage of a multi-arch build.")
    tree = BuildTree.find(context)
    log_page, artifact_page = root.log_index(group), root.artifact_index(group)
    with contextlib.ExitStack() as scratch:
        logs = plan_logs(context, tree, root.log_dir(group), scratch).with_page(log_page)
        artifacts = plan_artifacts(context, tree, root)
        manifest = plan_manifest(context, tree, root.manifest(group))

        def store(uploader: Uploader) -> None:
            own, unsound = store_with_artifacts(uploader, [*logs.items, *manifest.items], artifacts)
            if settings.index == "none":
                return
            if logs.is_stored_in_part(uploader.result) and not logs.brings(log_page):
                store_page(uploader, FolderPage(log_page, f"Logs: {group}"))
            if own or unsound:
                store_page(uploader, ListPage(artifact_page, f"Artifacts: {group}", own, unsound))

        report = upload_in_steps(
            context,
            tree.folder,
            (logs, artifacts.part, manifest),
            store=store,
            outputs=lambda opens: _outputs(root, group, opens),
        )
    return _with_observability(report, root.build_observability(group))


def _with_observability(report: Report, page: StorageLocation) -> Report:
    """The report with a row for the build's resource report, one of the logs, where that is there to open."""
    if not report.outputs["observability_url"]:
        return report
    row = Part("Build observability", "stored", location=page)
    first, *others = report.parts
    return dataclasses.replace(report, parts=(first, row, *others))


def _outputs(root: WorkflowOutputRoot, group: str, opens: AbstractSet[StorageLocation]) -> dict[str, str]:
    locations = {
        "log_url": root.log_index(group),
        "observability_url": root.build_observability(group),
        "manifest_url": root.manifest(group),
        "artifact_index_url": root.artifact_index(group),
    }
    return {name: location.https_url if location in opens else "" for name, location in locations.items()}
