"""Selectors narrow what a run has, and say what they ask for in vain."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import InputError
from _therock_utils.artifact_names import ArchiveName, ArtifactName, preferred
from therock_outputs.artifact_selection import Choice, Selection, choose, make_selection

RUN = (
    "index.html",
    "llvm_lib_generic.tar.zst",
    "llvm_lib_generic.tar.zst.sha256sum",
    "llvm_dev_generic.tar.xz",
    "blas_lib_generic.tar.zst",
    "blas_lib_gfx942.tar.zst",
    "blas_lib_gfx942.tar.xz",
    "blas_lib_gfx942:xnack+.tar.zst",
    "blas_test_gfx942.tar.zst",
    "blas_lib_gfx1100.tar.zst",
    "rand_lib_gfx94X-dcgpu.tar.xz",
    "rand_lib_gfx94X-dcgpu-asan.tar.xz",
)
EVERYTHING = [str(archive) for archive in preferred(RUN)]

WORDS = st.sampled_from(
    ["blas", "llvm", "rand", "lib", "dev", "b*", "*_lib", "blas_lib", "*_gfx942", "[!b]*", "?and", "x"]
)
TARGETS = st.sampled_from(["gfx942", "gfx94X-dcgpu", "gfx942:xnack+", "gfx1100", "gfx110X-all", "generic", "made-up"])
REGEXES = st.sampled_from([r"\.zst$", r"\.xz$", "^blas", "gfx", "lib|dev", "nothing"])
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "names": st.none() | st.lists(st.sampled_from(["blas", "llvm", "rand", "x"])),
        "artifacts": st.lists(WORDS, max_size=2),
        "exclude_artifacts": st.lists(WORDS, max_size=2),
        "exclude_components": st.lists(WORDS, max_size=2),
        "families": st.lists(TARGETS, max_size=2),
        "targets": st.lists(TARGETS, max_size=2),
        "groups": st.lists(TARGETS, max_size=2),
        "generic_only": st.booleans(),
        "include_regex": st.lists(REGEXES, max_size=2),
        "exclude_regex": st.lists(REGEXES, max_size=2),
    },
)
TARGET_OPTIONS = {"families", "targets", "groups"}
RUNS = st.lists(
    st.sampled_from(RUN)
    | st.builds(
        lambda name, component, target, compression: f"{name}_{component}_{target}.tar.{compression}",
        st.sampled_from(["blas", "llvm", "rand"]),
        st.sampled_from(["lib", "dev", "test"]),
        st.sampled_from(["generic", "gfx942", "gfx942:xnack+", "gfx94X-dcgpu", "gfx1100"]),
        st.sampled_from(["zst", "xz"]),
    ),
    max_size=20,
)


def select(**selectors: Any) -> Choice:  # noqa: ANN401 - whatever make_selection takes
    return choose(make_selection(**selectors)[0], RUN)


def chosen(**selectors: Any) -> list[str]:  # noqa: ANN401 - as select
    return [str(archive) for archive in select(**selectors).chosen]


def artifacts_of(choice: Choice) -> set[ArtifactName]:
    return {archive.artifact for archive in choice.chosen}


def test_without_selectors_every_artifact_is_chosen_once_and_in_order() -> None:
    assert choose(Selection(), RUN) == Choice(preferred(RUN), ())
    assert "blas_lib_gfx942.tar.xz" not in EVERYTHING
    assert len(EVERYTHING) == 9


@pytest.mark.parametrize(
    ("globs", "expected"),
    [
        (["rand"], ["rand_lib_gfx94X-dcgpu.tar.xz", "rand_lib_gfx94X-dcgpu-asan.tar.xz"]),
        (["blas_test"], ["blas_test_gfx942.tar.zst"]),
        (["blas_lib_gfx942"], ["blas_lib_gfx942.tar.zst"]),
        (["blas_lib_gfx942*"], ["blas_lib_gfx942.tar.zst", "blas_lib_gfx942:xnack+.tar.zst"]),
        (["*_dev"], ["llvm_dev_generic.tar.xz"]),
        (["?and"], ["rand_lib_gfx94X-dcgpu.tar.xz", "rand_lib_gfx94X-dcgpu-asan.tar.xz"]),
        (["[kl]lvm_lib", "blas_test"], ["blas_test_gfx942.tar.zst", "llvm_lib_generic.tar.zst"]),
        (["*"], EVERYTHING),
        (["", "rand_*-asan"], ["rand_lib_gfx94X-dcgpu-asan.tar.xz"]),
    ],
)
def test_globs_match_the_name_with_or_without_component_and_target(globs: list[str], expected: list[str]) -> None:
    assert chosen(artifacts=globs) == sorted(expected, key=EVERYTHING.index)
    assert select(artifacts=globs).missing == ()


@pytest.mark.parametrize("glob", ["BLAS", "bla", "lib", "gfx942", "blas_lib_gfx942.tar.zst", "blas_lib_gfx94"])
def test_a_glob_that_matches_nothing_is_missing(glob: str) -> None:
    assert select(artifacts=[glob, "rand", glob]) == Choice(select(artifacts=["rand"]).chosen, (glob,))


def test_a_glob_is_missing_too_where_another_selector_takes_away_what_it_matches() -> None:
    assert select(artifacts=["rand", "blas"], generic_only=True).missing == ("rand",)
    assert select(artifacts=["rand", "blas"], targets=["gfx1100"]).missing == ("rand",)
    assert select(artifacts=["rand"], exclude_artifacts=["rand"]).missing == ("rand",)
    assert select(artifacts=["llvm"], names=["blas"]).missing == ("llvm",)


def test_exclusions_take_away_and_those_that_match_nothing_are_no_error() -> None:
    assert chosen(exclude_artifacts=["blas", "rand_*", "nothing"]) == [
        "llvm_dev_generic.tar.xz",
        "llvm_lib_generic.tar.zst",
    ]
    assert select(exclude_artifacts=["nothing"], exclude_components=["dbg", "nothing_*"]) == choose(Selection(), RUN)


def test_components_are_excluded_by_their_own_name_and_of_one_artifact_with_its_name_before() -> None:
    assert chosen(exclude_components=["lib"]) == ["blas_test_gfx942.tar.zst", "llvm_dev_generic.tar.xz"]
    assert chosen(exclude_components=["[lt]*"]) == ["llvm_dev_generic.tar.xz"]
    assert chosen(exclude_components=["l*", "blas_test"]) == ["llvm_dev_generic.tar.xz"]
    assert chosen(exclude_components=["*_lib_gfx*", "blas"]) == [
        "blas_lib_generic.tar.zst",
        "blas_test_gfx942.tar.zst",
        "llvm_dev_generic.tar.xz",
        "llvm_lib_generic.tar.zst",
    ]


def test_a_target_takes_its_variants_by_features_and_generic_but_no_other_variant() -> None:
    generic = ["blas_lib_generic.tar.zst", "llvm_dev_generic.tar.xz", "llvm_lib_generic.tar.zst"]
    assert set(chosen(targets=["gfx942"])) == {
        *generic,
        "blas_lib_gfx942.tar.zst",
        "blas_lib_gfx942:xnack+.tar.zst",
        "blas_test_gfx942.tar.zst",
    }
    assert set(chosen(targets=["gfx942:xnack+"])) == {*generic, "blas_lib_gfx942:xnack+.tar.zst"}
    assert set(chosen(groups=["gfx94X-dcgpu-asan"])) == {*generic, "rand_lib_gfx94X-dcgpu-asan.tar.xz"}


@pytest.mark.parametrize("option", ["families", "targets", "groups"])
def test_a_family_stands_for_itself_and_its_targets_wherever_it_is_given(option: str) -> None:
    assert set(chosen(**{option: ["gfx94X-dcgpu"]})) == set(EVERYTHING) - {
        "blas_lib_gfx1100.tar.zst",
        "rand_lib_gfx94X-dcgpu-asan.tar.xz",
    }
    assert set(chosen(**{option: ["gfx110X-all"]})) == {*chosen(generic_only=True), "blas_lib_gfx1100.tar.zst"}


def test_what_is_asked_for_is_kept_as_it_was_written() -> None:
    selection, notices = make_selection(families=["gfx120X-all", ""], targets=["gfx942"], groups=["gfx942", "g-asan"])
    assert selection.wanted_targets == ("gfx120X-all", "gfx1200", "gfx1201", "gfx942", "g-asan")
    assert selection.asked_targets == (
        ("gfx120X-all", ("gfx120X-all", "gfx1200", "gfx1201")),
        ("gfx942", ("gfx942",)),
        ("g-asan", ("g-asan",)),
    )
    assert notices == ()


def test_an_asked_target_is_missing_where_only_generic_artifacts_are_there_for_it() -> None:
    assert select(families=["gfx120X-all", "gfx94X-dcgpu"], targets=["gfx1103", "gfx1100"]).missing == (
        "gfx120X-all",
        "gfx1103",
    )
    assert select(targets=["gfx1100"], exclude_artifacts=["blas_lib_gfx1100"]).missing == ("gfx1100",)
    assert choose(make_selection(families=["gfx94X-dcgpu"])[0], []).missing == ("gfx94X-dcgpu",)


def test_a_target_is_not_missing_where_only_generic_artifacts_are_asked_for_or_a_stage_says_what_is_needed() -> None:
    assert select(targets=["gfx1103"], generic_only=True).missing == ()
    assert select(targets=["gfx1103"], names=["llvm"]).missing == ()


def test_asking_for_generic_asks_for_nothing_else_and_it_cannot_be_missing() -> None:
    selection, notices = make_selection(targets=["generic"])
    assert choose(selection, RUN) == Choice(select(generic_only=True).chosen, ())
    assert choose(selection, []) == Choice((), ())
    assert notices == ()


def test_a_stages_names_narrow_and_never_fail() -> None:
    assert chosen(names=["llvm", "not-on-this-platform"]) == ["llvm_dev_generic.tar.xz", "llvm_lib_generic.tar.zst"]
    assert select(names=[]) == Choice((), ())
    assert select(names=["not-on-this-platform"]) == Choice((), ())


def test_regular_expressions_see_the_file_name_and_may_ask_for_a_compression() -> None:
    assert chosen(include_regex=[r"^blas_.*gfx942\.tar\.xz$"]) == ["blas_lib_gfx942.tar.xz"]
    assert chosen(include_regex=["^llvm", "asan"], exclude_regex=["_dev_"]) == [
        "llvm_lib_generic.tar.zst",
        "rand_lib_gfx94X-dcgpu-asan.tar.xz",
    ]
    assert chosen(exclude_regex=[".*"]) == []


@pytest.mark.parametrize("option", ["include_regex", "exclude_regex"])
@pytest.mark.parametrize("pattern", ["(", "*", "[a", "a{9999999999999999999}", "(" * 900 + ")" * 900, "a" * 1001, "\\"])
def test_a_bad_regular_expression_is_an_input_error_that_shows_it(option: str, pattern: str) -> None:
    with pytest.raises(InputError, match="regular expression") as caught:
        make_selection(**{option: [pattern]})
    assert pattern[:3] in str(caught.value) or repr(pattern)[1:-1] in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("option", ["artifacts", "exclude_artifacts", "exclude_components"])
@pytest.mark.parametrize("pattern", ["[a", "a/b", "/blas", "blas/", "a\n", "a\\b", "a" * 2000])
def test_a_glob_that_can_match_no_artifact_is_an_input_error(option: str, pattern: str) -> None:
    with pytest.raises(InputError, match="glob pattern"):
        make_selection(**{option: [pattern]})
    with pytest.raises(InputError, match="glob pattern"):
        Selection(**{option: (pattern,)})


def test_an_unknown_family_or_target_is_told_and_stands_for_itself() -> None:
    selection, notices = make_selection(
        families=["gfx94x-dcgpu", "gfx942"], targets=["gfx942:xnack+", "gfx9\x1b42"], groups=["gfx94X-dcgpu-asan"]
    )
    assert [notice.partition(" is ")[0] for notice in notices] == ["families: 'gfx94x-dcgpu'", r"targets: 'gfx9\x1b42'"]
    assert "gfx94x-dcgpu" in selection.wanted_targets


@given(RUNS, SELECTORS)
def test_of_one_artifact_one_archive_is_chosen_that_is_there_in_an_order_that_is_always_the_same(
    available: list[str], selectors: dict[str, Any]
) -> None:
    selection, _ = make_selection(**selectors)
    choice = choose(selection, available)
    assert len(artifacts_of(choice)) == len(choice.chosen)
    assert {str(archive) for archive in choice.chosen} <= set(available)
    assert list(choice.chosen) == sorted(choice.chosen)
    assert choose(selection, reversed([*available, *available])) == choice


@given(RUNS, SELECTORS, SELECTORS)
def test_another_selector_never_adds_an_artifact(
    available: list[str], some: dict[str, Any], more: dict[str, Any]
) -> None:
    added = {key: value for key, value in more.items() if key not in some}
    if some.keys() & TARGET_OPTIONS:  # these add up to one selector
        added = {key: value for key, value in added.items() if key not in TARGET_OPTIONS}
    both = choose(make_selection(**some, **added)[0], available)
    assert artifacts_of(both) <= artifacts_of(choose(make_selection(**some)[0], available))


@given(RUNS, SELECTORS, st.lists(TARGETS, min_size=1))
def test_generic_artifacts_survive_every_choice_of_targets(
    available: list[str], selectors: dict[str, Any], targets: list[str]
) -> None:
    selection, _ = make_selection(**selectors)
    narrowed, _ = make_selection(**{**selectors, "targets": targets})
    generic = [archive for archive in choose(selection, available).chosen if archive.artifact.target == "generic"]
    kept = choose(narrowed, available).chosen
    assert [archive for archive in kept if archive.artifact.target == "generic"] == generic


@given(RUNS, SELECTORS)
def test_what_is_missing_was_asked_for_and_matches_nothing_chosen(
    available: list[str], selectors: dict[str, Any]
) -> None:
    selection, _ = make_selection(**selectors)
    choice = choose(selection, available)
    asked = [*selection.artifacts, *(asked for asked, _ in selection.asked_targets)]
    assert set(choice.missing) <= set(asked)
    for glob in selection.artifacts:
        alone = choose(Selection(artifacts=(glob,)), map(str, choice.chosen))
        assert (glob in choice.missing) >= (not alone.chosen)
    for target, meanings in selection.asked_targets:
        specific = [archive for archive in choice.chosen if archive.artifact.target.partition(":")[0] in meanings]
        assert not (target in choice.missing and target not in selection.artifacts and specific)


@given(SELECTORS)
def test_a_selection_can_be_compared_and_cannot_be_changed(selectors: dict[str, Any]) -> None:
    selection, notices = make_selection(**selectors)
    assert make_selection(**selectors) == (selection, notices)
    with pytest.raises(dataclasses.FrozenInstanceError):
        selection.names = None  # type: ignore[misc] - that is the test


def test_archives_in_folders_and_of_other_runs_are_not_chosen() -> None:
    assert choose(Selection(), ["logs/blas_lib_generic.tar.zst", "12345-linux2/blas_lib_generic.tar.zst"]).chosen == ()
    assert choose(Selection(), ["blas_lib_generic.tar.zst"]).chosen == (
        ArchiveName(ArtifactName("blas", "lib", "generic"), "zst"),
    )


def test_a_family_is_not_missing_where_the_globs_name_only_generic_artifacts() -> None:
    available = ["amd-llvm_run_generic.tar.zst", "blas_lib_gfx942.tar.zst"]
    llvm, _ = make_selection(artifacts=["amd-llvm"], families=["gfx1151"])
    assert choose(llvm, available).missing == ()
    blas, _ = make_selection(artifacts=["blas", "amd-llvm"], families=["gfx1151"])
    assert choose(blas, available).missing == ("blas", "gfx1151")
    assert choose(llvm, []).missing == ("amd-llvm",)
    families, _ = make_selection(families=["gfx1151"])
    assert choose(families, []).missing == ("gfx1151",)


def test_a_misspelt_family_is_told_with_the_nearest_one() -> None:
    _, (notice,) = make_selection(families=["gfx1511"])
    assert notice.endswith("Did you mean gfx1151?")
    _, (notice,) = make_selection(targets=["nothing-like-it"])
    assert "Did you mean" not in notice


def test_a_regular_expression_that_would_take_for_ever_is_an_error() -> None:
    name = f"{'a' * 40}_lib_generic.tar.zst"
    for words in ({"include_regex": ["(a|aa)+$b"]}, {"exclude_regex": ["(a|aa)+$b"]}):
        selection, _ = make_selection(**words)
        with pytest.raises(InputError, match="take too long on 'aaaa"):
            choose(selection, [name])
