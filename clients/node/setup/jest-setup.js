// Jest: `globalSetup: "@vellum/memory-server/jest/setup"`.
"use strict";

module.exports = require("./shared").begin;
