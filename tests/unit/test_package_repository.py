"""What the metadata of a package repository are to name, and the names of files beside others."""

from __future__ import annotations

import datetime
import random

import hypothesis
import pytest
from hypothesis import strategies

from therock_outputs.package_repository import (
    Package,
    PoolFile,
    base_name,
    identity_twice,
    in_order,
    merge,
    name_beside,
    with_found,
)

START = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


def package(name: str, *, file: str = "", size: int = 10, version: str = "1") -> Package:
    return Package((name, version, "amd64"), file or f"{name}.deb", size, f"{size:064x}", None)


def stored(name: str, *, size: int = 10, minute: int = 0) -> PoolFile:
    return PoolFile(name, size, START + datetime.timedelta(minutes=minute))


def names(packages: tuple[Package, ...]) -> list[str]:
    return [package.file_name for package in packages]


def test_packages_of_others_stay_and_those_of_this_job_join() -> None:
    merged = merge([package("a")], [package("b")], [stored("a.deb"), stored("b.deb")])
    assert names(merged.packages) == ["a.deb", "b.deb"]
    assert (merged.gone, merged.missing, merged.unnamed) == ((), (), ())


@pytest.mark.parametrize("pool", [[], [stored("a.deb", size=11)]], ids=["gone", "another size"])
def test_a_package_whose_file_is_gone_or_has_another_size_is_named_no_more(pool: list[PoolFile]) -> None:
    merged = merge([package("a")], [], pool)
    assert (merged.packages, merged.gone) == ((), ("a.deb",))


def test_a_file_of_another_size_than_the_metadata_say_is_looked_into() -> None:
    found = stored("a.deb", size=11)
    assert merge([package("a")], [], [found]).unnamed == ((found,),)


def test_a_file_of_this_job_that_is_not_there_any_more_is_missing_and_another_jobs_stays() -> None:
    own, theirs = package("a", file="own.deb"), package("a", file="theirs.deb")
    merged = merge([theirs], [own], [stored("theirs.deb")])
    assert (merged.packages, merged.missing) == ((theirs,), (own,))


def test_this_jobs_package_replaces_the_one_of_the_same_name_and_version() -> None:
    own = package("a", file="a.0123456789ab.deb", size=20)
    merged = merge([package("a")], [own], [stored("a.deb"), stored("a.0123456789ab.deb", size=20)])
    assert merged.packages == (own,)
    assert merged.unnamed == ()


def test_what_this_job_replaces_is_not_looked_into_again_whatever_its_name_was() -> None:
    merged = merge([package("a", file="old.deb")], [package("a")], [stored("a.deb"), stored("old.deb")])
    assert (names(merged.packages), merged.unnamed) == (["a.deb"], ())


def test_another_version_is_another_package() -> None:
    files = [package("a", file="a_1.deb"), package("a", file="a_2.deb", version="2")]
    merged = merge(files[:1], files[1:], [stored("a_1.deb"), stored("a_2.deb")])
    assert merged.packages == tuple(files)


def test_files_that_nothing_names_are_looked_into_but_for_superseded_ones() -> None:
    pool = [stored("a.deb"), stored("a.0123456789ab.deb"), stored("left.deb")]
    assert merge([package("a")], [], pool).unnamed == ((stored("left.deb"),),)
    renamed = package("a", file="a.0123456789ab.deb")
    assert merge([renamed], [], pool).unnamed == ((stored("left.deb"),),)


def test_of_files_that_superseded_one_another_the_newest_is_tried_first() -> None:
    old, new = stored("a.deb", minute=1), stored("a.0123456789ab.deb", minute=2)
    assert merge([], [], [old, new]).unnamed == ((new, old),)
    assert merge([], [], [new, old]).unnamed == ((new, old),)
    at_once = stored("a.ffffffffffff.deb", minute=1)
    assert merge([], [], [old, at_once]).unnamed == ((at_once, old),)


def test_two_entries_of_one_identity_become_one() -> None:
    twice = [package("a", file="x.deb"), package("a", file="y.deb")]
    merged = merge(twice, [], [stored("x.deb"), stored("y.deb")])
    assert names(merged.packages) == ["x.deb"]


def test_found_packages_join_unless_their_identity_is_named_and_the_newest_wins() -> None:
    found = [
        (stored("a2.deb"), package("a", file="a2.deb")),
        (stored("b1.deb", minute=1), package("b", file="b1.deb")),
        (stored("b2.deb", minute=2), package("b", file="b2.deb")),
    ]
    assert names(with_found([package("a")], found)) == ["a.deb", "b2.deb"]


def test_two_files_of_one_package_are_found_out() -> None:
    first, second = package("a"), package("a", file="copy.deb")
    assert identity_twice([package("b"), first, second]) == (first, second)
    assert identity_twice([first, package("a", version="2")]) is None


def test_a_name_beside_is_the_same_for_the_same_bytes_and_never_grows() -> None:
    beside = name_beside("rocm_7.1+a_amd64.deb", "0123456789abcdef" * 4, ".deb")
    assert beside == "rocm_7.1+a_amd64.0123456789ab.deb"
    assert name_beside(beside, "f" * 64, ".deb") == "rocm_7.1+a_amd64.ffffffffffff.deb"


@pytest.mark.parametrize(
    "name",
    ["rocm-1.0.x86_64.rpm", "a.0123456789a.deb", "a.0123456789abc.deb", "a.0123456789aB.deb", ".0123456789ab.deb"],
)
def test_a_name_of_its_own_is_its_own_base(name: str) -> None:
    assert base_name(name) == name


_NAMES = strategies.sampled_from(["a", "b", "c"])
_FILES = strategies.sampled_from(["a.deb", "b.deb", "c.deb", "a.000000000001.deb", "b.000000000002.deb", "d.deb"])
_SIZES = strategies.integers(1, 3)
_PACKAGES = strategies.lists(
    strategies.builds(lambda name, file, size: package(name, file=file, size=size), _NAMES, _FILES, _SIZES),
    unique_by=lambda package: package.file_name,
)
_POOL = strategies.lists(
    strategies.builds(lambda file, size, minute: stored(file, size=size, minute=minute), _FILES, _SIZES, _SIZES),
    unique_by=lambda file: file.name,
)


@hypothesis.given(current=_PACKAGES, own=_PACKAGES, pool=_POOL, seed=strategies.integers(0, 99))
def test_whatever_is_there_every_name_has_its_file_and_nothing_of_this_job_is_lost(
    current: list[Package], own: list[Package], pool: list[PoolFile], seed: int
) -> None:
    own = [one for number, one in enumerate(own) if one.identity not in {other.identity for other in own[:number]}]
    merged = merge(current, own, pool)
    sizes = {file.name: file.size_bytes for file in pool}
    assert all(sizes.get(one.file_name) == one.size_bytes for one in merged.packages)
    assert set(own) == set(merged.missing) | (set(own) & set(merged.packages))
    assert len({one.identity for one in merged.packages}) == len(merged.packages)
    looked_into = {file.name for group in merged.unnamed for file in group}
    assert not looked_into & {one.file_name for one in merged.packages}
    shuffled = random.Random(seed)
    others = [shuffled.sample(part, len(part)) for part in (own, pool)]
    again = merge(current, *others)
    assert (again.packages, again.unnamed) == (merged.packages, merged.unnamed)
    assert merge(merged.packages, [], pool).packages == merged.packages == in_order(merged.packages)
