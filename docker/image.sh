#!/usr/bin/env bash
# Builds the image of the command mysql-replica: image.sh [TAG], by default mysql-replica:VERSION.
# The base is the one that images/build.sh has made for the tests, where it is there; else Debian's own from the registry.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
tag=${1:-mysql-replica:$version}
base=mysql-replica-base:trixie
docker image inspect "$base" >/dev/null 2>&1 || base=debian:trixie-slim

# Only what the image needs is sent to the daemon.
tar -c --exclude=__pycache__ docker/Dockerfile LICENSE protocol replica |
    docker build --force-rm --network=host --file=docker/Dockerfile --build-arg "BASE=$base" \
        --build-arg "VERSION=$version" --tag="$tag" -
echo "$tag"
