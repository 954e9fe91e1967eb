"""A Spark cluster on this machine: a standalone master and two workers, each in a mount namespace of its own.

A worker sees Java, Python, Spark and the installed package, an empty /tmp, and the one folder that is ``shared``:
no other folder of the driver. So a path of the driver that a task would need is found out here.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import protocol
import replica
from tests.spark.support.spark_python import spark_python
from tests.support.process_groups import kill_group

SECONDS = 120
WORKERS = 2
#: The environment variable that has the number of the worker in whose executor a task runs.
WORKER_VARIABLE = "CLUSTER_WORKER"
#: The master answers and the workers have registered when its log has these lines.
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_REGISTERED = "Successfully registered with master"
#: A short run spends half of its time on compiling code that would only be fast later.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt")


def cluster_missing() -> str:
    """The reason why no cluster can run here; empty if it can."""
    if shutil.which("unshare") is None:
        return "no unshare: apt-get install util-linux"
    done = subprocess.run([*_unshare(), "true"], capture_output=True, text=True)
    return f"unshare: {done.stderr.strip()}" if done.returncode else ""


def _unshare() -> list[str]:
    options = ["--mount", "--pid", "--fork", "--kill-child=SIGKILL"]
    return ["unshare", *options] if os.geteuid() == 0 else ["unshare", "--map-root-user", *options]


def worker_folders() -> list[Path]:
    """The folders that a worker needs: Java, Python, and the packages that are installed."""
    import pyspark

    found = [Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable).resolve().parents[1]]
    found += [Path(module.__path__[0]) for module in (protocol, replica)]
    found += [Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    found += [Path(pyspark.__path__[0]).parent]
    if "JAVA_HOME" in os.environ:
        found.append(Path(os.environ["JAVA_HOME"]))
    outside = [path for path in dict.fromkeys(found) if not str(path).startswith("/usr/")]
    # Not those that are within another one.
    return sorted(
        path for path in outside if not any(path != other and path.is_relative_to(other) for other in outside)
    )


class Cluster:
    """``url`` is the master's; ``shared`` the one folder that driver and workers have in common.

    ``python`` is there: the ``PYSPARK_PYTHON`` of drivers.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir(parents=True)
        self.python = spark_python(self.shared)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._start("master", _java(_MASTER, arguments))
        self._await("master", "I have been elected leader")
        for number in range(WORKERS):
            self.start_worker(number, is_awaited=False)
        for number in range(WORKERS):
            self._await(f"worker{number}", _REGISTERED)

    def start_worker(self, number: int, *, is_awaited: bool = True) -> None:
        """Start a worker, which was not started before or was killed."""
        arguments = [
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--host",
            "127.0.0.1",
            "--work-dir",
        ]
        log = self.folder / f"worker{number}.log"
        log.unlink(missing_ok=True)
        command = self._sandboxed(_java(_WORKER, [*arguments, "/tmp/work", self.url]))
        self._start(f"worker{number}", command, **{WORKER_VARIABLE: str(number)})
        if is_awaited:
            self._await(f"worker{number}", _REGISTERED)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors with SIGKILL."""
        self._kill(f"worker{number}")

    def close(self) -> None:
        """Kill all processes."""
        for name in list(self._processes):
            self._kill(name)

    def settings(self, local: Path) -> dict[str, str]:
        """The settings of a driver; ``local`` is a folder for its own files."""
        return {
            "spark.master": self.url,
            "spark.driver.memory": "700m",
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(local),
            # Both workers have the same address, and do not see each other's disk all the same.
            "spark.shuffle.readHostLocalDisk": "false",
        }

    def _start(self, name: str, command: list[str], **variables: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment() | variables,
                cwd="/",
            )

    def _await(self, name: str, text: str) -> None:
        until = time.monotonic() + SECONDS
        log = self.folder / f"{name}.log"
        while text not in (written := log.read_text(errors="replace")):
            assert self._processes[name].poll() is None, written[-4000:]
            assert time.monotonic() < until, written[-4000:]
            time.sleep(0.05)

    def _kill(self, name: str) -> None:
        kill_group(self._processes.pop(name))

    def _sandboxed(self, command: list[str]) -> list[str]:
        """The command with a root folder that has what a worker needs, and nothing more."""
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        lines = [
            f"cd {shlex.quote(str(root))}",
            "mount -t tmpfs sandbox .",
            "cd .",
            f"cd {shlex.quote(str(root))}",
        ]
        for name in _SYSTEM:
            if os.path.islink(name):
                lines.append(f"ln -s {shlex.quote(os.readlink(name))} .{name}")
            elif os.path.isdir(name):
                lines += _bind(Path(name), "ro")
        for path in worker_folders():
            if not path.is_relative_to("/opt"):
                lines += _bind(path, "ro")
        lines += _bind(self.shared, "rw")
        lines += ["mkdir -p proc dev sys tmp", "mount -t proc proc proc", "mount --rbind /dev dev"]
        lines += ["mount --rbind /sys sys", f"exec chroot . {shlex.join(command)}"]
        return [*_unshare(), "sh", "-ec", "\n".join(lines)]


def _bind(path: Path, mode: str) -> list[str]:
    source, target = shlex.quote(str(path)), shlex.quote(f".{path}")
    lines = [f"mkdir -p {target}", f"mount --bind {source} {target}"]
    return lines + ([f"mount -o remount,bind,ro {target}"] if mode == "ro" else [])


def _java(main: str, arguments: list[str]) -> list[str]:
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else "java"
    classes = f"{pyspark.__path__[0]}/jars/*"
    options = ["-Xmx128m", *SHORT_LIVED.split(), "-Djava.net.preferIPv4Stack=true"]
    return [java, "-cp", classes, *options, main, *arguments]


def _environment() -> dict[str, str]:
    import pyspark

    kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return kept | {
        "SPARK_HOME": str(pyspark.__path__[0]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "LC_ALL": "C.UTF-8",
        "HOME": "/tmp",
    }


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the context lasts."""
    with contextlib.closing(Cluster(folder)) as cluster:
        yield cluster
