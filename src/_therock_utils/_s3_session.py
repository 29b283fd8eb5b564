"""Where S3 requests go and who makes them: credentials, region, endpoint and certificates, resolved by botocore.

obstore moves the bytes; its stores are built here from what botocore's session says, so that both agree. Building a
boto3 client costs 0.6 s, so one is built only when something needs it.
"""

from __future__ import annotations

import datetime
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CredentialsError
from _therock_utils._keys import quote
from _therock_utils._s3_errors import RequestContext, building, no_credentials
from _therock_utils._s3_settings import (
    check_frozen,
    checked_credentials,
    checked_endpoint,
    checked_region,
    read_certificates,
)
from _therock_utils.s3_buckets import REGION, is_inventory_bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from boto3.session import Session
    from botocore.credentials import Credentials
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session as CoreSession
    from mypy_boto3_s3.client import S3Client
    from obstore.store import ClientConfig, S3Credential, S3Store

_logger = logging.getLogger(__name__)
_CALLER_TIMEOUT_SECONDS: Final = 3
_DEFAULT_REGION: Final = "us-east-1"  # what S3 calls itself where nobody says (and botocore's own fallback)
_CREDENTIAL_TTL: Final = datetime.timedelta(seconds=30)
_CONNECT_TIMEOUT_SECONDS: Final = 10
_POOL_IDLE_SECONDS: Final = 15  # S3 closes idle connections after about 20 s
_OBSTORE_RETRIES: Final = 3
_CLIENT_CONNECTIONS: Final = 64  # as many as copies between buckets in flight
_SHORTEST_KEY_ID: Final = 16  # IAM API Reference, AccessKey


