"""obstore says status and S3 code only in words: each answer is given by a real server, so new wording fails here."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import obstore
import pytest

from _therock_utils import _errors
from _therock_utils._s3_calls import boto3_call, obstore_call
from _therock_utils._s3_session import S3Connection
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import Answer, CutShort, Reset, Stall, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore.store import S3Store

    from faults.conftest import Bucket

_REQUESTS: dict[str, Callable[[S3Store], object]] = {
    "put": lambda store: obstore.put(store, "key", b"data", use_multipart=False),
    "multipart": lambda store: obstore.put(store, "key", iter([b"data"]), use_multipart=True),
    "get": lambda store: obstore.get(store, "key").bytes(),
    "list": lambda store: next(iter(obstore.list(store, "folder")), None),
    "copy": lambda store: obstore.copy(store, "key", "other"),
}
_NAMES = sorted(_REQUESTS)


def _connection(url: str = "", *, request_timeout_seconds: float = 20) -> S3Connection:
    return S3Connection(endpoint_url=url, request_timeout_seconds=request_timeout_seconds, retry_seconds=0.5)


def _error_of(bucket: Bucket, name: str, connection: S3Connection | None = None) -> _errors.OutputsError:
    with pytest.raises(_errors.OutputsError) as caught:
        obstore_call(connection or _connection(), "store", bucket.name, "key", _REQUESTS[name])
    return caught.value


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(
    ("status", "code", "kind", "remedy"),
    [
        (400, "InvalidArgument", _errors.ServiceError, "S3 service"),
        (400, "AuthorizationHeaderMalformed", _errors.WrongRegionError, "AWS_DEFAULT_REGION"),
        (400, "ExpiredToken", _errors.CredentialsError, "ran out"),
        (400, "BadDigest", _errors.IntegrityError, "proxy"),
        (401, "Unauthorized", _errors.NotPermittedError, "s3:PutObject"),
        (403, "AccessDenied", _errors.NotPermittedError, "s3:PutObject"),
        (403, "InvalidAccessKeyId", _errors.CredentialsError, "AWS_SESSION_TOKEN"),
        (403, "SignatureDoesNotMatch", _errors.CredentialsError, "AWS_SECRET_ACCESS_KEY"),
        (403, "ExpiredToken", _errors.CredentialsError, "ran out"),
        (403, "RequestTimeTooSkewed", _errors.CredentialsError, "clock"),
        (404, "NoSuchBucket", _errors.BucketNotFoundError, "bucket"),
        (404, "NoSuchKey", _errors.NotFoundError, ""),
        (412, "PreconditionFailed", _errors.ConflictError, ""),
    ],
)
def test_a_permanent_answer_is_known_by_its_code_asked_once_and_comes_with_a_remedy(
    bucket: Bucket, name: str, *, status: int, code: str, kind: type[_errors.OutputsError], remedy: str
) -> None:
    bucket.proxy.rule = lambda _: s3_error(status, code)
    error = _error_of(bucket, name)
    assert type(error) is kind
    assert not error.transient
    assert code in error.why
    assert str(status) in error.why
    assert remedy in error.remedy
    assert len(bucket.proxy.requests) == 1


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (408, "RequestTimeout"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (502, ""),
        (503, "SlowDown"),
        (503, "ServiceUnavailable"),
        (504, ""),
    ],
)
def test_an_answer_that_can_pass_is_transient(bucket: Bucket, name: str, status: int, code: str) -> None:
    bucket.proxy.rule = lambda _: s3_error(status, code) if code else Answer(status)
    error = _error_of(bucket, name)
    assert type(error) is _errors.ServiceUnavailableError
    assert str(status) in error.why
    assert "later" in error.remedy


@pytest.mark.parametrize("name", _NAMES)
def test_a_request_time_out_that_s3_calls_a_bad_request_is_transient(bucket: Bucket, name: str) -> None:
    bucket.proxy.rule = lambda _: s3_error(400, "RequestTimeout")
    assert _error_of(bucket, name).transient


@pytest.mark.parametrize("name", _NAMES)
def test_a_redirect_is_a_wrong_region(bucket: Bucket, name: str) -> None:
    bucket.proxy.rule = lambda _: s3_error(301, "PermanentRedirect")
    error = _error_of(bucket, name)
    assert type(error) is _errors.WrongRegionError
    assert "us-east-1" in error.remedy


def test_the_region_that_the_service_names_is_in_the_remedy(bucket: Bucket) -> None:
    bucket.proxy.rule = lambda _: s3_error(400, "AuthorizationHeaderMalformed", region="eu-west-3")
    assert "AWS_DEFAULT_REGION to eu-west-3" in _error_of(bucket, "put").remedy


@pytest.mark.parametrize("name", _NAMES)
def test_a_refused_connection_names_the_endpoint(bucket: Bucket, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    error = _error_of(bucket, name, _connection(url))
    assert type(error) is _errors.ServiceUnavailableError
    assert "refused" in error.why
    assert url in error.remedy


@pytest.mark.parametrize("name", _NAMES)
def test_a_host_without_an_address_is_told_as_such(bucket: Bucket, name: str) -> None:
    error = _error_of(bucket, name, _connection("http://no-such-host.invalid"))
    assert type(error) is _errors.ServiceUnavailableError
    assert "could not be resolved" in error.why


@pytest.mark.parametrize("name", _NAMES)
def test_silence_ends_with_a_time_out(bucket: Bucket, name: str) -> None:
    bucket.proxy.rule = lambda _: Stall()
    error = _error_of(bucket, name, _connection(request_timeout_seconds=0.5))
    assert type(error) is _errors.ServiceUnavailableError
    assert "in time" in error.why


@pytest.mark.parametrize("name", _NAMES)
def test_a_reset_is_a_broken_connection(bucket: Bucket, name: str) -> None:
    bucket.proxy.rule = lambda _: Reset()
    error = _error_of(bucket, name)
    assert type(error) is _errors.ServiceUnavailableError
    assert "broke" in error.why


@pytest.mark.parametrize("name", ["get", "list"])
def test_an_answer_cut_short_is_a_broken_connection(bucket: Bucket, name: str) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="key", Body=b"x" * 1000)
    bucket.proxy.rule = lambda _: CutShort(100)
    error = _error_of(bucket, name)
    assert type(error) is _errors.ServiceUnavailableError
    assert "broke" in error.why


@pytest.mark.parametrize("name", ["list", "multipart", "put"])
def test_an_answer_that_is_not_s3s_names_the_setting_of_the_endpoint(bucket: Bucket, name: str) -> None:
    bucket.proxy.rule = lambda _: Answer(200, b"")
    error = _error_of(bucket, name)
    assert type(error) is _errors.ServiceError
    assert "AWS_ENDPOINT_URL_S3" in error.remedy


def test_an_error_names_whose_credentials_were_used_without_telling_them(bucket: Bucket) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    error = _error_of(bucket, "put")
    assert "credentials from env (key ...1234)" in error.why
    assert ACCESS_KEY_ID not in str(error)
    assert "made-up" not in str(error)


def test_what_the_service_writes_cannot_act_on_a_terminal(bucket: Bucket) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied", message="::error::\x1b[31m\nboo" + "x" * 400)
    why = _error_of(bucket, "put").why
    assert "\x1b" not in why
    assert "\n" not in why
    assert len(why) < 400


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (301, "PermanentRedirect", _errors.WrongRegionError),
        (403, "AccessDenied", _errors.NotPermittedError),
        (403, "ExpiredToken", _errors.CredentialsError),
        (404, "NoSuchBucket", _errors.BucketNotFoundError),
        (404, "NoSuchKey", _errors.NotFoundError),
        (412, "PreconditionFailed", _errors.ConflictError),
        (503, "SlowDown", _errors.ServiceUnavailableError),
    ],
)
def test_boto3_and_obstore_tell_the_same_answer_in_the_same_way(
    bucket: Bucket, status: int, code: str, kind: type[_errors.OutputsError]
) -> None:
    # After a redirect botocore asks by HEAD where the bucket is.
    bucket.proxy.rule = lambda request: s3_error(status, code) if request.method == "GET" else Answer(403)
    connection = S3Connection(request_timeout_seconds=5, retry_seconds=0.5)
    with pytest.raises(_errors.OutputsError) as caught:
        boto3_call(
            connection, "store", bucket.name, "key", lambda client: client.get_object(Bucket=bucket.name, Key="key")
        )
    assert type(caught.value) is kind
    assert type(_error_of(bucket, "get")) is kind


@pytest.mark.parametrize(("why", "fault"), [("in time", Stall()), ("broke", Reset())])
def test_boto3_requests_without_an_answer_are_transient(bucket: Bucket, why: str, fault: Stall | Reset) -> None:
    bucket.proxy.rule = lambda _: fault
    connection = _connection(request_timeout_seconds=0.5)
    with pytest.raises(_errors.ServiceUnavailableError) as caught:
        boto3_call(connection, "list", bucket.name, "key", lambda client: client.list_buckets())
    assert why in caught.value.why
