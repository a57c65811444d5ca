"""Starts servers on a free port. A server ends with the processes that use it. A failed start raises its error message.

The server gets ``--port 0``, so that no two runs compete for a port, and ``--parent-pipe``: it ends when its
standard input closes. The operating system closes pipes however a process ends, so a killed test run leaves
nothing behind.

Processes that share a server (pytest-xdist's workers) share that pipe. It is a named pipe; each process holds
its writing end open, and the last one to end closes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import urllib.parse
from typing import IO, Iterator, Optional, Sequence

from .program import StartError, find_binary

try:
    import fcntl
except ImportError:  # Windows: no named pipes of this kind either, so every process starts its own server.
    fcntl = None  # type: ignore[assignment]

START_SECONDS = 30
STOP_SECONDS = 10
#: Options that choose the place of the data. Without any of them it is memory, also if the environment names another.
_PLACES = ("--config", "--data", "--engine", "--postgres")


#: A name and a password.
User = tuple[str, str]


def _connection_string(uri: str, user: Optional[User], uri_options: str) -> str:
    """Return the server's connection string with a user, and with options of clients, such as the path of
    certificates."""
    scheme, rest = uri.split("://", 1)
    if user is not None:
        name, password = (urllib.parse.quote(part, safe="") for part in user)
        rest = f"{name}:{password}@{rest}"
    if uri_options:
        rest += ("&" if "?" in rest else "?") + uri_options
    return f"{scheme}://{rest}"


def _launch(
    binary: Optional[str], args: Sequence[str], stdin: int, log: pathlib.Path, user: Optional[User] = None
) -> tuple[subprocess.Popen[bytes], str]:
    """Starts a server and returns its connection string. Raises StartError with its error message."""
    command = [find_binary(binary), "serve", "--port", "0", "--parent-pipe", *args]
    if not any(str(arg).split("=")[0] in _PLACES for arg in args):
        command += ["--engine", "memory"]
    # Variables of MongoDB's images, perhaps for another server, would require a login.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MONGO_INITDB_ROOT_")}
    if user is not None:
        # The clock is for tests. With users it is off, unless the arguments ask for it.
        if not any(arg.startswith("--test-commands") for arg in args):
            command.append("--test-commands")
        name, password = user
        environment.update(MONGO_INITDB_ROOT_USERNAME=name, MONGO_INITDB_ROOT_PASSWORD=password)
    with log.open("wb") as errors:
        # A separate session: the terminal's Ctrl-C must not end the server, because the teardown of the test runner
        # needs it.
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=os.name != "nt",
            env=environment,
        )
    assert process.stdout is not None
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        line = process.stdout.readline().decode("utf-8", "replace").strip()
    finally:
        timer.cancel()
        process.stdout.close()
    if line.startswith("mongodb://"):
        return process, line
    # Another program may run on after its first line.
    process.kill()
    status = process.wait()
    output = log.read_text("utf-8", "replace").strip()
    raise StartError(output or f"{command[0]} exited with status {status} before it listened")


class Server:
    """A server of this process: started at once, ended by ``stop``, ``with``, or the end of the process.

    With a ``user``, the server has access control, and this first user may do everything; ``uri`` has the
    password. ``uri_options`` are added to ``uri``: ``tlsCAFile=…`` if ``args`` enable TLS.
    """

    def __init__(
        self,
        args: Sequence[str] = (),
        binary: Optional[str] = None,
        user: Optional[User] = None,
        uri_options: str = "",
    ):
        self.folder = tempfile.TemporaryDirectory(prefix="vellum-")
        log = pathlib.Path(self.folder.name, "vellum.log")
        try:
            self.process, uri = _launch(binary, args, subprocess.PIPE, log, user)
            self.uri = _connection_string(uri, user, uri_options)
        except BaseException:
            self.folder.cleanup()
            raise

    def stop(self) -> None:
        """Stops the server and waits for its end."""
        _close(self.process.stdin)
        if os.name != "nt":
            # A forked child of this process may hold the pipe open.
            self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class SharedServer:
    """A server shared by all processes with the same folder; it ends with the last of them.

    ``uri`` names a server that is already running: then the object has only the folder's locks and done files.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        args: Sequence[str] = (),
        binary: Optional[str] = None,
        uri: Optional[str] = None,
        user: Optional[User] = None,
        uri_options: str = "",
    ):
        self._folder = folder
        self._user = user
        self._pipe: Optional[int] = None
        self._users_file: Optional[IO[str]] = None
        self._own: Optional[Server] = None
        if uri is not None:
            self.uri = uri
        elif fcntl is None:
            self._own = Server(args, binary, user, uri_options)
            self._folder = pathlib.Path(self._own.folder.name)
            self.uri = self._own.uri
        else:
            with self.lock("server"):
                shared_uri = self._join()
                server_uri = shared_uri if shared_uri is not None else self._start(args, binary)
                self.uri = _connection_string(server_uri, user, uri_options)
                self._users_file = open(self._folder / "vellum-users.lock", "w")
                fcntl.flock(self._users_file, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """A lock held by one process at a time; released also when that process dies."""
        with open(self._folder / f"vellum-{name}.lock", "w") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def done_file(self, name: str) -> pathlib.Path:
        """A file that exists if this step has been done on this server."""
        return self._folder / f"vellum-{name}.done"

    def close(self) -> None:
        """Release the server."""
        if self._own is not None:
            self._own.stop()
        if self._pipe is None or self._users_file is None:
            return
        with self.lock("server"):
            self._users_file.close()
            if self._is_unused():
                # No process may join a server that is about to end.
                (self._folder / "vellum.json").unlink(missing_ok=True)
            os.close(self._pipe)
            self._pipe = None

    def _is_unused(self) -> bool:
        with open(self._folder / "vellum-users.lock", "w") as users:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def _join(self) -> Optional[str]:
        """Open the pipe of a running server."""
        try:
            uri = json.loads((self._folder / "vellum.json").read_text())["uri"]
            # Fails without a reader: the server has ended.
            self._pipe = os.open(self._folder / "vellum.pipe", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None
        return str(uri)

    def _start(self, args: Sequence[str], binary: Optional[str]) -> str:
        # Work done on an earlier server is lost with it, and its pipe is closed.
        for stale in [self._folder / "vellum.pipe", *self._folder.glob("vellum-*.done")]:
            stale.unlink(missing_ok=True)
        pipe = self._folder / "vellum.pipe"
        os.mkfifo(pipe)
        read_end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            self._pipe = os.open(pipe, os.O_WRONLY)
            # The server waits for the end of its input; only the opening of the pipe must not block.
            os.set_blocking(read_end, True)
            process, uri = _launch(binary, args, read_end, self._folder / "vellum.log", self._user)
        except StartError:
            if self._pipe is not None:
                os.close(self._pipe)
            raise
        finally:
            os.close(read_end)
        # The server may outlive this process, which therefore does not wait for it.
        process.returncode = 0
        (self._folder / "vellum.json").write_text(json.dumps({"uri": uri, "pid": process.pid}))
        return uri


def _close(pipe: Optional[IO[bytes]]) -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
