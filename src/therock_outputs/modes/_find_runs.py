"""The runs that find-artifacts looks at: of a commit or a branch, newest first, or the one that is named."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import GitHubError, InputError
from _therock_utils._github import fetch_workflow_run
from _therock_utils._github_api import waiting_line
from _therock_utils._github_runs import (
    RUNS_A_PAGE,
    check_branch,
    check_commit,
    is_full_sha,
    resolve_commit,
    workflow_runs,
)
from _therock_utils._keys import check_segment, quote
from _therock_utils._run_identity import read_record
from _therock_utils.s3_buckets import DEFAULT_REPOSITORY, Repository, parse_release_type, select_bucket
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from therock_outputs.mode_names import Mode
from therock_outputs.run_target import resolve_target, root_of_record, single_platform, single_root
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from therock_outputs.context import Context

_WORD: Final = re.compile(r"[a-z_]{1,40}")
_INSTANT: Final = re.compile(r"[0-9T:.+Z-]{10,40}")
_MAX_BRANCH_CHARACTERS: Final = 255
_SHOWN_SHA_CHARACTERS: Final = 12
_SHOWN_RUNS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is kept of the API's record of a run; "" for what it does not say, or not as GitHub says it.

    `head_branch` can be any text: a fork's owner chooses it.
    """

    run_id: str
    head_sha: str = ""
    head_branch: str = ""
    status: str = ""
    conclusion: str = ""
    attempt: int = 1
    created_at: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether nothing is stored by it any more, unless it is run again."""
        return self.status == "completed"

    @property
    def state(self) -> str:
        """How it went, or that it is under way, in a word; "" where nobody was asked."""
        return self.conclusion if self.is_finished else self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(RunFacts):
    """A run that is meant, and where its outputs are."""

    root: WorkflowOutputRoot
    repository: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedRun(RunFacts):
    """A run that is passed over, and why.

    With `is_unreadable` its record does not say where its outputs are, so that nobody knows what it holds.
    """

    why: str
    is_unreadable: bool = False


class RunSource:
    """The runs that the settings mean, to be looked at once or again and again.

    Memory: a page of records, and what is kept of 1,000 runs at most.
    """

    def __init__(self, context: Context) -> None:
        """Raises InputError unless exactly one of commit, branch and run_id is given, and for what cannot be used.

        What the settings say is checked here, so that what fails later is GitHub's, or a run's.
        """
        settings = context.settings
        given = [name for name in ("commit", "branch", "run_id") if getattr(settings, name)]
        if len(given) != 1:
            what = f"mode {settings.mode} takes one of commit, branch and run_id"
            raise InputError(what, why=f"given: {', '.join(given) or 'none'}", remedy="Say where to look, in one way.")
        self._context = context
        self._settings = settings
        self._platform = single_platform(settings)
        self._repository = Repository.parse(settings.repository or settings.github_repository or DEFAULT_REPOSITORY)
        self._commit = check_commit(settings.commit) if settings.commit else ""
        self._branch = check_branch(settings.branch) if settings.branch else ""
        check_segment(settings.workflow, "workflow")
        release_type = parse_release_type(settings.release_type or settings.release_type_environment)
        chosen = select_bucket(release_type=release_type, repository=self._repository, is_pr_from_fork=False)
        WorkflowOutputRoot(settings.bucket or chosen.bucket, "", "1", self._platform)
        self.asks_github = self._is_github_asked()
        self._notices: dict[str, None] = {}
        self._known: dict[str, Run | PassedRun] = {}  # of the last look, newest first; only where it looks again

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person must be told, once each."""
        return tuple(self._notices)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was set in vain."""
        if self._settings.run_id and self._settings.workflow != type(self._settings).model_fields["workflow"].default:
            return ("input workflow is not used where run_id says which run is meant",)
        return ()

    @property
    def subject(self) -> str:
        """What is searched, in words."""
        if self._settings.run_id:
            return f"run {self._settings.run_id}"
        return f"commit {self._commit[:_SHOWN_SHA_CHARACTERS]}" if self._commit else f"branch {self._branch}"

    @property
    def none_there(self) -> str:
        """That there is no run, in words."""
        workflow = quote(self._settings.workflow)
        return f"{self._repository.full_name} has no run of workflow {workflow} for {self.subject}"

    def runs(self) -> Generator[Run | PassedRun, None, None]:
        """The runs to look at and those passed over, newest first. A later look asks only for what can change.

        Raises GitHubError or CredentialsError where GitHub does not answer or not as it does, also for the record of a
        run that is named, and NotFoundError for a short commit that is none.
        """
        if self._settings.run_id:
            yield self._run_alone()
            return
        if self._commit and not is_full_sha(self._commit):
            self._commit = resolve_commit(self._repository, self._commit, token=self._token, wait=self._wait)
        before, now_known = self._known, dict[str, Run | PassedRun]()
        under_way = {run.run_id for run in before.values() if not run.is_finished}
        records = workflow_runs(
            self._repository,
            self._settings.workflow,
            head_sha=self._commit,
            branch=self._branch,
            token=self._token,
            wait=self._wait,
            notice=self._note,
        )
        with contextlib.closing(records):
            for record in records:
                run = self._judge(str(record["id"]), record)
                if self._settings.wait_seconds:
                    now_known[run.run_id] = run
                    self._known = now_known
                yield run
                under_way.discard(run.run_id)
                if before and not under_way and len(now_known) >= RUNS_A_PAGE:
                    break
            else:
                return
        for run_id, run in before.items():
            if run_id not in now_known:
                now_known[run_id] = run
                yield run

    def _run_alone(self) -> Run | PassedRun:
        settings, context = self._settings, self._context
        if self.asks_github:
            record = fetch_workflow_run(
                self._repository, settings.run_id, token=self._token, wait=self._wait, cached=False
            )
            run = self._judge(settings.run_id, record)
            if isinstance(run, PassedRun) and run.is_unreadable:
                raise unreadable_error([run])
            return run
        as_fetched = settings.model_copy(update={"mode": Mode.FETCH_ARTIFACTS})  # they mean the same place
        target = resolve_target(as_fetched, context.cancel, say=context.say)
        for notice in target.notices:
            self._note(notice)
        root = single_root(target)
        return Run(run_id=root.run_id, root=root, repository=self._repository.full_name)

    def _is_github_asked(self) -> bool:
        settings = self._settings
        if not settings.run_id:
            if settings.lookup == "false":
                what = "a commit's or a branch's runs are found only by asking GitHub"
                raise InputError(what, why="lookup is false", remedy="Leave out lookup, or give run_id.")
            return True
        asks = settings.lookup == "true" or (
            settings.lookup == "auto" and self._context.staging_dir is None and settings.run_id.isdigit()
        )
        if settings.require_successful_run and not asks:
            what = "whether a run succeeded is found only by asking GitHub"
            raise InputError(what, remedy="Set lookup: true, or leave out require_successful_run.")
        return asks

    def _judge(self, run_id: str, record: Mapping[str, object]) -> Run | PassedRun:
        """The run of a record. Where its outputs are is read only of one that is meant."""
        facts = _facts(run_id, record)
        try:
            why = self._why_passed_over(facts) or self._why_forks(record)
            if why:
                return PassedRun(**asdict(facts), why=why)
            root = root_of_record(self._settings, self._repository, record, run_id=run_id, platform=self._platform)
            repository = read_record(record, repository=self._repository).repository.full_name
        except GitHubError as error:  # what the settings say is checked already
            return PassedRun(**asdict(facts), why=f"its record cannot be read: {error.why}", is_unreadable=True)
        return Run(**asdict(facts), root=root, repository=repository)

    def _why_passed_over(self, run: RunFacts) -> str:
        """Why a run that GitHub lists is none of those that are meant; "" where it may be one."""
        if self._commit and run.head_sha != self._commit:
            return "it is another commit's"
        if self._branch and run.head_branch != self._branch:
            return "it is another branch's"
        if self._settings.require_successful_run and (not run.is_finished or run.conclusion != "success"):
            return f"it did not succeed ({run.state})" if run.is_finished else "it is under way"
        return ""

    def _why_forks(self, record: Mapping[str, object]) -> str:
        """Why a run is none of the branch's although its branch has that name: GitHub lists those of forks, too."""
        who = {name: record.get(name) for name in ("repository", "head_repository")}
        if self._branch and read_record(who, repository=self._repository).is_pr_from_fork:
            return "it is of a fork's branch of that name"
        return ""

    @property
    def _token(self) -> str:
        return self._settings.github_token.get_secret_value()

    def _wait(self, seconds: float, cause: str) -> None:
        self._context.say(waiting_line(seconds, cause))
        self._context.cancel.sleep(seconds)

    def _note(self, notice: str) -> None:
        self._notices[notice] = None