class S3Connection:
    """Stores and clients for buckets, one each, made when first asked for. Safe to share between threads."""

    def __init__(
        self,
        *,
        session: CoreSession | None = None,
        credentials_for: Callable[[str], Credentials | None] | None = None,
        endpoint_url: str = "",
        region: str = "",
        request_timeout_seconds: float,
        retry_seconds: float,
    ) -> None:
        """Keep the choices; nothing is read or imported yet.

        `session` replaces botocore's default session. `credentials_for(bucket)` may give credentials for one bucket
        (refreshing ones renew themselves); where it gives None, the session's chain decides. `endpoint_url` and
        `region` override what the session says.
        """
        self._session = session
        self._credentials_for = credentials_for
        self._given_endpoint = endpoint_url
        self._given_region = region
        self._request_timeout_seconds = request_timeout_seconds
        self._retry_seconds = retry_seconds
        self._lock = threading.RLock()
        self._client_lock = threading.RLock()  # of its own: nobody who needs a store waits while a client is built
        self._caller_lock = threading.Lock()
        self._callers: dict[str, str] = {}
        self._endpoint: str | None = None
        self._credentials: dict[str, Credentials | None] = {}
        self._given: set[str] = set()  # buckets whose credentials came from `credentials_for`
        self._key_ids: dict[str, str] = {}
        self._stores: dict[tuple[str, bool], S3Store] = {}
        self._clients: dict[tuple[str, bool], S3Client] = {}
        self._boto3_sessions: dict[str, Session] = {}
        self._signed_reads: dict[str, bool] = {}

    @property
    def session(self) -> CoreSession:
        """The botocore session. Raises CredentialsError where the AWS configuration cannot be read."""
        import botocore.session
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if self._session is None:
                self._session = botocore.session.Session()
            try:
                _ = self._session.full_config, self._session.get_scoped_config()
            except BotoCoreError as error:
                raise _broken_configuration(error) from error
            return self._session

    def _setting(self, name: str) -> str:
        """A configuration variable of botocore: environment, then profile."""
        return str(self.session.get_config_variable(name) or "")

    @property
    def endpoint(self) -> str:
        """The endpoint that replaces AWS, or "" . Raises InputError where it is no http or https URL."""
        with self._lock:
            if self._endpoint is None:
                self._endpoint = checked_endpoint(self._given_endpoint or self._configured_endpoint("s3"))
            return self._endpoint

    def _configured_endpoint(self, service: str) -> str:
        """AWS_ENDPOINT_URL_{SERVICE}, AWS_ENDPOINT_URL, then the profile's.

        AWS SDKs and Tools Reference Guide, "Service-specific endpoints".
        """
        from botocore.configprovider import ConfiguredEndpointProvider
        from botocore.utils import ensure_boolean

        if ensure_boolean(self._setting("ignore_configured_endpoint_urls") or False):
            return ""
        provider = ConfiguredEndpointProvider(self.session.full_config, self.session.get_scoped_config(), service)
        return str(provider.provide() or "")

    def region(self, bucket: str) -> str:
        """The bucket's region: the inventory's at AWS, else the session's. Raises InputError for what is none."""
        if self._given_region:
            return checked_region(self._given_region)
        if is_inventory_bucket(bucket) and not self.endpoint:
            return REGION
        return checked_region(self._setting("region")) or _DEFAULT_REGION

    def credentials(self, bucket: str) -> Credentials | None:
        """Who asks for `bucket`; None where no credentials are found. Raises CredentialsError where they are broken."""
        from botocore.exceptions import BotoCoreError

        with self._lock:
            if bucket not in self._credentials:
                try:
                    given = self._credentials_for(bucket) if self._credentials_for else None
                    found = given or self.session.get_credentials()
                    checked = checked_credentials(found) if found else None
                    if given is not None or checked is not found:
                        self._given.add(bucket)
                    self._credentials[bucket] = checked
                except BotoCoreError as error:
                    raise no_credentials(self.context("use", bucket), why=quote(str(error))) from error
            return self._credentials[bucket]

    def identity(self, bucket: str) -> str:
        """Whose credentials are used for `bucket`, for a message: how they were found and the end of the key's id."""
        credentials = self._credentials.get(bucket)
        if credentials is None:
            return ""
        key_id = self._key_ids.get(bucket, "")
        return f"the credentials from {credentials.method}" + (f" (key ...{key_id})" if key_id else "")

    def context(self, action: str, bucket: str, key: str = "", *, signed: bool = True) -> RequestContext:
        """What a request is about, for its error."""
        return RequestContext(
            action=action,
            target=f"s3://{bucket}/{key}",
            bucket=bucket,
            region=self.region(bucket),
            endpoint=self.endpoint,
            identity=self.identity(bucket) if signed else "",
            ask_caller=partial(self.caller, bucket),
        )

    def caller(self, bucket: str) -> str:
        """The ARN behind the credentials for `bucket`, asked once of STS; "" where STS cannot be asked.

        STS answers everybody who has credentials, whatever their permissions (STS API Reference, "GetCallerIdentity").
        """
        with self._caller_lock:
            if bucket not in self._callers:
                self._callers[bucket] = self._ask_sts(bucket)
            return self._callers[bucket]

    def _ask_sts(self, bucket: str) -> str:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        # The credentials of another service are none of AWS's business, and that service need not know STS.
        if self.endpoint and not os.environ.get("AWS_ENDPOINT_URL_STS"):
            return ""
        seconds = _CALLER_TIMEOUT_SECONDS
        config = Config(connect_timeout=seconds, read_timeout=seconds, retries={"total_max_attempts": 1})
        try:
            with self._client_lock:
                client = self._boto3_session(bucket).client("sts", region_name=self.region(bucket), config=config)
            return str(client.get_caller_identity()["Arn"])
        except (BotoCoreError, ClientError, ResponseParserError, KeyError, TypeError, ValueError) as error:
            _logger.info("STS does not say whose the credentials are: %s", quote(str(error)))
            return ""

    def anonymous_reads_allowed(self, bucket: str) -> bool:
        """Whether anybody may read `bucket`, as is so for the inventory."""
        return is_inventory_bucket(bucket)

    def reads_signed(self, bucket: str) -> bool:
        """Whether to sign reads: public inventory buckets are asked anonymously until they say no."""
        with self._lock:
            if bucket not in self._signed_reads:
                public = self.anonymous_reads_allowed(bucket)
                self._signed_reads[bucket] = not public and self.credentials(bucket) is not None
            return self._signed_reads[bucket]

    def sign_reads(self, bucket: str) -> bool:
        """Sign reads from now on, after an anonymous one was denied; whether there are credentials to do so."""
        with self._lock:
            self._signed_reads[bucket] = self.credentials(bucket) is not None
            return self._signed_reads[bucket]

    def store(self, bucket: str, *, signed: bool = True) -> S3Store:
        """The obstore store of `bucket`. Raises CredentialsError where it is to sign and there are no credentials."""
        with self._lock:
            if (bucket, signed) not in self._stores:
                with building(self.context("use", bucket, signed=signed)):
                    self._stores[bucket, signed] = self._build_store(bucket, signed=signed)
            return self._stores[bucket, signed]

    def _build_store(self, bucket: str, *, signed: bool) -> S3Store:
        from obstore.store import S3Store

        virtual = not self.endpoint and "." not in bucket  # a dotted bucket name does not fit S3's certificate
        host = f"{bucket}.s3" if virtual else "s3"
        url = self.endpoint or f"https://{host}.{self.region(bucket)}.{_dns_suffix(self.region(bucket))}"
        # Every setting is given: obstore would take one that is left out from its own environment variables, and
        # AWS_ENDPOINT_URL_S3 even before `endpoint`.
        return S3Store(
            bucket,
            endpoint=url,
            aws_endpoint_url_s3=url,
            region=self.region(bucket),
            virtual_hosted_style_request=virtual,
            checksum_algorithm="sha256",
            skip_signature=not signed,
            unsigned_payload=False,
            request_payer=False,
            s3_express=False,
            conditional_put="etag",
            client_options=self._client_options(url),
            retry_config={
                "max_retries": _OBSTORE_RETRIES,
                "backoff": {
                    "init_backoff": datetime.timedelta(milliseconds=100),
                    "max_backoff": datetime.timedelta(seconds=2),
                    "base": 2,
                },
                "retry_timeout": datetime.timedelta(seconds=self._retry_seconds),
            },
            credential_provider=self._provider(bucket) if signed else None,
        )

    def _client_options(self, url: str) -> ClientConfig:
        options: ClientConfig = {
            "allow_http": url.startswith("http://"),
            "allow_invalid_certificates": False,
            "connect_timeout": datetime.timedelta(seconds=min(_CONNECT_TIMEOUT_SECONDS, self._request_timeout_seconds)),
            "timeout": datetime.timedelta(seconds=self._request_timeout_seconds),
            "pool_idle_timeout": datetime.timedelta(seconds=_POOL_IDLE_SECONDS),
            "user_agent": "therock-outputs",
        }
        bundle = self._setting("ca_bundle")
        if bundle:
            options["root_certificate"] = read_certificates(bundle)
        return options

    def _provider(self, bucket: str) -> Callable[[], S3Credential]:
        """What obstore asks for credentials: short-lived answers, because botocore renews them when they run out."""
        credentials = self.credentials(bucket)
        if credentials is None:
            raise no_credentials(self.context("use", bucket))

        def provide() -> S3Credential:
            frozen = credentials.get_frozen_credentials()
            check_frozen(frozen, credentials.method)
            self._key_ids[bucket] = shown_key_id(str(frozen.access_key or ""))
            return {
                "access_key_id": str(frozen.access_key or ""),
                "secret_access_key": str(frozen.secret_key or ""),
                "token": frozen.token,
                "expires_at": datetime.datetime.now(datetime.UTC) + _CREDENTIAL_TTL,
            }

        return provide

    def client(self, bucket: str, *, signed: bool = True) -> S3Client:
        """The boto3 client of `bucket`, built once. Raises as `store` does."""
        with self._client_lock:
            if (bucket, signed) not in self._clients:
                with building(self.context("use", bucket, signed=signed)):
                    self._clients[bucket, signed] = self._build_client(bucket, signed=signed)
            return self._clients[bucket, signed]

    def _build_client(self, bucket: str, *, signed: bool) -> S3Client:
        from botocore import UNSIGNED
        from botocore.config import Config

        credentials = self.credentials(bucket) if signed else None
        if signed and credentials is None:
            raise no_credentials(self.context("use", bucket))
        config = Config(
            signature_version="s3v4" if signed else UNSIGNED,
            s3={"addressing_style": "path" if self.endpoint else "auto"},
            retries={"mode": "standard", "total_max_attempts": 4},
            connect_timeout=min(_CONNECT_TIMEOUT_SECONDS, self._request_timeout_seconds),
            read_timeout=self._request_timeout_seconds,
            max_pool_connections=_CLIENT_CONNECTIONS,
        )
        session = self._boto3_session(bucket)
        return session.client("s3", region_name=self.region(bucket), endpoint_url=self.endpoint or None, config=config)

    def _boto3_session(self, bucket: str) -> Session:
        """A boto3 session that uses the credentials for `bucket`; one a botocore session, which it changes for good."""
        from boto3.session import Session

        credentials = self.credentials(bucket)
        given = credentials if bucket in self._given else None
        whose = bucket if given else ""
        if whose not in self._boto3_sessions:
            self._boto3_sessions[whose] = Session(botocore_session=_session_with(given) if given else self.session)
        return self._boto3_sessions[whose]


def _session_with(credentials: Credentials) -> CoreSession:
    """A botocore session that uses `credentials`, and renews them as they renew themselves."""
    from botocore.credentials import CredentialProvider, CredentialResolver
    from botocore.session import Session as CoreSession

    class Given(CredentialProvider):
        METHOD = "given"
        CANONICAL_NAME = "given"

        def load(self) -> Credentials:
            return credentials

    session = CoreSession()
    session.register_component("credential_provider", CredentialResolver([Given()]))
    return session


def _broken_configuration(error: BotoCoreError) -> CredentialsError:
    remedy = "Check AWS_PROFILE and the AWS configuration file."
    return CredentialsError("the AWS configuration cannot be used", why=quote(str(error)), remedy=remedy)


def shown_key_id(key_id: str) -> str:
    """The end of an access key's id, which is no secret; "" for an id too short to be one of AWS."""
    return key_id[-4:] if len(key_id) >= _SHORTEST_KEY_ID else ""


def _dns_suffix(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
