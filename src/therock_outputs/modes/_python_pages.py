"""Pages of repositories of Python packages, which several jobs append to: made of a listing, so that all are on them.

What a page says beyond names and sizes comes from this run, else from documents that are there, else from the service.
A project's documents are stored before the root that names it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import NotPermittedError, OutputsError
from _therock_utils.workflow_outputs import INDEX_NAME, SIMPLE_NAME
from therock_outputs.find_links_page import render_find_links_page
from therock_outputs.modes._documents import Keep, Write, add_failed, store_documents
from therock_outputs.modes._python_folders import store_folder_documents
from therock_outputs.modes._python_stock import PackageStock, Repository
from therock_outputs.python_packages import is_package, package_name, parse_package_name
from therock_outputs.simple_pages import (
    HTML_TYPE,
    JSON_NAME,
    JSON_TYPE,
    PackageEntry,
    is_ours,
    read_entries,
    read_projects,
    render_project_json,
    render_project_page,
    render_root_json,
    render_root_page,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._documents import Decision
    from therock_outputs.modes._python_stock import Entries, Listing, OwnPackages
    from therock_outputs.modes._upload import Uploader

_MAX_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class _Document:
    repository: Repository
    project: str | None  # None: the root, or the page for --find-links
    kind: Literal["html", "json", "find-links"]


class PackagePages:
    """Stores the pages of repositories below `base`."""

    def __init__(self, uploader: Uploader, base: StorageLocation, own: OwnPackages) -> None:
        self._uploader = uploader
        self._base = base
        self._own = own
        self._stock = PackageStock(uploader, base, own)
        self._own_projects = frozenset(
            name.project for at in own.entries if at.parent == base and (name := package_name(at.name))
        )
        self._decided: dict[StorageLocation, bytes] = {}
        self._stored: set[StorageLocation] = set()
        self._unreadable: set[StorageLocation] = set()
        self._documents: dict[StorageLocation, _Document] = {}

    def store(self, repositories: Sequence[Repository], *, with_families: bool) -> None:
        """Store what is missing or old, and the same for families' repositories that other jobs made.

        These name generic packages, too; `with_families` says whether there are any. A generic package that another
        job stores while a family's page is made is on neither job's listing in the worst case, so all is listed once
        more at the end, and done again where something came.
        Never raises: what fails is a failed item.
        """
        try:
            self._store_in_rounds(repositories, with_families=with_families)
        except OutputsError as error:
            add_failed(self._uploader, {repository.page: error for repository in repositories})

    def _store_in_rounds(self, repositories: Sequence[Repository], *, with_families: bool) -> None:
        shown: set[StorageLocation] = set()
        for _ in range(_MAX_ROUNDS):
            before = self._uploader.result.stored
            listing = self._stock.list_all()
            packages = {at for at in listing or {} if is_package(at.name)}
            if packages and packages <= shown:
                break
            shown = packages
            wanted = [*repositories]
            if with_families:
                wanted += self._other_families(repositories, listing)
            self._store_all(wanted, listing)
            self._count_once(len(before))
            if listing is None or not any(repository.generic for repository in wanted):
                break

    def _store_all(self, repositories: Sequence[Repository], listing: Listing | None) -> None:
        projects: list[StorageLocation] = []
        roots: list[StorageLocation] = []
        for repository in repositories:
            for project in sorted(self._projects(repository, listing)):
                projects += self._name_both(repository, project)
            roots += self._name_both(repository, None)
            if repository.find_links != "none":
                self._documents[repository.page] = _Document(repository, None, "find-links")
                roots.append(repository.page)
        stored = self._store_documents(projects) | self._store_documents(roots)
        lists = sorted((at for at in stored if self._documents[at].kind == "json"), key=str)
        store_folder_documents(self._uploader, {at: self._decided[at] for at in lists}, self._page)

    def _store_documents(self, locations: Sequence[StorageLocation]) -> set[StorageLocation]:
        """Store what can be stored; which are what was decided now. One that is there and cannot be read is left."""
        wanted = [at for at in locations if at not in self._unreadable]
        before = len(self._uploader.result.stored)
        there = store_documents(self._uploader, wanted, self._compose)
        stored = {item.location for item in self._uploader.result.stored[before:]}
        kept = {at for at in there if at in self._decided and at not in stored}
        self._unreadable |= kept
        self._stored |= stored
        self._fail_without_own({at for at in kept - self._stored if self._is_for_own(self._documents[at])})
        return stored

    def _is_for_own(self, document: _Document) -> bool:
        """Whether packages that this run stored are to be on it."""
        folders = {document.repository.folder, document.repository.generic}
        names = (package_name(at.name) for at in self._own.entries if at.parent in folders)
        projects = {name.project for name in names if name is not None}
        return bool(projects) if document.project is None else document.project in projects

    def _fail_without_own(self, locations: AbstractSet[StorageLocation]) -> None:
        self._uploader.kept_pages -= locations
        failed: dict[StorageLocation, OutputsError | None] = {
            at: NotPermittedError(
                f"{at.s3_uri} does not name the packages of this run",
                why="it is there, and cannot be read with these credentials, so nothing can be added to it",
                remedy=f"Let them do s3:GetObject below {self._base.s3_uri}/, and run this again.",
            )
            for at in locations
        }
        add_failed(self._uploader, failed)

    def _name_both(self, repository: Repository, project: str | None) -> tuple[StorageLocation, StorageLocation]:
        folder = repository.simple.child(project) if project is not None else repository.simple
        page, list_ = folder.child(INDEX_NAME), folder.child(JSON_NAME)
        self._documents[page] = _Document(repository, project, "html")
        self._documents[list_] = _Document(repository, project, "json")
        return page, list_

    def _page(self, location: StorageLocation, document: bytes) -> bytes:
        """The page of a project or root whose JSON is `document`."""
        project = self._documents[location].project
        if project is None:
            return render_root_page(read_projects(document))
        return render_project_page(project, read_entries(document) or ())

    def _other_families(self, repositories: Sequence[Repository], listing: Listing | None) -> list[Repository]:
        known = {repository.folder for repository in repositories}
        if not self._own_projects:
            return []
        folders = {at.parent.parent for at in listing or {} if at.name == INDEX_NAME and at.parent.name == SIMPLE_NAME}
        return [
            Repository(folder, family_title(folder.name), self._base, "refresh", self._own_projects)
            for folder in sorted(folders - known, key=str)
            if folder.parent == self._base
        ]

    def _projects(self, repository: Repository, listing: Listing | None) -> set[str]:
        """The projects whose documents are made."""
        if repository.projects is not None:
            return set(repository.projects)
        places = self._own.entries.keys() if listing is None else listing.keys() | self._own.entries.keys()
        folders = {repository.folder, repository.generic}
        names = [package_name(at.name) for at in places if at.parent in folders]
        return {name.project for name in names if name is not None}

    def _compose(self, present: Mapping[StorageLocation, StoredBytes | None]) -> dict[StorageLocation, Decision]:
        listing = self._stock.list_all()
        said: dict[StorageLocation, Entries] = {}
        for location, stored in present.items():
            repository = self._documents[location].repository
            listed = read_entries(stored.data) if stored is not None else None
            said[location] = {repository.place(entry): entry for entry in listed or ()}
            self._stock.learn(said[location])
        known = {at: entry for entries in said.values() for at, entry in entries.items()}
        repositories = {id(one): one for one in (self._documents[at].repository for at in present)}
        held: dict[int, list[PackageEntry]] = {}
        if listing is not None:
            self._stock.look_up(repositories.values(), listing)
            held = {number: self._stock.entries(one, listing) for number, one in repositories.items()}
        decisions: dict[StorageLocation, Decision] = {}
        for location, stored in present.items():
            document = self._documents[location]
            entries = held.get(id(document.repository))
            if entries is None:
                entries = self._stock.said_entries(document.repository, known | said[location])
            decision = self._decide(document, stored, entries, listing)
            self._decided.pop(location, None)
            if isinstance(decision, Write):
                self._decided[location] = decision.data
            decisions[location] = decision
        return decisions

    def _decide(
        self, document: _Document, stored: StoredBytes | None, entries: Sequence[PackageEntry], listing: Listing | None
    ) -> Decision:
        if document.kind == "find-links":
            return _find_links(document.repository, stored, entries)
        if document.project is None:
            projects = self._listed_projects(document.repository, stored, entries, listing)
            if document.kind == "html":
                return Write(render_root_page(projects), HTML_TYPE)
            return Write(render_root_json(projects), JSON_TYPE)
        files = [entry for entry in entries if _project_of(entry) == document.project]
        if stored is None and not files:
            return Keep()
        if document.kind == "html":
            return Write(render_project_page(document.project, files), HTML_TYPE)
        return Write(render_project_json(document.project, files), JSON_TYPE)

    def _listed_projects(
        self,
        repository: Repository,
        stored: StoredBytes | None,
        entries: Sequence[PackageEntry],
        listing: Listing | None,
    ) -> set[str]:
        """The projects of a root: those that have packages, and a page that is there."""
        projects = {_project_of(entry) for entry in entries}
        if listing is not None:
            return {project for project in projects if repository.simple.child(project).child(INDEX_NAME) in listing}
        return projects | set(read_projects(stored.data) if stored is not None else ())

    def _count_once(self, before: int) -> None:
        """Let a document that was stored in several rounds count once, as it is in the end."""
        result = self._uploader.result
        latest = {stored.location: stored for stored in result.stored}
        if before and len(latest) < len(result.stored):
            self._uploader.result = dataclasses.replace(result, stored=tuple(latest.values()))


def family_title(family: str) -> str:
    """The title of a family's, or a group's, page: the same from whichever job."""
    return f"Python packages: {family}" if family else "Python packages"


def _find_links(repository: Repository, stored: StoredBytes | None, entries: Sequence[PackageEntry]) -> Decision:
    if stored is not None and not is_ours(stored.data):
        return Keep("another program made it")
    if stored is None and (not entries or repository.find_links == "refresh"):
        return Keep()
    return Write(render_find_links_page(repository.title, entries), HTML_TYPE)


def _project_of(entry: PackageEntry) -> str:
    return parse_package_name(entry.file_name).project
