FROM python:3.13-slim-trixie AS builder
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /project
COPY requirements.lock .ci/locks/build.lock ./
# The final environment gets no pip and no build backend. Of botocore's 400 service descriptions only those stay that S3 and
# the credential providers use.
RUN python -m venv --without-pip /opt/therock-outputs \
 && python -m pip --python /opt/therock-outputs/bin/python install --require-hashes --only-binary=:all: -r requirements.lock \
 && find /opt/therock-outputs/lib/python3.*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -r {} + \
 && python -m venv /opt/build \
 && /opt/build/bin/python -m pip install --require-hashes --only-binary=:all: -r build.lock
COPY pyproject.toml LICENSE ./
COPY src src
# Copying between stages may round file times, so bytecode must not depend on them.
RUN /opt/build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m pip --python /opt/therock-outputs/bin/python install --no-deps --no-index /wheels/*.whl \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/therock-outputs/lib

FROM python:3.13-slim-trixie
LABEL org.opencontainers.image.title="therock-outputs" \
      org.opencontainers.image.description="Where the outputs of a ROCm CI run live in S3, and how they get there" \
      org.opencontainers.image.licenses="MIT AND GPL-2.0-or-later"
# createrepo_c links the system's GLib, which its wheel leaves out. Its version is that of the base image's distribution: one
# that is pinned is gone from the mirrors with the next security update.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libglib2.0-0t64 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*
# The base image ships the standard library without bytecode; without it every step would compile what it imports.
RUN python -m compileall -q --invalidation-mode unchecked-hash -x '/(site-packages|dist-packages|test|idlelib|turtledemo|ensurepip|tkinter)/' \
      "$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=builder /opt/therock-outputs /opt/therock-outputs
COPY entrypoint.py /entrypoint.py
# No USER: the runner's mounts are root's. No WORKDIR: the runner sets it. -I: neither the checkout nor the job's PYTHON*
# variables reach the imports; -X utf8: the job's locale does not reach file names and the log.
ENTRYPOINT ["/opt/therock-outputs/bin/python", "-I", "-u", "-X", "utf8", "/entrypoint.py"]
