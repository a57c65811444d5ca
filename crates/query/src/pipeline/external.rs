//! Sources of documents in the database or the server: statistics, plans, sessions, operations.
//!
//! ```text
//! {$collStats: {
//!     latencyStats: {histograms: <boolean>}, storageStats: {scale: <number>}, count: {}, queryExecStats: {},
//! }}
//! {$currentOp: {
//!     allUsers: <boolean>, idleConnections: <boolean>, idleCursors: <boolean>, idleSessions: <boolean>,
//!     localOps: <boolean>, truncateOps: <boolean>,
//! }}
//! {$indexStats: {}}
//! {$listLocalSessions: {users: [{user: <string>, db: <string>}, …], allUsers: <boolean>}}
//! {$listSessions: <as $listLocalSessions>}
//! {$planCacheStats: {}}
//! {$querySettings: {showDebugQueryShape: <boolean>}}
//! {$queryStats: {transformIdentifiers: {algorithm: "hmac-sha-256", hmacKey: <binary>}}}
//! ```
//!
//! All options are optional. `targetAllNodes` and `allHosts` are for sharded clusters and are refused if true.

use super::definition::{Parser, Requester, Resource, Right, is_set, values};
use super::fields::required_option;
use super::operator::{Kind, Operator};
use super::{Environment, Stream, registry};
use base::bson::{Array, Document, DocumentBuf, Element, Value};
use base::{Error, ErrorCode, Result, bail, check_bounds, err};
use std::sync::Arc;

/// A parsed source.
#[derive(Clone, Debug)]
pub enum External {
    /// `$collStats`.
    CollStats(CollStats),
    /// `$currentOp`, with its options.
    CurrentOp(DocumentBuf),
    /// `$indexStats`.
    IndexStats,
    /// `$listLocalSessions`, whose options the server reads.
    ListLocalSessions(DocumentBuf),
    /// `$queryStats`.
    QueryStats,
    /// `$planCacheStats`.
    PlanCacheStats,
    /// `$querySettings`.
    QuerySettings {
        /// Whether each document shows the query shape, too.
        shows_shape: bool,
    },
}

impl External {
    /// Returns the first stage of an unparsed pipeline, if it is a valid external source.
    pub fn first_of(pipeline: Array<'_>) -> Option<External> {
        let spec = pipeline.iter().next()?.as_document()?.first()?;
        match registry::find(spec.name()).ok()?.parser {
            Parser::External(parse) => parse(&spec).ok(),
            _ => None,
        }
    }
}

/// The stage that reads an external source.
pub(crate) struct Source(pub(crate) External);

impl Operator for Source {
    fn kind(&self) -> Kind<'_> {
        Kind::Source
    }

    fn start(self: Arc<Self>, _input: Stream, environment: &Environment) -> Result<Stream> {
        environment.collections.source(&self.0, &environment.context)
    }
}

/// Returns the options of a source.
///
/// Errors: the given code unless they are a document.
pub(super) fn options<'v>(spec: &Element<'v>, no_document: ErrorCode) -> Result<Document<'v>> {
    spec.value().as_document().ok_or_else(|| {
        let message = format!("{} must take a nested object but found: {}", spec.name(), spec.kind().alias());
        Error::new(no_document, message)
    })
}

/// Checks that all options are booleans.
///
/// Errors: 40415 and TypeMismatch for other options.
pub(super) fn check_flags(name: &str, options: Document<'_>, flags: &[&str]) -> Result<()> {
    for option in options {
        let path = format_args!("{name}.{}", option.name());
        if !flags.contains(&option.name()) {
            return Err(Error::unknown_field(path));
        }
        if option.value().as_bool().is_none() {
            return Err(Error::wrong_type(path, option.kind(), "bool"));
        }
    }
    Ok(())
}

/// Refuses an option for sharded clusters.
///
/// Errors: FailedToParse.
pub(super) fn refuse_sharded(name: &str, options: Document<'_>, flag: &str) -> Result<()> {
    match options.get(flag) {
        Some(Value::Boolean(true)) => {
            Err(err!(FailedToParse, "{name} takes {flag} on sharded clusters only"))
        }
        _ => Ok(()),
    }
}

/// The requested parts of the statistics.
#[derive(Clone, Debug, Default)]
pub struct CollStats {
    /// Latencies; true adds histograms.
    pub latencies: Option<bool>,
    /// Sizes, divided by this number.
    pub scale: Option<i64>,
    /// The number of documents.
    pub count: bool,
    /// The number of collection scans.
    pub scans: bool,
}

