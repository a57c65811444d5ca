// Starts a server process. Returns its connection string, or an error with its output.
"use strict";

const { spawn } = require("node:child_process");
const { findBinary } = require("./binary");

/** Advice for a missing program. */
const MISSING = `the package @vellum/${process.platform}-${process.arch} is not installed; set VELLUM_BINARY to a program from "cargo build --release"`;
const STOP_MILLIS = 10_000;
const PLACES = ["--config", "--data", "--engine", "--postgres"];
const MESSAGE_MAX = 64 * 1024;

/**
 * Starts the server. It ends when its standard input closes. The operating system also closes it for a killed
 * process, so the server never outlives this process.
 */
function launch({ args = [], port = 0, binary, timeout = 30_000, spawn: spawnOptions = {}, auth } = {}) {
  const command = findBinary(binary);
  // Without an option for the place of the data it is memory, also if the environment names another place.
  if (!args.some((arg) => PLACES.includes(arg.split("=")[0]))) args = [...args, "--engine", "memory"];
  // Variables of MongoDB's images, perhaps for another server, would require a login.
  const inherited = Object.entries(spawnOptions.env ?? process.env).filter(([name]) => !name.startsWith("MONGO_INITDB_ROOT_"));
  const env = Object.fromEntries(inherited);
  if (auth) {
    Object.assign(env, { MONGO_INITDB_ROOT_USERNAME: auth.user, MONGO_INITDB_ROOT_PASSWORD: auth.password });
    // The clock is for tests. With users, it is off unless it is requested.
    if (!args.some((arg) => arg.startsWith("--test-commands"))) args = [...args, "--test-commands"];
  }
  // Detached: the terminal's Ctrl-C must not end the server, because the teardown of the test runner needs it.
  const child = spawn(command, ["serve", "--port", String(port), "--parent-pipe", ...args], {
    ...spawnOptions,
    env,
    stdio: ["pipe", "pipe", "pipe"],
    detached: process.platform !== "win32",
    windowsHide: true,
  });
  return new Promise((resolve, reject) => {
    let output = "";
    let errors = "";
    const timer = setTimeout(() => {
      errors += `\nit did not print its address within ${timeout} ms`;
      child.kill("SIGKILL");
    }, timeout);
    child.stderr.on("data", (data) => (errors = (errors + data).slice(-MESSAGE_MAX)));
    child.stdin.on("error", () => {});
    child.once("error", (error) => {
      clearTimeout(timer);
      const missing = error.code === "ENOENT" ? `; ${MISSING}` : "";
      reject(new Error(`vellum did not start: ${error.message}${missing}`));
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      reject(new Error(`vellum did not start: ${errors.trim() || `exited with status ${code}`}`));
    });
    child.stdout.on("data", (data) => {
      output += data;
      const uri = /^(mongodb:\/\/\S+)\r?\n/.exec(output)?.[1];
      if (!uri) return;
      clearTimeout(timer);
      // The server must not keep a finished test runner alive.
      for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle.unref?.();
      resolve({ child, uri });
    });
  });
}

/** Stops a server and waits for its end. */
function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve();
  return new Promise((resolve) => {
    child.ref();
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MILLIS);
    child.once("exit", () => {
      clearTimeout(timer);
      resolve();
    });
    child.stdin.end();
  });
}

module.exports = { launch, stop };
