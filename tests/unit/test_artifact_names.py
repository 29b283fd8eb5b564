"""What is an artifact's name, which archive of two is taken, and which targets a family or target means."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IllegalLocationError
from _therock_utils._keys import key_fault, segment_fault
from _therock_utils.artifact_names import (
    COMPONENTS,
    EXTENSIONS,
    FAMILIES,
    GENERIC,
    ArchiveName,
    ArtifactName,
    base_target,
    expand_families,
    is_known_family,
    matches_target,
    preferred,
    targets_of,
)

VECTORS = Path(__file__).parents[1] / "vectors"
NAMES = json.loads((VECTORS / "artifact_names.json").read_text(encoding="utf-8"))
TARGETS_OF = json.loads((VECTORS / "families.json").read_text(encoding="utf-8"))["families"]

PARTS = st.text(min_size=1, max_size=8).filter(
    lambda part: not segment_fault(part) and "_" not in part
) | st.sampled_from(["blas", "amd-llvm", "lib", "generic", "gfx942:xnack+", "a.tar.xz", " "])
ARTIFACTS = st.builds(ArtifactName, PARTS, PARTS, PARTS)
ARCHIVES = st.builds(ArchiveName, ARTIFACTS, st.sampled_from(["zst", "xz"]))
FEW_ARTIFACTS = st.builds(
    ArtifactName, st.sampled_from(["blas", "rand"]), st.sampled_from(["lib", "dev"]), st.sampled_from(["generic", "a"])
)
FEW_FILES = st.lists(
    st.builds(ArchiveName, FEW_ARTIFACTS, st.sampled_from(["zst", "xz"])).map(str)
    | st.sampled_from(["index.html", "blas_lib_a.tar.zst.sha256sum", "logs/blas_lib_a.tar.xz", "ccache_logs.tar.zst"])
)


@pytest.mark.parametrize(("filename", "expected"), NAMES["accept"].items())
def test_the_recorded_archive_names_are_read_and_written(filename: str, expected: list[str]) -> None:
    archive = ArchiveName.parse(filename)
    assert archive is not None
    artifact = archive.artifact
    assert [artifact.name, artifact.component, artifact.target, archive.compression] == expected
    assert str(archive) == filename
    assert ArtifactName.parse(str(artifact)) == artifact


@pytest.mark.parametrize("filename", NAMES["reject"])
def test_the_recorded_other_names_are_no_archives(filename: str) -> None:
    assert ArchiveName.parse(filename) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "a_b", "a_b_c_d", "a__c", "_b_c", "a_b_", "a_b_c/", "a/b_c_d", "a_b_c\n", "\na_b_c"),
        *("a\\b_c_d", "a_\x1b_c", "a_b_\u2028", "a_b_\ud800", ".._b_c", "a_._c"),
    ],
)
def test_a_directory_of_another_name_is_no_artifact(text: str) -> None:
    assert ArtifactName.parse(text) is None
    assert ArchiveName.parse(f"{text}.tar.zst") is None


@given(ARCHIVES)
def test_what_is_written_is_read_back(archive: ArchiveName) -> None:
    assert ArchiveName.parse(str(archive)) == archive
    assert ArtifactName.parse(str(archive.artifact)) == archive.artifact
    assert key_fault(str(archive)) == ""


@given(
    st.text() | st.lists(st.sampled_from(["_", "/", "a", ".tar.xz", ".tar.zst", "\n", "\\"]), max_size=9).map("".join)
)
def test_any_text_is_read_or_refused_and_what_is_read_is_the_whole_of_it(text: str) -> None:
    artifact, archive = ArtifactName.parse(text), ArchiveName.parse(text)
    assert artifact is None or str(artifact) == text
    assert archive is None or str(archive) == text


@pytest.mark.parametrize(
    "parts", [("a_b", "lib", "generic"), ("", "lib", "generic"), ("..", "lib", "x"), ("a", "b", "c/d")]
)
def test_an_artifact_that_could_not_be_read_back_cannot_be_made(parts: tuple[str, str, str]) -> None:
    with pytest.raises(IllegalLocationError, match="name_component_target"):
        ArtifactName(*parts)


def test_an_archive_of_another_compression_cannot_be_made() -> None:
    with pytest.raises(IllegalLocationError, match="'gz'"):
        ArchiveName(ArtifactName("blas", "lib", "generic"), "gz")


def test_archives_sort_by_artifact_and_the_preferred_compression_comes_first() -> None:
    names = ["b_lib_x.tar.zst", "a_lib_x.tar.xz", "a_lib_x.tar.zst", "a_dev_x.tar.xz"]
    archives = [archive for archive in map(ArchiveName.parse, names) if archive is not None]
    assert list(map(str, sorted(archives))) == [
        "a_dev_x.tar.xz",
        "a_lib_x.tar.zst",
        "a_lib_x.tar.xz",
        "b_lib_x.tar.zst",
    ]
    assert max(archives) >= min(archives)
    assert [f".tar.{archive.compression}" for archive in sorted(archives)[1:3]] == list(EXTENSIONS)


def test_of_both_compressions_the_zstd_one_is_preferred_and_what_is_no_archive_is_passed_over() -> None:
    found = preferred(
        [
            "b_lib_x.tar.xz",
            "a_lib_x.tar.xz",
            "a_lib_x.tar.zst",
            "index.html",
            "a_lib_x.tar.zst.sha256sum",
            "a_lib_x.tar.xz",
        ]
    )
    assert list(map(str, found)) == ["a_lib_x.tar.zst", "b_lib_x.tar.xz"]


@given(FEW_FILES)
def test_each_artifact_is_preferred_once_in_an_order_that_does_not_depend_on_the_listing(names: list[str]) -> None:
    found = preferred(names)
    assert [archive.artifact for archive in found] == sorted({archive.artifact for archive in found})
    assert {archive.artifact for archive in found} == {
        archive.artifact for archive in map(ArchiveName.parse, names) if archive is not None
    }
    assert all(archive.compression == "zst" or f"{archive.artifact}.tar.zst" not in names for archive in found)
    assert preferred(reversed(names)) == found


@pytest.mark.parametrize(
    ("target", "wanted", "is_meant"),
    [
        ("generic", [], True),
        ("generic", ["gfx942"], True),
        ("gfx942", ["gfx942"], True),
        ("gfx942:xnack+", ["gfx942"], True),
        ("gfx942:xnack-", ["gfx1100", "gfx942"], True),
        ("gfx942:xnack+", ["gfx942:xnack+"], True),
        ("gfx942", ["gfx942:xnack+"], False),
        ("gfx942:xnack-", ["gfx942:xnack+"], False),
        ("gfx94X-dcgpu-asan", ["gfx94X-dcgpu"], False),
        ("gfx94X-dcgpu", ["gfx94X-dcgpu-asan"], False),
        ("gfx94X-dcgpu-asan", ["gfx94X-dcgpu-asan"], True),
        ("gfx9420", ["gfx942"], False),
        ("gfx942", ["gfx9420", "gfx94", "GFX942"], False),
        ("gfx942", [], False),
    ],
)
def test_a_target_means_itself_its_features_and_generic(target: str, wanted: list[str], is_meant: bool) -> None:
    assert matches_target(target, wanted) is is_meant


def test_the_base_of_a_target_is_what_comes_before_its_features() -> None:
    assert [
        base_target(name) for name in ("gfx942:xnack+", "gfx90a:sramecc+:xnack-", "gfx942", "gfx94X-dcgpu-asan", "")
    ] == [
        "gfx942",
        "gfx90a",
        "gfx942",
        "gfx94X-dcgpu-asan",
        "",
    ]


def test_every_recorded_family_has_exactly_its_targets_and_there_are_no_others() -> None:
    assert {family: list(targets_of(family)) for family in FAMILIES} == TARGETS_OF
    assert list(FAMILIES) == sorted(TARGETS_OF)
    assert all(map(is_known_family, TARGETS_OF))


@pytest.mark.parametrize("family", ["gfx94x-dcgpu", "gfx94X-dcgpu-asan", "generic", "", "gfx942 "])
def test_an_unknown_family_stands_for_itself(family: str) -> None:
    assert not is_known_family(family)
    assert targets_of(family) == (family,)
    assert expand_families([family]) == (family,)


def test_families_expand_to_themselves_and_their_targets_once_each_in_order() -> None:
    assert expand_families(["gfx120X-all", "gfx94X-dcgpu", "gfx1201", "gfx120X-all"]) == (
        "gfx120X-all",
        "gfx1200",
        "gfx1201",
        "gfx94X-dcgpu",
        "gfx942",
    )
    assert expand_families([]) == ()


@given(st.lists(st.sampled_from(sorted(TARGETS_OF)) | st.text(max_size=3)))
def test_expanding_twice_changes_nothing(families: list[str]) -> None:
    expanded = expand_families(families)
    assert expand_families(expanded) == expanded
    assert len(set(expanded)) == len(expanded)


def test_generic_and_the_known_components_can_be_parts_of_a_name() -> None:
    for component in COMPONENTS:
        assert ArtifactName.parse(f"blas_{component}_{GENERIC}") == ArtifactName("blas", component, GENERIC)


def test_artifacts_sort_by_name_then_component_then_target() -> None:
    wanted = [ArtifactName(*parts) for parts in itertools.product("ab", "cd", "ef")]
    assert sorted(frozenset(wanted)) == wanted
