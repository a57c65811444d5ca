"""Two fronts over a PostgreSQL server, for drivers that connect to both directly or through a balancer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import pathlib
import random
import socket
import subprocess
import threading

import harness

# The first two lines of the script describe arguments and output.
SCRIPT = harness.PROJECT / "crates" / "postgres" / "tests" / "support" / "cluster.sh"
NUMBERS = itertools.count(1)


def programs() -> pathlib.Path | None:
    """Returns the folder of PostgreSQL's programs, if installed."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def adjacent_ports(count: int) -> int:
    """Returns the first of several adjacent free ports, below those that the system gives to outgoing connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as listeners:
            try:
                for more in range(count):
                    listeners.enter_context(socket.create_server(("127.0.0.1", port + more)))
                return port
            except OSError:
                continue


class Postgres:
    """A PostgreSQL server with a private cluster, which ends with this process in every case."""

    def __init__(self, *settings: str):
        bin = programs()
        if bin is None:
            raise harness.SetupError("PostgreSQL is not installed (apt-get install postgresql)")
        port = adjacent_ports(1)
        options = [word for setting in settings for word in ("-c", setting)]
        self.process = subprocess.Popen(["bash", str(SCRIPT), str(bin), str(port), "", *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline().strip() != "ready":
            self.stop()
            raise harness.SetupError("the PostgreSQL server did not start")
        self.connection = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"

    def __enter__(self) -> Postgres:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def sql(self, statement: str) -> str:
        """Runs a statement. Returns its rows as lines, with `|` between fields."""
        command = [str(programs() / "psql"), "-XAtq", "-d", self.connection, "-c", statement]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd="/").stdout.strip()

    def stop(self) -> None:
        """Stops the server and removes its directory."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Balancer:
    """Accepts connections, and forwards each to the next of several ports."""

    def __init__(self, ports: list[int]):
        self.next = itertools.cycle(ports)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.uri = f"mongodb://127.0.0.1:{self.port}/?loadBalanced=true"
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(asyncio.start_server(self._forward, sock=self.listener))
        self.loop.run_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", next(self.next))
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._copy(reader, server_writer), self._copy(server_reader, writer))

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    def stop(self) -> None:
        """Stops accepting, and closes all connections."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(harness.STOP_SECONDS)
        self.listener.close()


class Fronts:
    """Two fronts of one schema on adjacent ports, as PyMongo's tests expect; for a suite they count as one
    server."""

    def __init__(self, binary: str, topology: str, log: pathlib.Path, postgres: Postgres):
        self.binary, self.topology, self.log = binary, topology, log
        self.certificates = None
        schema = f"drivers{os.getpid()}_{next(NUMBERS)}"
        options = ("--postgres", postgres.connection, "--postgres-schema", schema)
        port = adjacent_ports(2)
        self.servers: list[harness.Server] = []
        self.balancers: list[Balancer] = []
        try:
            for nth in range(2):
                log_of_one = log.with_name(f"{log.stem}-{nth}{log.suffix}")
                self.servers.append(harness.Server(binary, topology, log_of_one, options, port=port + nth))
        except harness.SetupError:
            self.stop()
            raise
        # URIs for suites that need one server, and for suites that need several.
        self.uri = self.several = self.servers[0].uri
        if topology == harness.BALANCED:
            self.balancers = [Balancer([port]), Balancer([port, port + 1])]
            self.uri, self.several = (balancer.uri for balancer in self.balancers)

    def problems(self) -> list[str]:
        """Returns the problems of both."""
        return [problem for server in self.servers for problem in server.problems()]

    def stop(self) -> str | None:
        """Stops all. Returns the first problem, if any."""
        for balancer in self.balancers:
            balancer.stop()
        problems = [server.stop() for server in self.servers]
        return next((problem for problem in problems if problem), None)