/// Parses `$collStats`.
///
/// Errors: 5447000 unless the options are a document, TypeMismatch, 40415 and BadValue for invalid options,
/// 31170 for an unexpected argument.
pub(crate) fn parse_coll_stats(spec: &Element<'_>) -> Result<External> {
    let Value::Document(options) = spec.value() else {
        bail!(5447000, "$collStats must take a nested object but found: {spec}");
    };
    Ok(External::CollStats(CollStats::parse(options)?))
}

/// Whether only the count is requested, which the stable API allows.
pub(crate) fn only_counts(options: Document<'_>) -> bool {
    options.iter().all(|part| part.name() == "count")
}

impl CollStats {
    /// Parses the requested parts, each an object.
    fn parse(spec: Document<'_>) -> Result<CollStats> {
        let mut asked = CollStats::default();
        for element in spec {
            match element.name() {
                "count" | "storageStats" | "latencyStats" | "queryExecStats"
                    if element.value().is_nullish() => {}
                "count" => asked.count = empty(&element)?,
                "queryExecStats" => asked.scans = empty(&element)?,
                "storageStats" => {
                    asked.scale = Some(parse_storage_stats(object(&element)?)?);
                }
                "latencyStats" => {
                    asked.latencies = Some(parse_latency_stats(object(&element)?)?);
                }
                name => return Err(Error::unknown_field(format_args!("$collStats.{name}"))),
            }
        }
        Ok(asked)
    }
}

/// Returns the divisor of sizes. The other options concern sections of WiredTiger, and locks that this server does not
/// take. MongoDB ignores unknown options here.
fn parse_storage_stats(argument: Document<'_>) -> Result<i64> {
    let mut scale = 1;
    for element in argument {
        match (element.name(), element.value()) {
            ("scale" | "verbose" | "waitForLock" | "numericOnly", value) if value.is_nullish() => {}
            ("scale", value) => scale = parse_scale(value)?,
            (name @ ("verbose" | "waitForLock" | "numericOnly"), value) if value.as_bool().is_none() => {
                return Err(Error::wrong_type(
                    format_args!("$collStats.storageStats.{name}"),
                    element.kind(),
                    "bool",
                ));
            }
            _ => {}
        }
    }
    Ok(scale)
}

/// Whether histograms are requested.
fn parse_latency_stats(argument: Document<'_>) -> Result<bool> {
    let mut histograms = false;
    for element in argument {
        match (element.name(), element.value()) {
            ("histograms", Value::Boolean(enabled)) => histograms = enabled,
            ("histograms", _) => {
                bail!(
                    TypeMismatch,
                    "Field 'histograms' should be a boolean value, but found: {}",
                    element.kind().alias()
                );
            }
            (name, _) => return Err(Error::unknown_field(format_args!("$collStats.latencyStats.{name}"))),
        }
    }
    Ok(histograms)
}

/// Checks a part without arguments. Errors: TypeMismatch, 31170 for an argument.
fn empty(element: &Element<'_>) -> Result<bool> {
    match object(element)?.is_empty() {
        true => Ok(true),
        false => Err(err!(31170, "{} argument must be an empty object", element.name())),
    }
}

/// Returns the argument of an option. Errors: TypeMismatch unless it is a document.
fn object<'a>(element: &Element<'a>) -> Result<Document<'a>> {
    element.value().as_document().ok_or_else(|| {
        Error::wrong_type(format_args!("$collStats.{}", element.name()), element.kind(), "object")
    })
}

/// Parses the divisor of sizes, at least 1. Errors: TypeMismatch and BadValue.
fn parse_scale(scale: Value<'_>) -> Result<i64> {
    let number = scale.as_number().ok_or_else(|| {
        Error::wrong_type("$collStats.storageStats.scale", scale.kind(), "[long, int, decimal, double")
    })?;
    // A greater value counts as the maximum of an int32.
    check_bounds("scale", number.to_i64_coerced().min(i64::from(i32::MAX)), 1..=i64::MAX)
}

const CURRENT_OP_FLAGS: &[&str] = &[
    "allUsers",
    "idleConnections",
    "idleCursors",
    "idleSessions",
    "localOps",
    "truncateOps",
    "targetAllNodes",
];

/// Parses `$currentOp`. Errors: TypeMismatch unless the options are a document; the errors of flags.
pub(crate) fn parse_current_op(spec: &Element<'_>) -> Result<External> {
    let options = options(spec, ErrorCode::TypeMismatch)?;
    check_flags(spec.name(), options, CURRENT_OP_FLAGS)?;
    refuse_sharded(spec.name(), options, "targetAllNodes")?;
    Ok(External::CurrentOp(options.to_owned()))
}

/// Returns the required rights. A user's own operations need no action.
pub(crate) fn current_op_rights<'v>(specification: Value<'v>, _requester: &Requester<'_>) -> Vec<Right<'v>> {
    match is_set(specification, "allUsers") {
        true => vec![Right { on: Resource::Cluster, actions: &["inprog"] }],
        false => Vec::new(),
    }
}

