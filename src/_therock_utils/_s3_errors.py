"""The one boundary at which errors of obstore and botocore become errors of this project.

obstore raises `GenericError` for most refusals; HTTP status and S3 code stand only in its message, so this module reads
them there. S3 codes: Amazon S3 API Reference, "Error responses".
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import (
    BucketNotFoundError,
    ConflictError,
    CredentialsError,
    InputError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
    ServiceError,
    ServiceUnavailableError,
    WrongRegionError,
)
from _therock_utils._keys import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from obstore.exceptions import BaseError

PROVIDER_NAME: Final = "External AWS credential provider"
"""What obstore calls our credential provider in its messages."""

_STATUS: Final = re.compile(r"Server returned non-2xx status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>\s*([A-Za-z0-9._-]{1,100})\s*</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,500})</Message>")
_REGION: Final = re.compile(r"<Region>([a-z0-9-]{1,40})</Region>|expecting '([a-z0-9-]{1,40})'")
_DEBUG: Final = "\n\nDebug source:"

_TRANSIENT_CODES: Final = frozenset({
    "BandwidthLimitExceeded", "ConditionalRequestConflict", "InternalError", "NoSuchUpload", "OperationAborted",
    "PriorRequestNotComplete", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable", "SlowDown",
    "Throttling", "ThrottlingException", "ThrottledException", "TooManyRequests", "TooManyRequestsException",
})  # fmt: skip
_EXPIRED_CODES: Final = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_BAD_CREDENTIAL_CODES: Final = (
    "AuthFailure", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSecurity", "InvalidToken",
    "MissingAuthenticationToken", "NotSignedUp", "SignatureDoesNotMatch", "UnrecognizedClientException",
)  # fmt: skip
_WRONG_REGION_CODES: Final = frozenset({
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "Redirect",
    "TemporaryRedirect",
})  # fmt: skip
_BROKEN_BODY_CODES: Final = ("BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch")
_CONNECTION_ERRORS: Final = frozenset({
    "ConnectTimeoutError", "ConnectionClosedError", "ConnectionError", "EndpointConnectionError", "HTTPClientError",
    "IncompleteReadError", "ReadTimeoutError", "ResponseStreamingError",
})  # fmt: skip
_CREDENTIAL_ERRORS: Final = frozenset({
    "CredentialRetrievalError", "MetadataRetrievalError", "NoCredentialsError", "PartialCredentialsError",
    "ProfileNotFound", "RefreshWithMFAUnsupportedError", "SSOError", "SSOTokenLoadError", "TokenRetrievalError",
    "UnauthorizedSSOTokenError", "InvalidConfigError", "ConfigParseError",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """What the service said: HTTP status (0 where no answer came), S3 code, message and region ("" where absent).

    `failure` describes a request without an answer: `refused`, `dns`, `tls`, `timeout` or `connection`.
    """

    status: int = 0
    code: str = ""
    message: str = ""
    region: str = ""
    failure: str = ""

    @property
    def text(self) -> str:
        """One line for a person; whatever the service wrote is escaped and cut."""
        if self.failure:
            return _FAILURE_TEXTS[self.failure]
        said = " ".join(part for part in (str(self.status or ""), self.code) if part)
        return f"the service answered {said}" + (f": {quote(self.message)}" if self.message else "")


_FAILURE_TEXTS: Final = {
    "refused": "the connection was refused",
    "dns": "the host's name could not be resolved",
    "tls": "the server's certificate is not trusted",
    "timeout": "no answer came in time",
    "connection": "the connection broke",
}


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request was about, for its error's message."""

    action: str  # "store", "read", "list", "copy", "look at"
    target: str  # s3 URI
    bucket: str
    region: str
    endpoint: str  # "" at AWS
    identity: str  # whose credentials were used, without secrets; "" for an anonymous request
    ask_caller: Callable[[], str] = str  # asks AWS for their ARN, "" where that is not known


def parse_obstore_message(message: str) -> ServiceAnswer:
    """Read status, code, message and region out of an obstore error's text (obstore 0.12, object_store 0.14)."""
    head, _, debug = message.partition(_DEBUG)
    status = _STATUS.search(head)
    code = _CODE.search(head)
    if status or code:
        said, region = _MESSAGE.search(head), _REGION.search(head)
        return ServiceAnswer(
            status=int(status[1]) if status else 0,
            code=code[1] if code else "",
            message=said[1] if said else "",
            region=(region[1] or region[2]) if region else "",
        )
    if "Received redirect" in head:
        return ServiceAnswer(status=301, code="PermanentRedirect")
    if "HTTP error:" in head or "Error getting" in head or "Content-Range header not present" in head:
        return ServiceAnswer(failure=_connection_failure(debug))
    return ServiceAnswer()


