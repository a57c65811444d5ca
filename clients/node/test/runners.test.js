// The set-up files in Jest, Vitest and Mocha, on the sample projects in runners/. Jest, Vitest and Mocha resolve
// the package by name, start one server, pass its address to their workers, and stop it.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const { before, test } = require("node:test");

const RUNNERS = path.join(__dirname, "runners");

async function run(runner, args) {
  const env = { ...process.env, CI: "1", NO_COLOR: "1" };
  // These variables mark a child process as a part of this run.
  delete env.NODE_TEST_CONTEXT;
  delete env.MONGO_URL;
  const program = path.join(RUNNERS, "node_modules", runner, args[0]);
  const child = spawn(process.execPath, [program, ...args.slice(1)], { cwd: path.join(RUNNERS, runner), env });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const code = await new Promise((resolve, reject) => child.on("error", reject).on("close", resolve));
  assert.equal(code, 0, output);
  return output;
}

// Placed like an installed package. In package.json, it would add its own dependencies to the lock file.
before(() => {
  const installed = path.join(RUNNERS, "node_modules", "@vellum", "memory-server");
  fs.mkdirSync(path.dirname(installed), { recursive: true });
  fs.rmSync(installed, { force: true });
  fs.symlinkSync(path.join(__dirname, ".."), installed, "junction");
});

test("Jest, and Mongoose in it", async () => {
  assert.match(await run("jest", ["bin/jest.js", "--no-cache"]), /Tests: +6 passed, 6 total/);
});

test("Vitest", async () => {
  assert.match(await run("vitest", ["vitest.mjs", "run"]), /Tests +2 passed/);
});

test("Mocha, with workers", async () => {
  assert.match(await run("mocha", ["bin/mocha.js"]), /2 passing/);
});
