"""The allowed states of one client's data after the server was killed.

A client is the only writer of its documents and collections. Its commands use one connection and are executed
in order. Acknowledged changes must be present. Unacknowledged changes, also with write concern zero, may be
present up to any point. A command is a list of steps. Each step is atomic and requires all earlier steps.
Only an unordered command on many documents is a group, of which any part may be present.
"""

from __future__ import annotations

import dataclasses
from typing import Any

# (collection, "doc", _id) -> document; (collection, "index", name) -> key; (collection, "exists", "") -> True
Key = tuple[str, str, Any]
State = dict[Key, Any]


@dataclasses.dataclass
class Step:
    """Changes that happen together; in a group, each happens separately. The value None means absence."""

    changes: State
    group: bool = False


class Client:
    """The possible states of one client."""

    def __init__(self) -> None:
        self.state: State = {}
        self.pending: list[Step] = []
        self.acknowledged = 0

    def send(self, steps: list[Step]) -> None:
        """Records a sent command."""
        self.pending += steps

    def acknowledge(self) -> None:
        """Records that everything sent so far has been executed."""
        for step in self.pending:
            apply(self.state, step.changes)
        self.acknowledged += len(self.pending)
        self.pending.clear()

    def now(self) -> State:
        """Returns the state after all pending steps."""
        state = dict(self.state)
        for step in self.pending:
            apply(state, step.changes)
        return state

    def adopt(self, found: State) -> str | None:
        """Adopts the state found after a stop. Returns an error if it is impossible."""
        state = dict(self.state)
        mismatch = difference(state, found)
        for step in self.pending:
            if not mismatch:
                break
            if step.group:
                partial = dict(state)
                apply(partial, {key: found.get(key) for key, value in step.changes.items()
                                if found.get(key) == value})
                mismatch = difference(partial, found) and mismatch
                if not mismatch:
                    break
            apply(state, step.changes)
            mismatch = difference(state, found) and mismatch
        self.state = dict(found)
        pending = len(self.pending)
        self.pending.clear()
        return f"{mismatch} ({pending} steps were not acknowledged)" if mismatch else None


def apply(state: State, changes: State) -> None:
    """Executes one step."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def difference(expected: State, found: State) -> str:
    """Describes the first differences; empty without any."""
    lines = []
    for key in sorted(expected.keys() | found.keys(), key=repr):
        if expected.get(key) != found.get(key):
            lines.append(f"{key}: expected {brief(expected.get(key))}, found {brief(found.get(key))}")
    return "; ".join(lines[:3]) + (f"; and {len(lines) - 3} more" if len(lines) > 3 else "")


def brief(value: Any) -> str:
    """Returns a value without its padding."""
    if isinstance(value, dict):
        value = {name: part if name != "pad" else f"{len(part)} bytes" for name, part in value.items()}
    return repr(value)
