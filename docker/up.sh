#!/usr/bin/env bash
# Gets Docker running if it can: nothing to do when a daemon answers; root on Debian installs and starts one;
# anybody else is told what is needed, and the exit code is 1.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

log=/var/log/dockerd.log
pid_file=/var/run/docker.pid

answers() { docker info >/dev/null 2>&1; }

wait_for_answer() {  # PID of the daemon; succeeds when it answers, fails when it has ended or takes over a minute
    local _
    for _ in {1..300}; do
        answers && return 0
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.2
    done
    return 1
}

forget_dead_daemon() {  # a machine that was restarted may have given the recorded process id to something else
    local pid
    pid=$(cat "$pid_file" 2>/dev/null) || return 0
    [[ $(cat "/proc/$pid/comm" 2>/dev/null) == dockerd ]] || rm -f "$pid_file"
}

start_daemon() {  # ARGUMENTS for dockerd
    forget_dead_daemon
    setsid nohup dockerd "$@" >>"$log" 2>&1 </dev/null &
    wait_for_answer $!
}

answers && exit 0

if (( EUID != 0 )); then
    echo "Docker does not answer. Start it, or let this user reach it (DOCKER_HOST, group docker), or run as root on Debian." >&2
    exit 1
fi
"$here/packages.sh" dockerd=docker.io iptables=iptables
# From Debian 13 on the client is a package of its own.
"$here/packages.sh" docker=docker-cli
answers && exit 0

if [[ -d /run/systemd/system ]]; then
    systemctl start docker
    answers && exit 0
elif [[ $(cat "/proc/$(cat "$pid_file" 2>/dev/null)/comm" 2>/dev/null) == dockerd ]]; then
    wait_for_answer "$(cat "$pid_file")" && exit 0
else
    echo "starting dockerd, log in $log"
    start_daemon && exit 0
    # Inside another container there is often no overlay file system to be had.
    echo "dockerd did not start; once more with the slow vfs storage driver"
    start_daemon --storage-driver=vfs && exit 0
    tail -n 20 "$log" >&2
fi
echo "Docker could not be started." >&2
exit 1
