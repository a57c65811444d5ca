"""What one client may find after the server was killed.

A client is the only writer of its documents and collections, and its commands go over one
connection, so they are carried out in order. What was acknowledged must be there. What was sent
and not acknowledged, a write concern of zero included, may be there up to any point: a command
is a list of steps, each whole or not at all, none without those before it. Only a command on many
documents in no order is a group, of which any part may be there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

# (collection, "doc", _id) -> document; (collection, "index", name) -> key; (collection, "there", "") -> True
Key = tuple[str, str, Any]
State = dict[Key, Any]


@dataclasses.dataclass
class Step:
    """Changes that happen together; of a group, each on its own. A value of None is an absence."""

    changes: State
    group: bool = False


class Client:
    """The states that are possible for one client."""

    def __init__(self) -> None:
        self.state: State = {}
        self.pending: list[Step] = []
        self.acknowledged = 0

    def send(self, steps: list[Step]) -> None:
        """Something was sent."""
        self.pending += steps

    def acknowledge(self) -> None:
        """Everything sent so far has been carried out."""
        for step in self.pending:
            apply(self.state, step.changes)
        self.acknowledged += len(self.pending)
        self.pending.clear()

    def now(self) -> State:
        """The state once everything pending is carried out."""
        state = dict(self.state)
        for step in self.pending:
            apply(state, step.changes)
        return state

    def settle(self, found: State) -> str | None:
        """Take over what was found after a stop; what is wrong with it, if it isn't possible."""
        state = dict(self.state)
        least = difference(state, found)
        for step in self.pending:
            if not least:
                break
            if step.group:
                partial = dict(state)
                apply(partial, {key: found.get(key) for key, value in step.changes.items()
                                if found.get(key) == value})
                least = difference(partial, found) and least
                if not least:
                    break
            apply(state, step.changes)
            least = difference(state, found) and least
        self.state = dict(found)
        pending = len(self.pending)
        self.pending.clear()
        return f"{least} ({pending} steps were not acknowledged)" if least else None


def apply(state: State, changes: State) -> None:
    """Carry out one step."""
    for key, value in changes.items():
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def difference(expected: State, found: State) -> str:
    """The first differences in words; empty if there is none."""
    lines = []
    for key in sorted(expected.keys() | found.keys(), key=repr):
        if expected.get(key) != found.get(key):
            lines.append(f"{key}: expected {brief(expected.get(key))}, found {brief(found.get(key))}")
    return "; ".join(lines[:3]) + (f"; and {len(lines) - 3} more" if len(lines) > 3 else "")


def brief(value: Any) -> str:
    """A value without its padding."""
    if isinstance(value, dict):
        value = {name: part if name != "pad" else f"{len(part)} bytes" for name, part in value.items()}
    return repr(value)
