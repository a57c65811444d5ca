module.exports = {
  globalSetup: "@vellum/memory-server/jest/setup",
  globalTeardown: "@vellum/memory-server/jest/teardown",
  testEnvironment: "node",
  transform: {},
};
