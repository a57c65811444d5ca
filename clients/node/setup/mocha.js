// Mocha: `mocha --require @vellum/memory-server/mocha`.
"use strict";

const { begin, end } = require("./shared");

module.exports = { mochaGlobalSetup: begin, mochaGlobalTeardown: end };
