"""The blocks of Markdown pages, carried out as they are written.

Each section of a page is a project of its own, in an empty folder with a link to `dist`. A block whose first line names
a file in a comment is that file. A block of the kind `console` is a shell and its commands, behind `$`, each followed by
lines that its output must have, in their order, `…` standing for whatever is there; `$ cat FILE` shows what FILE is to
contain. A command that begins with `vellum` or ends with `&` goes on in the background. Lines behind `$ mongosh` that
begin with `test> ` are typed into it. No block has a vellum on its path but the one that it installs; one that begins
with `vellum` has that of `programs`, in a network of its own, so that it finds the default port free.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
import subprocess
import time

SECONDS = 600
NUMBERS = itertools.count(1)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"^(?:#|//|<!--) ([\w./-]+\.\w+)(?: -->)?$")


class Differs(Exception):
    """What a page tells, and what there is."""


@dataclasses.dataclass
class Command:
    """One command of a console."""

    text: str
    expected: list[str]


def sections(page: str) -> dict[str, list[tuple[str, str]]]:
    """The blocks of each section, by its heading."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in re.split(r"^(?=## )", page, flags=re.M):
        blocks = [(kind, text) for kind, text in FENCE.findall(part)]
        if blocks:
            found[part.splitlines()[0].lstrip("# ")] = blocks
    return found


def console(text: str) -> list[Command]:
    """The commands of a block."""
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], []))
        elif commands:
            commands[-1].expected.append(line)
    return commands


def matches(expected: list[str], said: str) -> bool:
    """Whether the output has these lines, in their order."""
    lines = iter(said.splitlines())
    return all(any(pattern(wanted).fullmatch(line.rstrip()) for line in lines) for wanted in expected if wanted.strip())


def pattern(wanted: str) -> re.Pattern[str]:
    """`…` is whatever there is, also spaces in front of a mark."""
    return re.compile(".*".join(re.escape(part) for part in wanted.rstrip().split("…")))


class Shell:
    """A shell in a folder, which goes on from one command to the next."""

    def __init__(self, folder: pathlib.Path, programs: list[pathlib.Path], environment: dict[str, str]):
        self.folder = folder
        path = os.pathsep.join([*map(str, programs), environment["PATH"]])
        alone = ["unshare", "--net", "--"] if programs else []
        self.shell = subprocess.Popen([*alone, "bash"], cwd=folder, text=True, env={**environment, "PATH": path},
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if programs:
            self.say("ip link set lo up")

    def say(self, text: str) -> None:
        assert self.shell.stdin
        self.shell.stdin.write(text + "\n")
        self.shell.stdin.flush()

    def run(self, command: Command) -> None:
        """One command. Raises Differs."""
        cat = re.fullmatch(r"cat (\S+)", command.text)
        if cat:
            (self.folder / cat[1]).write_text("\n".join(command.expected) + "\n")
            return
        number = next(NUMBERS)
        log = self.folder / f".said-{number}"
        typed = [line.removeprefix("test> ") for line in command.expected if line.startswith("test> ")]
        expected = [line for line in command.expected if not line.startswith("test> ")]
        background = re.match(r"vellum( --(?!help)|$)", command.text) or command.text.endswith("&")
        if background:
            self.say(f"{command.text.removesuffix('&')} > {log} 2>&1 < /dev/null &")
            said = self.wait(log, expected)
        else:
            source = self.folder / f".typed-{number}"
            source.write_text("\n".join(typed) + "\n")
            done = self.folder / f".done-{number}"
            self.say(f"{{ {command.text} ; }} > {log} 2>&1 < {source}; echo $? > {done}")
            code = self.wait(done, ["…"]).strip()
            said = log.read_text(errors="replace")
            if code != "0":
                raise Differs(f"$ {command.text}\nended with {code}:\n{said[-3000:]}")
        # The shell's prompt stands before what was typed and what it answers.
        said = re.sub(r"^(\w+> |\.\.\. )+", "", said, flags=re.M)
        if not matches(expected, said):
            raise Differs(f"$ {command.text}\nexpected:\n" + "\n".join(expected) + f"\nand there was:\n{said[-3000:]}")

    def wait(self, file: pathlib.Path, expected: list[str]) -> str:
        """A file that has these lines, or what it has after a while."""
        deadline = time.monotonic() + (SECONDS if file.name.startswith(".done") else 30)
        while True:
            said = file.read_text(errors="replace") if file.exists() else ""
            if (said and matches(expected, said)) or time.monotonic() > deadline or self.shell.poll() is not None:
                return said
            time.sleep(0.05)

    def end(self) -> None:
        """Ends the shell and what runs in its background."""
        if self.shell.poll() is None:
            self.say("kill $(jobs -p) 2>/dev/null; wait; exit 0")
        try:
            self.shell.wait(30)
        except subprocess.TimeoutExpired:
            self.shell.kill()


def run(page: pathlib.Path, dist: pathlib.Path, scratch: pathlib.Path, programs: list[pathlib.Path],
        environment: dict[str, str]) -> int:
    """Carries a page out; how many commands. Raises Differs with page and section."""
    count = 0
    for number, (heading, blocks) in enumerate(sections(page.read_text()).items()):
        folder = scratch / f"{page.stem}-{number}"
        folder.mkdir()
        (folder / "dist").symlink_to(dist)
        for kind, text in blocks:
            name = NAMED.match(text.split("\n", 1)[0])
            if kind == "console":
                commands = console(text)
                shell = Shell(folder, programs if commands[0].text == "vellum" else [], environment)
                try:
                    for command in commands:
                        shell.run(command)
                except Differs as error:
                    raise Differs(f"{page.name}, {heading}: {error}") from None
                finally:
                    shell.end()
                count += len(commands)
            elif name:
                target = folder / name[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
    return count
