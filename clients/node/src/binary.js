// Location of the server program: as binary, from VELLUM_BINARY, in this platform's package, or on the path.
"use strict";

const path = require("node:path");

/** Returns the program to run. Errors of a broken platform package appear when it is started. */
function findBinary(binary) {
  const requested = binary ?? process.env.VELLUM_BINARY;
  if (requested) return requested;
  const name = process.platform === "win32" ? "vellum.exe" : "vellum";
  try {
    const manifest = require.resolve(`@vellum/${process.platform}-${process.arch}/package.json`);
    return path.join(path.dirname(manifest), "bin", name);
  } catch {
    return name;
  }
}

module.exports = { findBinary };
