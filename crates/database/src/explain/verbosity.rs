//! How much explain tells.

use base::{Result, err};

/// How much explain tells, and so whether the plan is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    /// The plans alone.
    QueryPlanner,
    /// What the winning plan did as well.
    ExecutionStats,
    /// What the others did when tried, too.
    AllPlansExecution,
}

impl Verbosity {
    /// Reads the name.
    ///
    /// Errors: BadValue for any other.
    pub fn parse(name: &str) -> Result<Verbosity> {
        match name {
            "queryPlanner" => Ok(Verbosity::QueryPlanner),
            "executionStats" => Ok(Verbosity::ExecutionStats),
            "allPlansExecution" => Ok(Verbosity::AllPlansExecution),
            _ => Err(err!(
                BadValue,
                "Enumeration value '{name}' for field 'explain.verbosity' is not a valid value."
            )),
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Verbosity::QueryPlanner => "queryPlanner",
            Verbosity::ExecutionStats => "executionStats",
            Verbosity::AllPlansExecution => "allPlansExecution",
        }
    }
}
