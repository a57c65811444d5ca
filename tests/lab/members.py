"""Checks that the lab measured w 2 and majority on the target with two members, and w 2 on no other target.

    members.py REPORT.json
"""

import json
import sys

report = json.load(open(sys.argv[1]))
rows = {(row["target"], row["case"]): row for section in report["sections"] for row in section["rows"]}
for case in ["w 2", "w 2, j true", "w majority", "w majority, j true"]:
    assert rows["front-with-standby", case]["operations"] > 0, rows["front-with-standby", case]["note"]
    if case.startswith("w 2"):
        assert rows["disk-journaled", case]["operations"] == 0 and rows["disk-journaled", case]["note"]
