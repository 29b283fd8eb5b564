"""Mode locate: every location of the run, computed, before anything exists too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from _therock_utils.s3_buckets import REGION, iam_role, is_inventory_bucket
from therock_outputs.mode_names import Mode
from therock_outputs.report import Part, Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.settings import Settings

OUTPUTS: Final[Mapping[str, str]] = {
    "external_repo": "Key prefix of the repository: empty, or owner-name/.",
    "is_pr_from_fork": "true when the run is a fork's pull request.",
    "aws_region": "Region of the bucket; empty where it is not known.",
    "iam_role": "Role that may write to the bucket; empty for a fork's pull request and an unknown bucket.",
    "log_url": "Page of the logs: of the group, the stage, or the run.",
    "log_root_url": "Page of all log folders of the run.",
    "manifest_url": "The manifest.",
    "manifests_url": "Page of the run's manifests.",
    "artifact_index_url": "Page of the artifacts.",
    "python_url": "Folder of the Python packages.",
    "tarballs_url": "Folder of the install tarballs.",
    "locations": "JSON: platform to output name (without _url) to its s3_uri and url; python_simple too, and for linux "
    "{deb,rpm}_repository and {deb,rpm}_packaging_logs.",
}

_TITLES: Final = {
    "log_url": "Logs",
    "artifact_index_url": "Artifacts",
    "manifest_url": "Manifest",
    "python_url": "Python packages",
    "tarballs_url": "Tarballs",
}

_FOLDERS: Final = ("python_url", "tarballs_url")


def run(context: Context) -> Report:
    """Compute. Raises IllegalLocationError for a group, stage or family that is no legal name."""
    settings, target = context.settings, context.target
    by_platform = {root.platform: locations_of(root, settings) for root in target.roots}
    first = by_platform[target.root.platform]
    bucket = target.root.bucket
    outputs = {
        "external_repo": target.root.external_repo,
        "is_pr_from_fork": str(target.is_pr_from_fork).lower(),
        "aws_region": REGION if is_inventory_bucket(bucket) else "",
        "iam_role": iam_role(bucket, is_pr_from_fork=target.is_pr_from_fork),
        **{name: location.https_url for name, location in first.items()},
        "locations": json.dumps(
            {
                root.platform: {
                    name.removesuffix("_url"): {"s3_uri": location.s3_uri, "url": location.https_url}
                    for name, location in {**by_platform[root.platform], **_further(root, settings)}.items()
                }
                for root in target.roots
            }
        ),
    }
    several = len(by_platform) > 1
    return Report(
        mode=settings.mode,
        subject=subject_of(settings),
        root=target.root,
        parts=tuple(
            Part(
                what=f"{_TITLES[name]} ({platform})" if several else _TITLES[name],
                state="located",
                location=location,
                link_text=location.relative_path,
                is_folder=name in _FOLDERS,
            )
            for platform, locations in by_platform.items()
            for name, location in locations.items()
            if name in _TITLES
        ),
        outputs=outputs,
        page=first["log_url"],
        notices=(*target.notices, "Computed from the layout: a link opens once its output is stored."),
        warnings=context.warnings,
    )


def locations_of(root: WorkflowOutputRoot, settings: Settings) -> dict[str, StorageLocation]:
    """Location of each output, in the layout that the settings mean."""
    group = settings.artifact_group
    common = {
        "log_root_url": root.log_root_index(),
        "manifests_url": root.manifests_index(),
        "tarballs_url": root.tarballs(),
    }
    if is_single_stage(settings):
        return {
            "log_url": root.log_index(group) if group else root.log_root_index(),
            "manifest_url": root.manifest(group) if group else root.manifest_root(),
            "artifact_index_url": root.artifact_index(group),
            "python_url": root.python_packages(group),
            **common,
        }
    stage, family = settings.stage, settings.family
    return {
        "log_url": root.log_stage_index(stage, family) if stage else root.log_root_index(),
        "manifest_url": root.manifest_root(),
        "artifact_index_url": root.artifact_index(),
        "python_url": root.python_packages(family),
        **common,
    }


def _further(root: WorkflowOutputRoot, settings: Settings) -> dict[str, StorageLocation]:
    """Locations that are no outputs of their own; `{deb,rpm}_repository` is what a client is configured with."""
    python = root.python_simple(settings.artifact_group if is_single_stage(settings) else settings.family)
    if root.platform != "linux":
        return {"python_simple": python}
    return {
        "python_simple": python,
        "deb_repository": root.native_linux_packages("deb"),
        "rpm_repository": root.native_linux_packages("rpm").child("x86_64"),
        "deb_packaging_logs": root.native_linux_packages_log_index("deb"),
        "rpm_packaging_logs": root.native_linux_packages_log_index("rpm"),
    }


def is_single_stage(settings: Settings) -> bool:
    """Whether the single-stage layout is meant: an upload mode writes its own; else as told, or by artifact_group."""
    if settings.mode is not Mode.LOCATE:
        return settings.mode is Mode.UPLOAD_BUILD
    return settings.layout == "single-stage" or (settings.layout == "auto" and bool(settings.artifact_group))


def subject_of(settings: Settings) -> str:
    """What the report is about: in the single-stage layout the group, else stage and family."""
    if is_single_stage(settings):
        return settings.artifact_group
    return "/".join(part for part in (settings.stage, settings.family) if part)