def _facts(run_id: str, record: Mapping[str, object]) -> RunFacts:
    """Take what is as GitHub says it, and nothing else."""

    def text(name: str, shape: re.Pattern[str]) -> str:
        value = record.get(name)
        return value if isinstance(value, str) and shape.fullmatch(value) else ""

    head_sha, branch, attempt = record.get("head_sha"), record.get("head_branch"), record.get("run_attempt")
    return RunFacts(
        run_id=run_id,
        head_sha=head_sha if isinstance(head_sha, str) and is_full_sha(head_sha) else "",
        head_branch=branch[:_MAX_BRANCH_CHARACTERS] if isinstance(branch, str) else "",
        status=text("status", _WORD),
        conclusion=text("conclusion", _WORD),
        attempt=attempt if isinstance(attempt, int) and not isinstance(attempt, bool) and attempt > 0 else 1,
        created_at=text("created_at", _INSTANT),
    )


def unreadable_error(runs: Sequence[PassedRun]) -> GitHubError:
    """The error of a search that found nothing, where nobody knows what `runs` hold. Pure."""
    shown = [f"run {run.run_id}: {run.why}" for run in runs[:_SHOWN_RUNS]]
    more = len(runs) - len(shown)
    return GitHubError(
        f"it cannot be told where the outputs of {count(len(runs), 'run')} are, and what they hold",
        why="; ".join(shown) + (f"; and {more:,} more" if more else ""),
        remedy="Look at the runs at GitHub; run_id with lookup: false looks for one without its record.",
    )
