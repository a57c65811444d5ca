// The published packages: the platform's program is found where npm installs it.
"use strict";

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { test } = require("node:test");
const { pack } = require("../pack.js");

test("an installed platform's package is found", (context) => {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "vellum-pack-"));
  context.after(() => fs.rmSync(home, { recursive: true }));
  const platform = `${process.platform}-${process.arch}`;
  pack(path.join(home, "node_modules", "@vellum"), { [platform]: process.execPath });
  const main = path.join(home, "node_modules", "@vellum", "memory-server");
  const named = JSON.parse(fs.readFileSync(path.join(main, "package.json"), "utf8")).optionalDependencies;
  assert.deepEqual(Object.keys(named), [`@vellum/${platform}`]);
  const code = `console.log(require(${JSON.stringify(path.join(main, "src", "binary.js"))}).findBinary())`;
  const environment = { ...process.env };
  delete environment.VELLUM_BINARY;
  const found = String(execFileSync(process.execPath, ["-e", code], { env: environment })).trim();
  const name = process.platform === "win32" ? "vellum.exe" : "vellum";
  assert.equal(fs.realpathSync(found), fs.realpathSync(path.join(home, "node_modules", "@vellum", platform, "bin", name)));
});
