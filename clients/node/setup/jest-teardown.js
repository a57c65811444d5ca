// Jest: `globalTeardown: "@vellum/memory-server/jest/teardown"`.
"use strict";

module.exports = require("./shared").end;