def _connection_failure(debug: str) -> str:
    """Which way the connection failed, from the debug part of a message."""
    if "InvalidCertificate" in debug:
        return "tls"
    if "ConnectionRefused" in debug:
        return "refused"
    if "dns error" in debug:
        return "dns"
    return "timeout" if "kind: Timeout" in debug or "TimedOut" in debug else "connection"


def translate_obstore(error: BaseError | FileNotFoundError, context: RequestContext) -> OutputsError:
    """`error` of obstore as one of ours."""
    message = str(error)
    if PROVIDER_NAME in message.partition(_DEBUG)[0]:
        return no_credentials(context, why=quote(message.partition(_DEBUG)[0].rpartition(PROVIDER_NAME + ": ")[2]))
    answer = parse_obstore_message(message)
    if not answer.status and not answer.code and not answer.failure:
        what = f"could not {context.action} {context.target}"
        return ServiceError(
            what, why=f"not an answer of S3: {quote(message.partition(_DEBUG)[0])}", remedy=_ENDPOINT_REMEDY
        )
    return from_answer(answer, context)


def is_panic(error: BaseException) -> bool:
    """Whether `error` is a panic of obstore's Rust code; its class cannot be imported."""
    return type(error).__module__ == "pyo3_runtime" and type(error).__name__ == "PanicException"


def panicked(context: RequestContext) -> ServiceError:
    """obstore panicked. What it says may hold a header, so nothing of it is shown."""
    return ServiceError(
        f"could not {context.action} {context.target}",
        why="the request could not be built or its answer not be read: a fault of obstore",
        remedy=_SETTINGS_REMEDY,
    )


@contextlib.contextmanager
def building(context: RequestContext) -> Iterator[None]:
    """Around making a store or client: what it says of its settings becomes an InputError, a panic a ServiceError."""
    from botocore.exceptions import BotoCoreError
    from obstore.exceptions import BaseError

    try:
        yield
    except OutputsError:  # an InputError is a ValueError
        raise
    except BotoCoreError as error:
        raise translate_botocore(error, context) from error
    except (BaseError, TypeError, ValueError) as error:
        what = f"could not {context.action} {context.target}: the AWS settings cannot be used"
        raise InputError(what, why=quote(str(error).partition(_DEBUG)[0]), remedy=_SETTINGS_REMEDY) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise panicked(context) from error


def translate_botocore(
    error: ClientError | BotoCoreError | ResponseParserError, context: RequestContext
) -> OutputsError:
    """`error` of botocore as one of ours."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return from_answer(_answer_of(response), context)
    names = {kind.__name__ for kind in type(error).__mro__}
    if "ResponseParserError" in names:
        what = f"could not {context.action} {context.target}"
        return ServiceError(what, why=f"not an answer of S3: {quote(str(error))}", remedy=_ENDPOINT_REMEDY)
    if names & _CREDENTIAL_ERRORS:
        return no_credentials(context, why=quote(str(error)))
    if "SSLError" in names:
        return from_answer(ServiceAnswer(failure="tls"), context)
    if names & _CONNECTION_ERRORS:
        failure = "timeout" if any("Timeout" in name for name in names) else "connection"
        return from_answer(ServiceAnswer(failure=failure), context)
    return ServiceError(f"could not {context.action} {context.target}", why=quote(str(error)))


def _answer_of(response: dict[str, object]) -> ServiceAnswer:
    """The answer inside a botocore ClientError; a HEAD's code is only its status, given as text."""
    said, metadata = response.get("Error"), response.get("ResponseMetadata")
    details = said if isinstance(said, dict) else {}
    facts = metadata if isinstance(metadata, dict) else {}
    headers = facts.get("HTTPHeaders") or {}
    code = str(details.get("Code", ""))
    status = int(facts.get("HTTPStatusCode") or (code if code.isdigit() else 0))
    region = str(headers.get("x-amz-bucket-region", "") or details.get("Region", ""))
    return ServiceAnswer(status, "" if code.isdigit() else code, str(details.get("Message", "")), region)


def from_answer(answer: ServiceAnswer, context: RequestContext) -> OutputsError:
    """The error that an answer stands for."""
    what = f"could not {context.action} {context.target}"
    kind, remedy = _classify(answer, context)
    return kind(what, why=_why(answer, context), remedy=remedy)


def is_transient(answer: ServiceAnswer) -> bool:
    """Whether a retry can help: connection errors, 408, 429, 5xx but 501, throttling codes."""
    if answer.failure:
        return answer.failure != "tls"
    if answer.code in _TRANSIENT_CODES:
        return True
    return answer.status in {408, 429} or (answer.status >= 500 and answer.status != 501)  # noqa: PLR2004 - HTTP status codes


