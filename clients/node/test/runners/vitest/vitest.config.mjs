import { defineConfig } from "vitest/config";

export default defineConfig({ test: { globalSetup: "@vellum/memory-server/vitest" } });
