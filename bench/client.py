"""Commands over a plain socket, server processes and mongo-java-server: shared code of these programs. Needs only the
standard library."""

import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OP_MSG = 2013


def cstring(name):
    return str(name).encode() + b"\0"


def element(name, value):
    if isinstance(value, float):
        return b"\x01" + cstring(name) + struct.pack("<d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\x02" + cstring(name) + struct.pack("<i", len(data) + 1) + data + b"\0"
    if isinstance(value, dict):
        return b"\x03" + cstring(name) + bson(value)
    if isinstance(value, list):
        return b"\x04" + cstring(name) + bson(dict(enumerate(value)))
    if isinstance(value, bool):
        return b"\x08" + cstring(name) + bytes([value])
    if isinstance(value, bytes):
        return b"\x05" + cstring(name) + struct.pack("<iB", len(value), 4) + value
    return b"\x12" + cstring(name) + struct.pack("<q", value)


def bson(document):
    body = b"".join(element(name, value) for name, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def parse(data, at=0):
    """Returns the fields of a document that these programs need, by name."""
    end, at, fields = at + struct.unpack_from("<i", data, at)[0] - 1, at + 4, {}
    while at < end:
        kind, stop = data[at], data.index(b"\0", at + 1)
        name, at = data[at + 1 : stop].decode(), stop + 1
        if kind in (3, 4):
            size = struct.unpack_from("<i", data, at)[0]
            fields[name] = parse(data, at)
        elif kind == 2:
            size = 4 + struct.unpack_from("<i", data, at)[0]
            fields[name] = data[at + 4 : at + size - 1].decode()
        elif kind == 1:
            size, fields[name] = 8, struct.unpack_from("<d", data, at)[0]
        elif kind == 16:
            size, fields[name] = 4, struct.unpack_from("<i", data, at)[0]
        elif kind in (9, 17, 18):
            size, fields[name] = 8, struct.unpack_from("<q", data, at)[0]
        elif kind == 5:
            size = 5 + struct.unpack_from("<i", data, at)[0]
        else:
            size = {7: 12, 8: 1, 10: 0}[kind]
        at += size
    return fields


class Client:
    """A connection with MongoDB's protocol. Raises OSError after an error reply and if the connection ends."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def message(self, body, sequence=None):
        """Returns a command as bytes."""
        sections = b"\0" + (body if isinstance(body, bytes) else bson(body))
        if sequence:
            name, documents = sequence
            size = 4 + len(name) + 1 + sum(map(len, documents))
            sections += b"\1" + struct.pack("<i", size) + cstring(name) + b"".join(documents)
        return struct.pack("<iiiii", len(sections) + 20, 1, 0, OP_MSG, 0) + sections

    def request(self, message):
        """Returns the reply to a message."""
        self.socket.sendall(message)
        return receive(self.socket, struct.unpack("<i", receive(self.socket, 4))[0] - 4)

    def command(self, body, sequence=None):
        reply = parse(self.request(self.message(body, sequence)), 17)
        if reply.get("ok") != 1 or "writeErrors" in reply:
            raise OSError(f"the server returned {reply}")
        return reply


def receive(connection, count):
    """Receives exactly this many bytes."""
    data = connection.recv(count, socket.MSG_WAITALL)
    if len(data) < count:
        raise OSError("the server closed the connection")
    return data


class Process:
    """A server that prints its connection string first, and ends with its standard input."""

    def __init__(self, *command, log=subprocess.DEVNULL):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        self.pid = str(self.child.pid)
        found = re.search(r"mongodb://([^/\s]+)", self.child.stdout.readline())
        if not found:
            sys.exit(f"{command}: exited before it printed its address")
        self.address = found.group(1)

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.pid}/{name}").read_text()

    def resident(self, field="VmRSS"):
        return int(re.search(rf"{field}:\s+(\d+)", self.proc("status"))[1]) * 1024

    def cpu(self):
        """Returns seconds by the CPU clock of the process. Linux derives its identifier from the process id."""
        return time.clock_gettime((~self.child.pid << 3) | 2)

    def stop(self):
        self.child.stdin.close()
        try:
            self.child.wait(60)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def java():
    """Returns the command of mongo-java-server, or None if it cannot run here. Builds it if necessary."""
    build = pathlib.Path(os.environ.get("PEERS_BUILD", HERE.parent / "target" / "peers")).resolve()
    classes, path = build / "mongo-java-server" / "classes", build / "mongo-java-server.classpath"
    if not path.exists():
        if not (shutil.which("mvn") and shutil.which("java")):
            return None
        build.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mvn", "-q", "-B", "-f", HERE / "peers/mongo-java-server/pom.xml", f"-Dpeers.build={classes.parent}",
                        f"-Dmdep.outputFile={path}", "package", "dependency:build-classpath"], check=True, stdout=sys.stderr)
    return ["java", "-cp", f"{classes}:{path.read_text().strip()}", "Peer"]
