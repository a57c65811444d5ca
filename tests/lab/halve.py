"""Writes a report with twice the seconds, which is half the rate.

    halve.py REPORT.json SLOWER
"""

import json
import sys

report = json.load(open(sys.argv[1]))
for section in report["sections"]:
    for row in section["rows"]:
        for each in [row, *row["rounds"]]:
            each["seconds"] *= 2
json.dump(report, open(sys.argv[2], "w"))
