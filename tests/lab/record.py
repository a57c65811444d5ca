"""Records requests of the lab to a server: experiments with all kinds of operations.

    record.py BINARY RECORDING
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ORDERS = HERE / "../../examples/lab/orders.toml"
SECONDS = 60


class Program:
    """A program that prints its connection string first, and ends when its standard input closes."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.uri = self.process.stdout.readline().strip()
        if not self.uri.startswith("mongodb://"):
            self.end()
            raise SystemExit(f"{command} did not print its address: {self.uri}")

    def end(self):
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


def main(binary, recording):
    pathlib.Path(recording).unlink(missing_ok=True)
    server = Program(binary, "serve", "--port", "0", "--parent-pipe", "--log-level", "error")
    recorder = Program(binary, "lab", "record", "--listen", "127.0.0.1:0", "--parent-pipe", "--upstream", server.uri,
                       recording)
    # On one connection: a replay may reorder overlapping requests, and their replies would differ.
    orders = ["run", str(ORDERS), "--scale", "0.01", "--connections", "1"]
    for load in (["clean", "--scale", "0.002"], orders, ["inserts", "--scale", "0.005"]):
        command = [binary, "lab", *load, "--rounds", "1", "--seed", "7", "--quiet", "--target", f"it={recorder.uri}"]
        done = subprocess.run(command, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(done.stdout)
            raise SystemExit(f"{command} failed")
    if recorder.end() != 0 or server.end() != 0:
        raise SystemExit("the recorder or its server failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