/// Parses `$indexStats`. Errors: 28803 for anything but an empty document.
pub(crate) fn parse_index_stats(spec: &Element<'_>) -> Result<External> {
    match spec.value().as_document() {
        Some(options) if options.is_empty() => Ok(External::IndexStats),
        _ => Err(err!(28803, "The $indexStats stage specification must be an empty object")),
    }
}

/// Parses the stage. Errors: FailedToParse unless the options are a document.
pub(crate) fn parse_list_sessions(spec: &Element<'_>) -> Result<External> {
    Ok(External::ListLocalSessions(options(spec, ErrorCode::FailedToParse)?.to_owned()))
}

/// Returns the required rights. A user's own sessions need no action.
pub(crate) fn list_sessions_rights<'v>(
    specification: Value<'v>,
    requester: &Requester<'_>,
) -> Vec<Right<'v>> {
    let options = specification.as_document().unwrap_or(Document::EMPTY);
    let mut users = values(options, "users").filter_map(|users| users.as_array());
    let only_own = users.all(|users| users.iter().all(|user| (requester.is)(user)));
    match is_set(specification, "allUsers") || !only_own {
        true => vec![Right { on: Resource::Cluster, actions: &["listSessions"] }],
        false => Vec::new(),
    }
}

/// Parses the stage. Errors: FailedToParse unless the options are a document; the errors of flags.
pub(crate) fn parse_plan_cache_stats(spec: &Element<'_>) -> Result<External> {
    let options = options(spec, ErrorCode::FailedToParse)?;
    check_flags(spec.name(), options, &["allHosts"])?;
    refuse_sharded(spec.name(), options, "allHosts")?;
    Ok(External::PlanCacheStats)
}

/// Errors: 7746800 unless the options are a document; those of flags.
pub(crate) fn parse_query_settings(spec: &Element<'_>) -> Result<External> {
    let Value::Document(options) = spec.value() else {
        bail!(
            7746800,
            "The {} stage specification must be an object. Found: {}",
            spec.name(),
            spec.kind().alias()
        );
    };
    check_flags(spec.name(), options, &["showDebugQueryShape"])?;
    let shows_shape = options.get("showDebugQueryShape").and_then(|flag| flag.as_bool()) == Some(true);
    Ok(External::QuerySettings { shows_shape })
}

/// Errors: FailedToParse unless the options are a document; 40415 and TypeMismatch for bad options; 40414 for
/// `transformIdentifiers` without an algorithm; BadValue for an unknown algorithm.
pub(crate) fn parse_query_stats(spec: &Element<'_>) -> Result<External> {
    let name = spec.name();
    let Value::Document(options) = spec.value() else {
        bail!(FailedToParse, "{name} value must be an object. Found: {}", spec.kind().alias());
    };
    for option in options {
        let path = format!("{name}.{}", option.name());
        if option.name() != "transformIdentifiers" {
            return Err(Error::unknown_field(path));
        }
        let Value::Document(transform) = option.value() else {
            return Err(Error::wrong_type(path, option.kind(), "object"));
        };
        let algorithm = required_option(&path, transform, "algorithm")?;
        match algorithm.as_str() {
            Some("hmac-sha-256") => {}
            Some(other) => {
                return Err(Error::unknown_value(format_args!("{path}.algorithm"), other));
            }
            None => {
                return Err(Error::wrong_type(format_args!("{path}.algorithm"), algorithm.kind(), "string"));
            }
        }
    }
    Ok(External::QueryStats)
}

/// Returns the required rights. Identifiers that are not transformed need a further action.
pub(crate) fn query_stats_rights<'v>(specification: Value<'v>, _requester: &Requester<'_>) -> Vec<Right<'v>> {
    let is_transformed =
        specification.as_document().is_some_and(|options| options.find("transformIdentifiers").is_some());
    let actions: &[&str] = match is_transformed {
        true => &["queryStatsReadTransformed"],
        false => &["queryStatsReadTransformed", "queryStatsRead"],
    };
    vec![Right { on: Resource::Cluster, actions }]
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives, pipeline};

    #[test]
    fn the_database_is_asked() {
        let text = "[{$indexStats: {}}, {$project: {_id: 0}}]";
        gives("[]", text, "[{source: 'IndexStats'}]");
        assert!(!pipeline(text).unwrap().reads_collection());
        fails("[{$indexStats: {a: 1}}]", 28803, "must be an empty object");
        fails("[{$collStats: null}]", 5447000, "found: $collStats: null");
        fails("[{$currentOp: 1}]", 14, "$currentOp must take a nested object");
        fails("[{$limit: 1}, {$collStats: {}}]", 40602, "$collStats is only valid as the first stage");
    }
}
