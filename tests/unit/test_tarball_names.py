"""What is a tarball's name, and where its family ends and its version begins."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IllegalLocationError
from _therock_utils.artifact_names import FAMILIES
from therock_outputs.tarball_names import MULTIARCH, VARIANTS, TarballName, tarball_pattern

VERSIONS = (
    "7.10.0a20251120",
    "7.9.0rc1",
    "7.11.0.dev0+abc123",
    "7.11.0.dev0+8d2ec28-dirty",
    "7.11.0.dev0+all.tests-asan",
    "7",
    "ADHOCBUILD",
)
BASES = st.sampled_from([*FAMILIES, MULTIARCH])
ENDINGS = st.sampled_from(["", *(f"-{variant}" for variant in VARIANTS)])
KNOWN = st.builds(lambda base, ending: base + ending, BASES, ENDINGS)
WORDS = st.from_regex(re.compile(r"[a-z][0-9a-z]{0,7}", re.ASCII), fullmatch=True).filter(lambda word: word != "tests")
UNKNOWN = st.builds(
    lambda first, words: "-".join((first, *words)),
    st.from_regex(re.compile(r"gfx[0-9][0-9A-Za-z]{0,5}", re.ASCII), fullmatch=True) | st.just("xgpu"),
    st.lists(WORDS, max_size=3),
)
ANY_VERSION = st.sampled_from(VERSIONS) | st.from_regex(
    re.compile(
        r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc|\.dev|\.post)[0-9]{1,8})?(\+[0-9a-z]{1,9}([._-][0-9a-z]{1,9}){0,2})?"
    ),
    fullmatch=True,
)
NAMES = st.builds(TarballName, st.sampled_from(["linux", "windows"]), KNOWN | UNKNOWN, ANY_VERSION, st.booleans())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_tests", [False, True])
@pytest.mark.parametrize(
    "family",
    [
        *FAMILIES,
        MULTIARCH,
        "gfx950-dcgpu-asan",
        "gfx94X-dcgpu-host-asan",
        "multiarch-tsan",
        "gfx1310-dgpu",
        "apugpu-all",
    ],
)
def test_every_family_and_version_is_told_apart(family: str, version: str, is_tests: bool) -> None:
    tests = "-tests" if is_tests else ""
    name = TarballName.parse(f"therock-dist-linux-{family}{tests}-{version}.tar.gz")
    assert name == TarballName("linux", family, version, is_tests)
    assert name.key == f"{family}{tests}"


@given(NAMES)
def test_what_is_written_is_read_as_the_same_parts(name: TarballName) -> None:
    assert TarballName.parse(str(name)) == name


@given(NAMES, NAMES)
def test_two_names_share_a_key_only_for_the_same_family_and_kind(one: TarballName, other: TarballName) -> None:
    assert (one.key == other.key) == ((one.family, one.is_tests) == (other.family, other.is_tests))


@given(KNOWN)
def test_the_families_of_the_table_are_known_with_each_variant(family: str) -> None:
    assert TarballName("linux", family, "7.10.0").is_known


@pytest.mark.parametrize("family", ["gfx94x-dcgpu", "gfx1310", "gfx950-dcgpu-asann", "xgpu-all", "multiarch-x"])
def test_others_are_not(family: str) -> None:
    assert not TarballName("linux", family, "7.10.0").is_known


@given(st.text(max_size=40) | st.from_regex(re.compile(r"therock-dist-[a-z]{5}-[\w.+-]{1,30}\.tar\.gz")))
def test_any_text_is_read_as_exactly_itself_or_not_at_all(text: str) -> None:
    name = TarballName.parse(text)
    assert name is None or str(name) == text


@pytest.mark.parametrize(
    "filename",
    [
        "",
        "rocm.tar.gz",
        "therock-dist-linux-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151.tar.gz",
        "therock-dist-linux-gfx1151-.tar.gz",
        "therock-dist-linux-gfx950-all.tar.gz",
        "therock-dist-linux-gfx950-dcgpu-asan.tar.gz",
        "therock-dist-linux-gfx950-dcgpu-tests.tar.gz",
        "therock-dist-linux-tests-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151-tests-tests-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151-tests-asan-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151-7.10.0-tests.tar.gz",
        "therock-dist-linux-gfx94X-DCGPU-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151-7.10.0.tar.xz",
        "therock-dist-linux-gfx1151-7.10.0.TAR.GZ",
        "therock-dist-linux-gfx1151-7.10.0.tar.gz\n",
        "therock-dist-linux-gfx1151-7.10.0.tar.gz.sha256sum",
        "Therock-dist-linux-gfx1151-7.10.0.tar.gz",
        "therock-dist-Linux-gfx1151-7.10.0.tar.gz",
        "therock-dist-linux--gfx1151-7.10.0.tar.gz",
        "therock-dist-gfx1151-7.10.0.tar.gz",
        "therock-dist-multiarch-7.10.0.tar.gz",
        "therock-dist-linux-gfx1151-7..0.tar.gz",
        "therock-dist-linux-gfx1151-7.0'$(x).tar.gz",
        "therock-dist-linux-gfx1151-7.0/../x.tar.gz",
        "therock-dist-linux-gfx\u0661-7.0.tar.gz",
        "therock-dist-linux-rocm-7.10.0.tar.gz",
    ],
)
def test_other_names_are_no_tarballs(filename: str) -> None:
    assert TarballName.parse(filename) is None


@pytest.mark.parametrize(
    ("family", "version"),
    [
        ("gfx1151-tests", "7.0"),
        ("gfx1151", "dev"),
        ("gfx1151-7", "0"),
        ("", "7.0"),
        ("gfx1151", ""),
        ("gfx1151", "7/0"),
    ],
)
def test_parts_that_would_be_read_as_others_are_refused(family: str, version: str) -> None:
    with pytest.raises(IllegalLocationError, match="parts are not clear"):
        TarballName("linux", family, version)


def test_the_pattern_for_people_names_the_platform() -> None:
    assert tarball_pattern("windows") == "therock-dist-windows-{family or multiarch}[-tests]-{version}.tar.gz"


def test_a_long_name_that_almost_fits_costs_no_time() -> None:
    assert TarballName.parse("therock-dist-linux-gfx" + "1" * 2000 + "-a" * 2000 + "-7" + ".0" * 2000 + ".tar") is None
