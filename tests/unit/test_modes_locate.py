"""Mode locate names every place, in the layout that is meant, and touches nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from _therock_utils._errors import IllegalLocationError
from fakes.contexts import make_context
from therock_outputs.mode_names import Mode
from therock_outputs.modes.locate import run

if TYPE_CHECKING:
    from pathlib import Path

    from therock_outputs.report import Report

pytestmark = pytest.mark.usefixtures("no_job")

P = "https://therock-ci-artifacts.s3.amazonaws.com/100-linux"


def located(folder: Path, **inputs: object) -> Report:
    return run(make_context(folder, Mode.LOCATE, **inputs))


@pytest.mark.parametrize(
    ("inputs", "places"),
    [
        (
            {"artifact_group": "g"},
            ["logs/g/index.html", "manifests/g/therock_manifest.json", "index-g.html", "python/g"],
        ),
        ({}, ["logs/index.html", "manifests/therock_manifest.json", "index.html", "python"]),
        (
            {"stage": "math-libs", "family": "gfx1151"},
            ["logs/math-libs/gfx1151/index.html", "manifests/therock_manifest.json", "index.html", "python/gfx1151"],
        ),
        (
            {"stage": "compiler-runtime"},
            ["logs/compiler-runtime/index.html", "manifests/therock_manifest.json", "index.html", "python"],
        ),
        (
            {"artifact_group": "g", "layout": "multi-arch", "stage": "s"},
            ["logs/s/index.html", "manifests/therock_manifest.json", "index.html", "python"],
        ),
        (
            {"layout": "single-stage"},
            ["logs/index.html", "manifests/therock_manifest.json", "index.html", "python"],
        ),
    ],
)
def test_places_are_those_of_the_layout_that_is_meant(
    tmp_path: Path, inputs: dict[str, object], places: list[str]
) -> None:
    outputs = located(tmp_path, **inputs).outputs
    names = ("log_url", "manifest_url", "artifact_index_url", "python_url")
    assert [outputs[name] for name in names] == [f"{P}/{place}" for place in places]
    common = ("log_root_url", "manifests_url", "tarballs_url")
    assert [outputs[name] for name in common] == [
        f"{P}/{place}" for place in ("logs/index.html", "manifests/index.html", "tarballs")
    ]


def test_the_run_itself_is_described(tmp_path: Path) -> None:
    report = located(tmp_path, artifact_group="g")
    assert report.outputs["iam_role"] == "arn:aws:iam::692859939525:role/therock-ci"
    assert (report.outputs["aws_region"], report.outputs["external_repo"]) == ("us-east-2", "")
    assert report.outputs["is_pr_from_fork"] == "false"
    assert report.page is not None
    assert report.page.https_url == report.outputs["log_url"]
    assert (report.subject, report.exit_code) == ("g", 0)


def test_a_forks_pull_request_has_no_role(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IS_PR_FROM_FORK", "true")
    outputs = located(tmp_path).outputs
    assert (outputs["is_pr_from_fork"], outputs["iam_role"]) == ("true", "")
    assert outputs["external_repo"] == "ROCm-TheRock/"
    assert outputs["log_url"].startswith(
        "https://therock-ci-artifacts-external.s3.amazonaws.com/ROCm-TheRock/100-linux/"
    )


def test_a_bucket_of_ones_own_has_no_known_region_and_role(tmp_path: Path) -> None:
    outputs = located(tmp_path, bucket="mine").outputs
    assert (outputs["aws_region"], outputs["iam_role"]) == ("", "")


def test_locations_name_the_repositories_of_packages_before_they_exist(tmp_path: Path) -> None:
    report = run(make_context(tmp_path, Mode.LOCATE, platform="linux, windows", artifact_group="gfx94X-dcgpu"))
    locations = json.loads(report.outputs["locations"])
    start = "https://therock-ci-artifacts.s3.amazonaws.com/100"
    further = {name: place["url"] for name, place in locations["linux"].items() if f"{name}_url" not in report.outputs}
    assert further == {
        "python_simple": f"{start}-linux/python/gfx94X-dcgpu/simple",
        "deb_repository": f"{start}-linux/packages/deb",
        "rpm_repository": f"{start}-linux/packages/rpm/x86_64",
        "deb_packaging_logs": f"{start}-linux/logs/packaging/deb/index.html",
        "rpm_packaging_logs": f"{start}-linux/logs/packaging/rpm/index.html",
    }
    assert "deb_repository" not in locations["windows"]


def test_several_platforms_are_all_in_locations_and_in_the_table(tmp_path: Path) -> None:
    report = located(tmp_path, platform="linux,windows", artifact_group="g")
    locations = json.loads(report.outputs["locations"])
    assert list(locations) == ["linux", "windows"]
    assert locations["windows"]["log"] == {
        "s3_uri": "s3://therock-ci-artifacts/100-windows/logs/g/index.html",
        "url": "https://therock-ci-artifacts.s3.amazonaws.com/100-windows/logs/g/index.html",
    }
    assert report.outputs["log_url"] == locations["linux"]["log"]["url"]
    assert {"Logs (linux)", "Logs (windows)"} <= {part.what for part in report.parts}
    assert {part.state for part in report.parts} == {"located"}


def test_folders_are_told_from_pages_and_files(tmp_path: Path) -> None:
    folders = {part.what: part.is_folder for part in located(tmp_path).parts}
    assert folders == {
        "Logs": False,
        "Artifacts": False,
        "Manifest": False,
        "Python packages": True,
        "Tarballs": True,
    }


@pytest.mark.parametrize(
    ("inputs", "subject"),
    [
        ({"artifact_group": "g", "stage": "s"}, "g"),
        ({"artifact_group": "g", "stage": "s", "family": "f", "layout": "multi-arch"}, "s/f"),
        ({"artifact_group": "g", "layout": "multi-arch"}, ""),
        ({"stage": "s"}, "s"),
    ],
)
def test_the_subject_is_that_of_the_layout(tmp_path: Path, inputs: dict[str, object], subject: str) -> None:
    assert located(tmp_path, **inputs).subject == subject


def test_nothing_is_opened_and_nothing_written(tmp_path: Path) -> None:
    located(tmp_path, artifact_group="g")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "inputs",
    [{"artifact_group": "a/b"}, {"stage": ".."}, {"stage": "s", "family": "a\nb"}, {"artifact_group": "\udcff"}],
)
def test_a_name_that_is_no_segment_is_an_input_error(tmp_path: Path, inputs: dict[str, object]) -> None:
    with pytest.raises(IllegalLocationError):
        located(tmp_path, **inputs)
