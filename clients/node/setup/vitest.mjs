// Vitest: `test: { globalSetup: "@vellum/memory-server/vitest" }`. It wants an ES module with named exports.
import shared from "./shared.js";

export const setup = shared.begin;
export const teardown = shared.end;
