"""Checks the numbers of the lab's reports: sums, counts, percentiles and missing rows.

    check.py REPORT.json…

It follows only the documentation of the format: JSON, with HdrHistogram's encoding in base 64. It prints the errors, and
exits with 1 if a report has one.
"""

import base64
import json
import pathlib
import struct
import sys
import zlib

FORMAT = 1
# Name of the recorded server in a replay. Its times are from the recording, and it has no fingerprint.
RECORDED = "recorded"
COOKIE_V2, COOKIE_V2_PACKED = 0x1C849303, 0x1C849304
# Relative tolerance of sums, which differ by rounding.
TOLERANCE = 1e-6


def unsigned(payload):
    """Decodes the numbers of a payload: ZigZag in LEB128 of at most nine bytes."""
    at = 0
    while at < len(payload):
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            if shift == 56:
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        yield (value >> 1) ^ -(value & 1)


def histogram_count(text):
    """Returns the number of values in a histogram."""
    data = base64.b64decode(text)
    (cookie,) = struct.unpack_from(">I", data)
    if cookie & ~0xF0 == COOKIE_V2_PACKED & ~0xF0:
        data = zlib.decompress(data[8:])
        (cookie,) = struct.unpack_from(">I", data)
    if cookie & ~0xF0 != COOKIE_V2 & ~0xF0:
        raise ValueError(f"cookie {cookie:x}")
    (length,) = struct.unpack_from(">I", data, 4)
    # Negative numbers are runs of empty buckets.
    return sum(count for count in unsigned(data[40:40 + length]) if count > 0)


def close(a, b):
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b), 1e-3)


def check_latency(latency):
    order = ["min", "p50", "p90", "p95", "p99", "p999", "max"]
    values = [latency[name] for name in order]
    if values != sorted(values) or values[0] <= 0:
        yield f"percentiles out of order: {values}"


def check_rounds(row, round_count):
    rounds = row["rounds"]
    if sum(each["operations"] for each in rounds) != row["operations"]:
        yield f"{row['operations']} operations, but its rounds have {[each['operations'] for each in rounds]}"
    if not close(sum(each["seconds"] for each in rounds), row["seconds"]):
        yield f"{row['seconds']} s, but its rounds have {[each['seconds'] for each in rounds]}"
    if round_count and len(rounds) != round_count:
        yield f"{len(rounds)} rounds"
    for each in rounds:
        if each["operations"] <= 0 or each["seconds"] <= 0:
            yield f"a round of {each['operations']} operations in {each['seconds']} s"
        yield from check_latency(each["latency"])


def check_row(row, round_count):
    """Returns the errors of a row with figures, or without figures and note."""
    if row["operations"] == 0:
        if not row["note"]:
            yield "neither figures nor a note"
        return
    if row["partial"]:
        yield f"partial: {row['note']}"
    if row["failures"]:
        yield f"{row['failures']} failures"
    yield from check_rounds(row, round_count)
    counted = histogram_count(row["latency"])
    if counted != row["operations"]:
        yield f"{row['operations']} operations, but {counted} latencies"
    if row["service"] and histogram_count(row["service"]) != counted:
        yield "not as many service times as latencies"
    if row["late"] > row["operations"]:
        yield f"{row['late']} of {row['operations']} operations late"
    if row["cpu_microseconds"] is not None and row["cpu_microseconds"] < 0:
        yield f"processor time of {row['cpu_microseconds']} µs"
    if row["resident_bytes"] is not None and row["resident_bytes"] < 100_000:
        yield f"{row['resident_bytes']} bytes of memory"
    at = [moment["at"] for moment in row["timeline"]]
    if at != sorted(at):
        yield "a timeline out of order"


def check_section(section, targets, round_count):
    case_of = lambda row: (row["case"], row["connections"], row["x"])
    rows = {}
    for row in section["rows"]:
        key = (row["target"], *case_of(row))
        if key in rows:
            yield f"{key} has two rows"
        rows[key] = row
        # The recording has a single round.
        rounds = None if section["kind"] == "rates" or row["target"] == RECORDED else round_count
        for error in check_row(row, rounds):
            yield f"{row['target']}, {row['case']}, {row['connections']} connections: {error}"
    if section["kind"] != "rates":
        cases = {case_of(row) for row in section["rows"]}
        missing = [(target, *case) for case in cases for target in targets if (target, *case) not in rows]
        yield from (f"no row for {key}" for key in missing)
    elif any(row["x"] is None for row in section["rows"]):
        yield "a rate without its number"
    if not any(row["operations"] for row in section["rows"]):
        yield "nothing was measured"


def check(report, round_count=None):
    """Returns the errors of a report."""
    if report["format"] != FORMAT:
        yield f"format {report['format']}"
        return
    yield from (f"error: {error}" for error in report["errors"])
    targets = [target["name"] for target in report["targets"]]
    if len(set(targets)) != len(targets) or "null-server" not in targets or len(targets) < 2:
        yield f"targets {targets}"
    for target in report["targets"]:
        if target["name"] == RECORDED:
            continue
        if not target["fingerprint"]["server"] or target["fingerprint"]["promise"] == "unknown":
            yield f"{target['name']} has no fingerprint: {target['fingerprint']}"
    if len({target["fingerprint"]["promise"] for target in report["targets"]}) > 2 and not report["warnings"]:
        yield "targets with different durability without a warning"
    if not report["sections"]:
        yield "no section"
    if f"--seed {report['seed']}" not in report["command"]:
        yield f"a command without the seed: {report['command']}"
    for section in report["sections"]:
        for error in check_section(section, targets, round_count):
            yield f"{section['id']}: {error}"


def main(paths):
    error_count = 0
    for path in map(pathlib.Path, paths):
        report = json.loads(path.read_text())
        rounds = report["command"].partition("--rounds ")[2].split()
        errors = list(check(report, int(rounds[0]) if rounds else None))
        rows = [row for section in report["sections"] for row in section["rows"]]
        operations = sum(row["operations"] for row in rows)
        noted = sum(1 for row in rows if row["operations"] == 0)
        print(f"{path.name}: {len(rows)} rows, {noted} of them notes, {operations} operations, {report['seconds']:.1f} s")
        for error in errors:
            print(f"  error: {error}")
        error_count += len(errors)
    return 1 if error_count or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
