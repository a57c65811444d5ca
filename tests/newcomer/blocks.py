"""Runs the blocks of Markdown pages as they are written.

- A block whose first line is a comment with a file name becomes that file.
- A `console` block is a shell session. A line that begins with `$` is a command. The lines below a command must appear in its
  output, in this order. `…` stands for any text. `$ cat FILE` writes FILE with the lines below it.
- A command that starts a server, or that ends with `&`, runs in the background.
- Lines that begin with `test> ` are typed into the command above them.
- A block that uses port 27017 gets a separate network namespace if that is possible. Otherwise the port must be free.

Blocks of other kinds are examples, and do not run. Each section of a page starts in an empty folder.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
import subprocess
import time

# Limits of one command. A release build beside other builds takes over 15 minutes.
SECONDS = 900
BUILD_SECONDS = 2700
NUMBERS = itertools.count(1)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"^(?:#|//|<!--) ([\w./-]+\.\w+)(?: -->)?$")
SERVES = re.compile(r"(cargo run --release|vellum)( --(?!help|version)|$)")
OPENING = "opening"


class OutputDiffers(Exception):
    """A command's output differs from the page."""


@dataclasses.dataclass
class Command:
    """A command of a console block, with its output on the page."""

    text: str
    expected: list[str]


def sections(page: str) -> dict[str, list[tuple[str, str]]]:
    """Returns the blocks of each section by its heading. Blocks before the first heading form the opening."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in re.split(r"^(?=## )", page, flags=re.M):
        blocks = FENCE.findall(part)
        if blocks:
            heading = part.splitlines()[0]
            found[heading.lstrip("# ") if heading.startswith("## ") else OPENING] = blocks
    return found


def console(text: str) -> list[Command]:
    """Returns the commands of a block."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            # A comment after a command is for readers only.
            commands.append(Command(re.sub(r"\s+# .*$", "", line[2:]), []))
        elif commands:
            commands[-1].expected.append(line)
    return commands


def matches(expected: list[str], output: str) -> bool:
    """Returns True if the output contains these lines in order."""
    lines = iter(output.splitlines())
    return all(any(pattern(text).fullmatch(line.rstrip()) for line in lines) for text in expected if text.strip())


def pattern(expected: str) -> re.Pattern[str]:
    """Returns a pattern for a line in which `…` stands for any text."""
    return re.compile(".*".join(re.escape(part) for part in expected.rstrip().split("…")))


def can_isolate() -> bool:
    """Returns True if this user may create network namespaces."""
    try:
        return subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Shell:
    """A shell in a folder. Variables and the current folder persist between commands."""

    def __init__(self, folder: pathlib.Path, environment: dict[str, str], isolated: bool):
        self.folder = folder
        namespace = ["unshare", "--net", "--"] if isolated else []
        self.shell = subprocess.Popen([*namespace, "bash"], cwd=folder, text=True, env=environment,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if isolated:
            self.send("ip link set lo up")

    def send(self, text: str) -> None:
        """Sends a line to the shell."""
        assert self.shell.stdin
        self.shell.stdin.write(text + "\n")
        self.shell.stdin.flush()

    def run(self, command: Command, scratch: pathlib.Path) -> None:
        """Runs one command. Raises OutputDiffers."""
        number = next(NUMBERS)
        log, done = scratch / f"output-{number}", scratch / f"done-{number}"
        typed = [line.removeprefix("test> ") for line in command.expected if line.startswith("test> ")]
        expected = [line for line in command.expected if not line.startswith("test> ")]
        cat = re.fullmatch(r"cat (\S+)", command.text)
        source = scratch / f"typed-{number}"
        source.write_text("\n".join(command.expected if cat else typed) + "\n")
        if cat:
            self.send(f"cp {source} {cat[1]}; echo $? > {done}")
            if self.wait(done, ["…"]).strip() != "0":
                raise OutputDiffers(f"{cat[1]} cannot be written")
            return
        seconds = BUILD_SECONDS if command.text.startswith("cargo ") else SECONDS
        if SERVES.match(command.text) or command.text.endswith("&"):
            self.send(f"{command.text.removesuffix('&')} > {log} 2>&1 < /dev/null &")
            output = self.wait(log, expected, seconds)
        else:
            self.send(f"{{ {command.text} ; }} > {log} 2>&1 < {source}; echo $? > {done}")
            code = self.wait(done, ["…"], seconds).strip()
            output = log.read_text(errors="replace")
            if code != "0":
                raise OutputDiffers(f"$ {command.text}\nended with {code or 'no exit code in time'}:\n{output[-3000:]}")
        # mongosh prints its prompt before each answer.
        output = re.sub(r"^(\w+> |\.\.\. )+", "", output, flags=re.M)
        if not matches(expected, output):
            raise OutputDiffers(f"$ {command.text}\nexpected:\n" + "\n".join(expected) + f"\nbut printed:\n{output[-3000:]}")

    def wait(self, file: pathlib.Path, expected: list[str], seconds: int = SECONDS) -> str:
        """Waits until a file has these lines. Returns its text, also after the deadline."""
        deadline = time.monotonic() + seconds
        while True:
            output = file.read_text(errors="replace") if file.exists() else ""
            if (output and matches(expected, output)) or time.monotonic() > deadline or self.shell.poll() is not None:
                return output
            time.sleep(0.05)

    def end(self) -> None:
        """Ends the shell and its background jobs."""
        if self.shell.poll() is None:
            self.send("kill $(jobs -p) 2>/dev/null; wait; exit 0")
        try:
            self.shell.wait(30)
        except subprocess.TimeoutExpired:
            self.shell.kill()
            self.shell.wait()
        for pipe in (self.shell.stdin, self.shell.stdout):
            assert pipe
            pipe.close()


def run(blocks: list[tuple[str, str]], folder: pathlib.Path, scratch: pathlib.Path, environment: dict[str, str]) -> int:
    """Runs the blocks of one section in a folder. Returns the number of commands. Raises OutputDiffers."""
    count = 0
    for kind, text in blocks:
        name = NAMED.match(text.split("\n", 1)[0])
        if kind == "console":
            shell = Shell(folder, environment, "27017" in text and can_isolate())
            try:
                for command in console(text):
                    shell.run(command, scratch)
                    count += 1
            finally:
                shell.end()
        elif name:
            target = folder / name[1]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    return count
