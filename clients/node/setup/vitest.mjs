// Vitest: `test: { globalSetup: "@vellum/memory-server/vitest" }`. Vitest requires an ES module with named
// exports.
import shared from "./shared.js";

export const setup = shared.begin;
export const teardown = shared.end;
