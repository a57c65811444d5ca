//! Settings of query shapes, which an operation's plans follow.

use base::Namespace;
use base::bson::DocumentBuf;
use std::time::Duration;

/// Settings of a query's shape, set by `setQuerySettings`.
#[derive(Clone, Debug)]
pub struct QuerySettings {
    /// The settings as explain shows them.
    pub document: DocumentBuf,
    /// Allowed indexes of each collection.
    pub index_hints: Vec<(Namespace, Vec<IndexHint>)>,
    /// Whether scans of collections are refused, in place of the parameter `notablescan`.
    pub no_table_scan: Option<bool>,
    /// The limit that replaces the command's `maxTimeMS`.
    pub max_time: Option<Duration>,
}

/// One index that query settings allow.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexHint {
    /// The index of this name.
    Name(String),
    /// Any index with this key pattern.
    Key(DocumentBuf),
    /// A collection scan: `{$natural: ±1}`.
    Natural,
}
