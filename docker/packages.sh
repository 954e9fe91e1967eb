#!/usr/bin/env bash
# Makes sure that commands exist: packages.sh COMMAND=DEBIAN_PACKAGE ...
# Installs what is missing when it may (root on Debian or a relative of it); otherwise says what is needed and fails.
set -euo pipefail

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
(( ${#missing[@]} )) || exit 0

if (( EUID != 0 )) || ! command -v apt-get >/dev/null; then
    echo "needed and not found: ${missing[*]} (Debian package names). Only root on Debian can have them installed from here." >&2
    exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A package list that is out of date makes the installation fail, so it is always renewed first.
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "apt-get could not install ${missing[*]}" >&2
    exit 1
fi
