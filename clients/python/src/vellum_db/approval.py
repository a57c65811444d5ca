"""Approval files: the changes of a test, stored in a file next to it, and compared with it in later runs.

The file is extended JSON (int32 as plain numbers) in a stable order. Fields of documents are sorted by name.
Indexes and options keep their order, which is significant. ObjectIds, dates, timestamps and UUIDs are numbered
in the order of their appearance, so that references can be followed. The packages for Node.js, Go and JUnit
write equal files.
"""

from __future__ import annotations

import difflib
import json
import os
import pathlib
from typing import Any, Callable, Iterable, Union

LINE_MAX = 100
_KINDS = {"$oid": "ObjectId", "$date": "Date", "$timestamp": "Timestamp"}
#: Fields of an event that contain a test's documents. Other fields describe collections and indexes.
_DOCUMENT_FIELDS = ("documentKey", "fullDocument", "updateDescription")

#: Returns the text for a volatile value, from its kind and its extended JSON.
Replace = Callable[[str, Any], Any]


def approve(changes: Iterable[Any], file: Union[str, os.PathLike[str]]) -> None:
    """Compare changes with a file. The file is written if VELLUM_APPROVE is set, or if it is missing outside
    of CI."""
    __tracebackhide__ = True
    path = pathlib.Path(file)
    changed = text(changes)
    if os.environ.get("VELLUM_APPROVE") or not (path.exists() or os.environ.get("CI")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(changed.encode())
        return
    approved = path.read_text("utf-8") if path.exists() else ""
    if changed != approved:
        lines = difflib.unified_diff(approved.splitlines(), changed.splitlines(), "approved", "changed", lineterm="")
        raise AssertionError(f"the changes differ from {path}; VELLUM_APPROVE=1 writes the file:\n" + "\n".join(lines))


def text(changes: Iterable[Any]) -> str:
    """Returns changes in the form of the file."""
    # Imported only for changes: programs that only start servers may lack PyMongo.
    from bson import json_util
    from bson.binary import UuidRepresentation

    canonical = json_util.CANONICAL_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
    events = json.loads(json_util.dumps(list(changes), json_options=canonical))
    names: dict[str, str] = {}
    counts: dict[str, int] = {}

    def number(kind: str, value: Any) -> str:
        key = kind + json.dumps(value)
        if key not in names:
            counts[kind] = counts.get(kind, 0) + 1
            names[key] = f"<{kind} {counts[kind]}>"
        return names[key]

    return _print([_event(event, number) for event in sorted(events, key=_sort_key)], "") + "\n"


def _sort_key(event: Any) -> tuple[str, str]:
    """Returns the sort key of an event: in the server's order, but documents with volatile keys last, by
    their content."""
    key = event.get("documentKey")
    volatile = _plain(key, _anonymous, False) != _plain(key, _exact, False)
    return event["ns"]["coll"], json.dumps(_event(event, _anonymous)) if volatile else ""


def _anonymous(kind: str, _value: Any) -> str:
    return f"<{kind}>"


def _exact(_kind: str, value: Any) -> Any:
    return value


def _event(event: Any, replace: Replace) -> Any:
    """Returns an event without the database, whose name differs between runs."""
    event = {**event, "ns": {"coll": event["ns"]["coll"]}}
    if "updateDescription" in event:
        update = event["updateDescription"]
        event["updateDescription"] = {**update, "removedFields": sorted(update["removedFields"])}
    return {name: _plain(part, replace, name in _DOCUMENT_FIELDS) for name, part in event.items()}


def _plain(value: Any, replace: Replace, by_name: bool) -> Any:
    """Returns a value with plain int32 and replaced volatile values. `by_name` sorts fields of documents."""
    if isinstance(value, list):
        return [_plain(item, replace, by_name) for item in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), "")
    if name == "$numberInt":
        return int(value[name])
    if name in _KINDS:
        return replace(_KINDS[name], value)
    if name == "$binary" and value[name]["subType"] == "04":
        return replace("UUID", value)
    fields = sorted(value.items()) if by_name else value.items()
    return {name: _plain(field, replace, by_name) for name, field in fields}


def _print(value: Any, indent: str) -> str:
    """Prints a value on one line if it fits, except the list of events."""
    line = json.dumps(value, ensure_ascii=False)
    listed = isinstance(value, (dict, list)) and value
    if not listed or indent and len(indent) + len(line) <= LINE_MAX:
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + _print(item, deeper) for item in value) + f"\n{indent}]"
    fields = (f"{deeper}{json.dumps(name, ensure_ascii=False)}: {_print(field, deeper)}" for name, field in value.items())
    return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
