"""A PostgreSQL primary with standbys in temporary directories, and proxies for all connections.

Every connection of a front to a member, and of a standby to its primary, uses a proxy of this process. A
proxy can stop forwarding without closing connections, or be slow.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

NAMES = ("n1", "n2", "n3")
START_SECONDS = 30
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # Processes are killed, not machines: the kernel keeps its buffers.
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_senders": "10",
    "wal_keep_size": "512MB",
    "hot_standby": "on",
    "synchronous_standby_names": f"ANY 1 ({', '.join(NAMES)})",
    "wal_receiver_status_interval": "1s",
    "wal_receiver_timeout": "4s",
    "wal_sender_timeout": "4s",
    "wal_retrieve_retry_interval": "200ms",
    "log_min_messages": "error",
}


def programs() -> pathlib.Path | None:
    """Returns the folder of PostgreSQL's programs, if installed."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def free_port() -> int:
    """Returns a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def as_postgres(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *command]


class Proxy:
    """A TCP proxy for a port. It can stop forwarding, be slow, and forward to another port."""

    def __init__(self, target: int):
        self.target = target
        self.delay = 0.0
        self.forwarding = threading.Event()
        self.forwarding.set()
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self.forwarding.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs.append((client, server))
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                self.forwarding.wait()
                sink.sendall(data)
        # A stopped proxy forwards the end of a connection only after it resumes.
        self.forwarding.wait()
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def stop(self) -> None:
        """Stops forwarding."""
        self.forwarding.clear()

    def resume(self) -> None:
        """Resumes forwarding."""
        self.forwarding.set()

    def redirect(self, target: int) -> None:
        """Forwards to another port from now on."""
        self.target = target
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


class Member:
    """One PostgreSQL server, primary or standby."""

    def __init__(self, name: str, home: pathlib.Path, bin: pathlib.Path):
        self.name, self.directory, self.log, self.bin = name, home / name, home / f"{name}.log", bin
        self.port = free_port()
        # Fronts connect through `client_proxy`. This member, as a standby, reaches its primary through `replication_proxy`.
        self.client_proxy, self.replication_proxy = Proxy(self.port), Proxy(self.port)
        self.process: subprocess.Popen | None = None
        # Settings of this member alone.
        self.settings: dict[str, str] = {}

    def start(self) -> None:
        """Starts the server in the role of its directory, and waits until it answers."""
        settings = {**SETTINGS, "port": str(self.port), "cluster_name": self.name,
                    "primary_conninfo": f"host=127.0.0.1 port={self.replication_proxy.port} user=postgres "
                                        f"application_name={self.name} connect_timeout=3",
                    **self.settings}
        command = [str(self.bin / "postgres"), "-D", str(self.directory)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            log_start = self.log.stat().st_size if self.log.exists() else 0
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(as_postgres(command), stdout=log, stderr=log, cwd="/",
                                                start_new_session=True)
            while time.monotonic() < end and self.process.poll() is None:
                if self.query("select 1") == "1":
                    return
                time.sleep(0.05)
            # The kernel may still hold the shared memory of a killed server.
            if "is still in use" not in self.log.read_bytes()[log_start:].decode("utf-8", "replace"):
                break
            time.sleep(0.2)
        raise RuntimeError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")

    def query(self, sql: str) -> str | None:
        """Runs a query without a proxy."""
        command = [str(self.bin / "psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres",
                   "-c", sql, "postgres"]
        environment = {**os.environ, "PGCONNECT_TIMEOUT": "3"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=20, cwd="/")
        return done.stdout.strip() if done.returncode == 0 else None

    def kill(self) -> None:
        """Kills all its processes."""
        if self.process is None:
            return
        parent = self.process.pid
        children = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                    children.append(int(stat.parent.name))
        self.process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.process.wait()
        self.process = None
        (self.directory / "postmaster.pid").unlink(missing_ok=True)

    def shut_down(self) -> None:
        """Stops the server with a fast shutdown."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait()
            self.process = None

    def received_position(self) -> int:
        """Returns the last received position of the write-ahead log, or -1."""
        reply = self.query("select greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn")
        return int(reply) if reply else -1


class Cluster:
    """The members, one of which is the primary."""

    def __init__(self, bin: pathlib.Path):
        self.bin = bin
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="vellum-failover-"))
        if os.getuid() == 0:
            shutil.chown(self.home, "postgres", "postgres")
        self.members = [Member(name, self.home, bin) for name in NAMES]
        self.primary = self.members[0]

    def start(self) -> None:
        """Creates and starts all."""
        self._run("initdb", "-D", str(self.primary.directory), "-U", "postgres", "-A", "trust", "-E", "UTF8",
                  "--no-locale", "--no-sync")
        self.primary.start()
        for standby in self.standbys():
            self.rebuild(standby)
        self.wait_for_standbys()

    def standbys(self) -> list[Member]:
        """Returns all members except the primary."""
        return [member for member in self.members if member is not self.primary]

    def rebuild(self, member: Member) -> None:
        """Recreates a member as a standby of the primary."""
        member.kill()
        shutil.rmtree(member.directory, ignore_errors=True)
        self._run("pg_basebackup", "-D", str(member.directory), "-h", "127.0.0.1", "-p", str(self.primary.port),
                  "-U", "postgres", "-c", "fast", "-X", "stream", "--no-sync")
        (member.directory / "standby.signal").touch()
        member.replication_proxy.delay = 0.0
        member.replication_proxy.resume()
        member.replication_proxy.redirect(self.primary.port)
        member.client_proxy.resume()
        member.start()

    def promote(self) -> float:
        """Promotes the standby with most of the log. Returns the duration."""
        begin = time.monotonic()
        chosen = max(self.standbys(), key=lambda member: member.received_position() if member.process else -1)
        self._run("pg_ctl", "promote", "-D", str(chosen.directory), "-w", "-t", "20")
        self.primary = chosen
        for standby in self.standbys():
            standby.replication_proxy.redirect(chosen.port)
        return time.monotonic() - begin

    def wait_for_standbys(self, except_for: int = 0) -> None:
        """Waits until all standbys stream, except for this number of them."""
        end = time.monotonic() + START_SECONDS
        sql = "select count(*) from pg_stat_replication where state = 'streaming'"
        while self.primary.query(sql) != str(len(self.standbys()) - except_for):
            if time.monotonic() > end:
                raise RuntimeError("the standbys do not follow the primary")
            time.sleep(0.1)

    def connection_string(self) -> str:
        """Returns the connection string for fronts."""
        ports = ",".join(str(member.client_proxy.port) for member in self.members)
        hosts = ",".join("127.0.0.1" for _ in self.members)
        return f"host={hosts} port={ports} user=postgres dbname=postgres connect_timeout=2"

    def close(self, keep: bool = False) -> None:
        """Stops everything and removes the directory."""
        for member in self.members:
            member.kill()
        if not keep:
            shutil.rmtree(self.home, ignore_errors=True)

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(as_postgres([str(self.bin / program), *words]), capture_output=True, text=True,
                              cwd="/", timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")
