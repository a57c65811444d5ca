//! Transactions of many statements.

/// A transaction under way.
pub struct OpenTransaction {}
