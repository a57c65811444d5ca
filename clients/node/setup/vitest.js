// Vitest: `test: { globalSetup: "@vellum/memory-server/vitest" }`.
"use strict";

const { begin, end } = require("./shared");

module.exports = { setup: begin, teardown: end };