def _classify(answer: ServiceAnswer, context: RequestContext) -> tuple[type[OutputsError], str]:
    """Error class and remedy: by the S3 code where it is a known one, else by the status."""
    if is_transient(answer):
        return ServiceUnavailableError, _unavailable_remedy(answer, context)
    if answer.failure == "tls":
        return ServiceError, _TLS_REMEDY
    if answer.code in _WRONG_REGION_CODES or answer.status in {301, 307}:
        return WrongRegionError, _region_remedy(answer, context)
    if answer.code in _BY_CODE:
        return _BY_CODE[answer.code]
    if answer.status in {401, 403}:
        return NotPermittedError, _denied_remedy(context)
    return _BY_STATUS.get(answer.status, (ServiceError, _ENDPOINT_REMEDY if context.endpoint else ""))


def no_credentials(context: RequestContext, *, why: str = "") -> CredentialsError:
    """There are no usable AWS credentials."""
    return CredentialsError(
        f"could not {context.action} {context.target}: no AWS credentials",
        why=why or "none were found in the environment, a profile or the machine",
        remedy=_NO_CREDENTIALS_REMEDY,
    )


def _why(answer: ServiceAnswer, context: RequestContext) -> str:
    place = f"at {context.endpoint}" if context.endpoint else f"in {context.region}"
    who = f", asked with {context.identity}" if context.identity else ", asked without credentials"
    return f"{answer.text} ({place}{who})"


def _unavailable_remedy(answer: ServiceAnswer, context: RequestContext) -> str:
    if answer.failure and context.endpoint:
        setting = "AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url"
        return f"Check that {context.endpoint} ({setting}) is right and can be reached."
    if answer.failure:
        return "Check the runner's network and proxy settings (HTTPS_PROXY, NO_PROXY), then run the job again."
    return "The service is busy or has a fault: run the job again later."


def _region_remedy(answer: ServiceAnswer, context: RequestContext) -> str:
    where = f"in {answer.region}" if answer.region else "in another region"
    name = answer.region or "the bucket's region"
    return (
        f"Bucket {context.bucket} lies {where}, the request went to {context.region}: set AWS_DEFAULT_REGION to {name}."
    )


def _denied_remedy(context: RequestContext) -> str:
    if not context.identity:
        return f"Bucket {context.bucket} gives nothing to anonymous requests: configure AWS credentials."
    allowed = _PERMISSIONS.get(context.action, "access")
    caller = context.ask_caller()
    whose = f"{context.identity}, which are {caller}," if caller else context.identity
    return f"Let {whose} {allowed} in bucket {context.bucket}, or use the role that may: {_LOGIN}."


_PERMISSIONS: Final = {
    "store": "do s3:PutObject",
    "read": "do s3:GetObject",
    "look at": "do s3:GetObject",
    "list": "do s3:ListBucket",
    "copy": "do s3:GetObject and s3:PutObject",
    "remove": "do s3:GetObject and s3:DeleteObject",
}
_LOGIN: Final = (
    "run aws-actions/configure-aws-credentials before this step, with the outputs iam_role and aws_region of a step "
    "with `mode: locate` as role-to-assume and aws-region, in a job with `permissions: id-token: write`"
)
_SETTINGS_REMEDY: Final = "Check the AWS settings: credentials, region, endpoint, certificates and proxy."
_EXPIRED_REMEDY: Final = (
    f"The credentials ran out during the job: {_LOGIN}, right before it, or ask there for a longer "
    "role-duration-seconds."
)
_BAD_CREDENTIALS_REMEDY: Final = (
    "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN: all three must come from one login, and "
    "secrets are empty in workflows of a fork."
)
_NO_CREDENTIALS_REMEDY: Final = f"{_LOGIN[0].upper()}{_LOGIN[1:]}, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
_CLOCK_REMEDY: Final = "The clock of this machine is wrong: set it (NTP), then run the job again."
_BUCKET_REMEDY: Final = "Check the bucket's name (input `bucket`, RELEASE_TYPE) and the endpoint."
_ENDPOINT_REMEDY: Final = (
    "Check that the endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile's endpoint_url) is an S3 service."
)
_TLS_REMEDY: Final = (
    "Set AWS_CA_BUNDLE (or ca_bundle in the AWS configuration file) to the PEM file of the authority that signed it."
)
_BODY_REMEDY: Final = (
    "The bytes changed on their way: run the job again; if it recurs, look for a proxy that changes them."
)
_BY_CODE: Final[Mapping[str, tuple[type[OutputsError], str]]] = {
    **dict.fromkeys(_EXPIRED_CODES, (CredentialsError, _EXPIRED_REMEDY)),
    **dict.fromkeys(_BAD_CREDENTIAL_CODES, (CredentialsError, _BAD_CREDENTIALS_REMEDY)),
    "RequestTimeTooSkewed": (CredentialsError, _CLOCK_REMEDY),
    "NoSuchBucket": (BucketNotFoundError, _BUCKET_REMEDY),
    **dict.fromkeys(_BROKEN_BODY_CODES, (IntegrityError, _BODY_REMEDY)),
}
_BY_STATUS: Final[Mapping[int, tuple[type[OutputsError], str]]] = {
    404: (NotFoundError, ""),
    409: (ConflictError, ""),
    412: (ConflictError, ""),
}
