"""Mode upload-python: wheels and sdists, with pages that pip installs from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IntegrityError
from _therock_utils._transfer_types import UploadItem
from _therock_utils.workflow_outputs import INDEX_NAME
from therock_outputs.modes._pages import is_left_to_server
from therock_outputs.modes._python_pages import PackagePages, family_title
from therock_outputs.modes._python_plan import plan_packages
from therock_outputs.modes._python_stock import OwnPackages, Repository
from therock_outputs.modes._upload import upload_in_steps
from therock_outputs.pip_commands import pip_snippet, requirements_of
from therock_outputs.run_target import single_root
from therock_outputs.simple_pages import PackageEntry, sha256_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._plan import PlannedPart
    from therock_outputs.modes._python_plan import Package, PythonPlan
    from therock_outputs.modes._python_stock import FindLinks
    from therock_outputs.modes._upload import Uploader
    from therock_outputs.report import Report, Snippet

OUTPUTS: Final[Mapping[str, str]] = {
    "package_find_links_url": (
        "For pip's --find-links: the packages' page, also that of the family in input family; with folders of "
        "families, the URL to which /{family}/index.html is added. Empty where there is none."
    ),
    "index_url": (
        "For pip's --index-url: the simple repository, which ends in a slash, also that of the family in input family; "
        "with folders of families, the URL to which /{family}/simple/ is added. Empty where there is none."
    ),
    "kpack_split": (
        "true where the packages are multi-arch and in no folder of a family, else false. Empty where none was stored."
    ),
}


def run(context: Context) -> Report:
    """Store. Raises InputError for settings and names that cannot be used, IntegrityError for a broken package."""
    root = single_root(context.target)
    mode = _Mode(context, root, plan_packages(context, root))
    return upload_in_steps(
        context,
        mode.plan.folder,
        mode.parts(),
        store=mode.store,
        outputs=mode.outputs,
        snippets=mode.snippets,
        subject=mode.subject,
    )


class _Mode:
    """One run: the plan, and which pages it makes."""

    def __init__(self, context: Context, root: WorkflowOutputRoot, plan: PythonPlan) -> None:
        self.plan = plan
        self._context = context
        self._root = root
        self._by_server = plan.layout == "flat" and is_left_to_server(context, root)
        self._repositories = self._make_repositories()
        self._there: AbstractSet[StorageLocation] = frozenset()  # packages that lie there, stored or left as they were

    def _make_repositories(self) -> dict[str, Repository]:
        """Those that this run writes, by family; "" is the group's, or the run's where there are no families."""
        plan = self.plan
        if plan.layout == "families":
            return {
                family: Repository(self._root.python_packages(family), family_title(family), plan.base)
                for family in plan.families
            }
        group = self._context.settings.artifact_group if plan.layout == "group" else ""
        find_links: FindLinks = "none" if self._by_server else "write"
        return {"": Repository(plan.base, family_title(group), find_links=find_links)}

    @property
    def subject(self) -> str:
        """What the report is about."""
        if self.plan.layout == "group":
            return self._context.settings.artifact_group
        return self.plan.families[0] if len(self.plan.families) == 1 else "multi-arch"

    def parts(self) -> tuple[PlannedPart, ...]:
        """The rows, each with the page of its packages."""
        parts = self.plan.parts(self._context.settings)
        if self._context.settings.index == "none":
            return parts
        pages = {repository.folder: repository.page for repository in self._repositories.values()}
        return tuple(
            part.with_page(page, by_server=self._by_server)
            if part.items and (page := pages.get(part.items[0].destination.parent))
            else part
            for part in parts
        )

    def store(self, uploader: Uploader) -> None:
        """Store packages, then their metadata files, then the pages."""
        packages, settings = self.plan.packages, self._context.settings
        uploader.store([UploadItem(package.path, package.location) for package in packages])
        stored = {item.location for item in uploader.result.stored}
        left = {conflict.location for conflict in uploader.result.conflicts if conflict.action == "skipped"}
        self._there = stored | left
        if settings.index == "none":
            return
        uploader.store(
            [
                UploadItem(package.metadata.data, package.metadata_location)
                for package in packages
                if package.metadata.data is not None and package.location in stored
            ]
        )
        failed = {item.location for item in uploader.result.failed}
        if all(package.location in failed for package in packages):
            return
        # What could not be stored may lie there of another job; what is stored and unsound must be on no page.
        unsound = {item.location for item in uploader.result.failed if isinstance(item.error, IntegrityError)}
        pages = PackagePages(uploader, self.plan.base, OwnPackages(self._own_entries(uploader), unsound))
        pages.store(tuple(self._repositories.values()), with_families=self.plan.layout != "group")

    def _own_entries(self, uploader: Uploader) -> dict[StorageLocation, PackageEntry]:
        """What is known of the packages that this run stored; what it left as it was is another's."""
        stored = {item.location: item for item in uploader.result.stored}
        entries: dict[StorageLocation, PackageEntry] = {}
        for package in self.plan.packages:
            item = stored.get(package.location)
            if item is not None:
                data = package.metadata.data
                has_metadata = data is not None and package.metadata_location in stored
                entries[package.location] = PackageEntry(
                    package.name.file_name,
                    item.size_bytes,
                    item.sha256,
                    package.metadata.requires_python,
                    sha256_of(data) if data is not None and has_metadata else "",
                )
        return entries

    def outputs(self, opens: AbstractSet[StorageLocation]) -> dict[str, str]:
        """The mode's outputs; what cannot be opened is empty."""
        repositories = tuple(self._repositories.values())
        has_page = any(self._opens(repository, opens) for repository in repositories)
        has_simple = any(_simple_page(repository) in opens for repository in repositories)
        if self.plan.layout == "families" and not self._context.settings.family:
            page = simple = self.plan.base.https_url
        else:
            page = repositories[0].page.https_url if repositories else ""
            simple = f"{repositories[0].simple.https_url}/" if repositories else ""
        kpack_split = "true" if self.plan.layout == "flat" else "false"
        return {
            "package_find_links_url": page if has_page else "",
            "index_url": simple if has_simple else "",
            "kpack_split": kpack_split if self._there else "",
        }

    def _opens(self, repository: Repository, opens: AbstractSet[StorageLocation]) -> bool:
        """Whether the page for --find-links can be opened; the server makes it where packages are."""
        return repository.page in opens or (self._by_server and any(map(self._is_there, self.plan.packages)))

    def _is_there(self, package: Package) -> bool:
        """Whether it can be fetched: in a dry run nothing can."""
        return package.location in self._there and not self._context.settings.dry_run

    def snippets(self, opens: AbstractSet[StorageLocation]) -> tuple[Snippet, ...]:
        """A command for each family, or the one of all."""
        found: list[Snippet] = []
        for family, repository in self._repositories.items():
            packages = [
                package for package in self.plan.packages if self._is_there(package) and package.family in {family, ""}
            ]
            if packages and self._opens(repository, opens):
                found.append(self._snippet(family, repository, packages))
        return tuple(found)

    def _snippet(self, family: str, repository: Repository, packages: list[Package]) -> Snippet:
        staging_dir = self._context.staging_dir
        address = repository.page.https_url
        if staging_dir is not None:
            address = self._context.workspace.shown(repository.page.local_path(staging_dir))
        return pip_snippet(
            f"Install the packages of {family}:" if family else "Install the packages:",
            platform=self._root.platform,
            find_links=address,
            requirements=requirements_of((package.name, package.metadata) for package in packages),
        )


def _simple_page(repository: Repository) -> StorageLocation:
    return repository.simple.child(INDEX_NAME)
