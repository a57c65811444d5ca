//! The `vellum` binary: options merged into one checked configuration, then one verb.

fn main() {}
