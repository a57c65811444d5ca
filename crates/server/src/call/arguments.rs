//! Generic arguments of commands, parsed in one place before the handler runs.
//!
//! These are `$db`, the session, read and write concern, the time limit, read preference and API
//! version. Handlers honor them through [`Arguments`], or this module refuses them by name.

use crate::access::Command;
use crate::call::transaction_rules::{self, Given, Part};
use crate::protocol::api::ApiParameters;
use crate::protocol::fields::Fields;
use crate::protocol::read_concern::{ReadConcern, ReadPreference, RequestedReadConcern};
use crate::protocol::session_id::{self, Named};
use crate::protocol::write_concern::WriteConcern;
use base::bson::{Document, Element, Value};
use base::{Error, Result, bail, check_bounds, err};
use database::SessionId;
use std::fmt::Display;
use std::time::Duration;

/// Generic arguments of a command.
#[derive(Default)]
pub(crate) struct Arguments<'a> {
    pub(crate) session: Option<SessionId>,
    /// Logical session as the client named it, before the check of its owner.
    pub(crate) named_session: Option<Named>,
    /// Number of the retryable write or transaction in its session.
    pub(crate) transaction_number: Option<i64>,
    /// Role of the command in a transaction.
    pub(crate) transaction: Option<Part>,
    /// Number of a retryable statement, if the client numbers statements.
    pub(crate) statement_id: Option<i32>,
    /// Numbers of several retryable statements.
    pub(crate) statement_ids: Option<base::bson::Array<'a>>,
    /// Time limit. Zero means no limit and is `None`.
    pub(crate) max_time: Option<Duration>,
    /// The `maxTimeMS` of a getMore: how long it waits for results. It does not limit the command.
    pub(crate) await_time: Option<Duration>,
    /// The cluster time that the client has seen.
    pub(crate) cluster_time: u64,
    pub(crate) read_concern: RequestedReadConcern,
    /// Write concern, if given.
    pub(crate) write_concern: Option<WriteConcern>,
    pub(crate) read_preference: ReadPreference,
    /// The client's comment for logs and currentOp.
    pub(crate) comment: Option<Value<'a>>,
    pub(crate) api: ApiParameters<'static>,
}

/// Returns true for the name of a generic argument, which [`Fields`](crate::protocol::fields::Fields) skips.
/// Runs for each field of each command, so lengths are compared first.
pub(crate) fn is_generic(name: &str) -> bool {
    matches!(
        name,
        "$clusterTime"
            | "$db"
            | "$queryOptions"
            | "$readPreference"
            | "apiDeprecationErrors"
            | "apiStrict"
            | "apiVersion"
            | "autocommit"
            | "comment"
            | "coordinator"
            | "lsid"
            | "maxTimeMS"
            | "rawData"
            | "readConcern"
            | "startTransaction"
            | "stmtId"
            | "stmtIds"
            | "txnNumber"
            | "writeConcern"
    )
}

/// Properties of the topology that decide about arguments.
pub(crate) struct Topology {
    /// True if this server presents itself as a replica set.
    pub(crate) is_replica_set: bool,
}

impl<'a> Arguments<'a> {
    /// Parses the generic arguments of a command. The value is the default before.
    ///
    /// Errors: wrong types and values with MongoDB's codes; commands not allowed in transactions;
    /// concerns that the command does not support.
    pub(crate) fn read(&mut self, body: Document<'a>, command: &Command, topology: &Topology) -> Result<()> {
        let mut api = ApiParameters::default();
        let mut given = Given::default();
        // The first field is the command's name.
        for element in body.iter().skip(1).filter(|element| is_generic(element.name())) {
            let value = element.value();
            // As in MongoDB, null stands for a missing argument. Only a comment may be null.
            if value.is_nullish() && element.name() != "comment" {
                continue;
            }
            match element.name() {
                "lsid" => self.named_session = Some(session_id::read(value)?),
                "txnNumber" => self.transaction_number = Some(transaction_number(value)?),
                "stmtId" => self.statement_id = Some(statement_id("stmtId", value)?),
                "stmtIds" => {
                    let ids = typed(&element, command, "array", value.as_array())?;
                    for (at, id) in ids.iter().enumerate() {
                        statement_id(format_args!("{}.stmtIds.{at}", command.name), id)?;
                    }
                    self.statement_ids = Some(ids);
                }
                "startTransaction" => given.start = Some(typed(&element, command, "bool", value.as_bool())?),
                "autocommit" => given.autocommit = Some(typed(&element, command, "bool", value.as_bool())?),
                "coordinator" => refuse_coordinator(&element, command)?,
                "maxTimeMS" if command.continues_cursor => self.await_time = max_time(&element, command)?,
                "maxTimeMS" => self.max_time = max_time(&element, command)?,
                "readConcern" => {
                    let document = typed(&element, command, "object", value.as_document())?;
                    self.read_concern = RequestedReadConcern::parse(document, command.name)?;
                }
                "writeConcern" => {
                    let document = typed(&element, command, "object", value.as_document())?;
                    self.write_concern = Some(WriteConcern::read(
                        document,
                        command.takes_write_concern,
                        topology.is_replica_set,
                    )?);
                }
                "comment" => self.comment = Some(value),
                // Old clients send their read preference in this field.
                "$queryOptions" => {
                    let options = typed(&element, command, "object", value.as_document())?;
                    if let Some(preference) = options.find("$readPreference") {
                        self.read_preference = ReadPreference::parse(&preference, command.name)?;
                    }
                }
                "$readPreference" => {
                    self.read_preference = ReadPreference::parse(&element, command.name)?;
                }
                // Only time series have raw data.
                "rawData" => drop(typed(&element, command, "bool", value.as_bool())?),
                "apiVersion" => api.version = Some(typed(&element, command, "string", value.as_str())?),
                "apiStrict" => api.strict = Some(typed(&element, command, "bool", value.as_bool())?),
                "apiDeprecationErrors" => {
                    api.deprecation_errors = Some(typed(&element, command, "bool", value.as_bool())?);
                }
                "$clusterTime" if topology.is_replica_set => {
                    self.cluster_time = cluster_time(&element, command)?;
                }
                // `$db` was read with the frame. A standalone has no cluster time.
                _ => {}
            }
        }
        self.api = api.check(command.name, command.stable_api)?;
        self.session = self.named_session.map(|named| named.id);
        given.session = self.session.is_some();
        given.number = self.transaction_number;
        self.transaction = given.part(command, topology.is_replica_set)?;
        self.check_concerns(command, topology)
    }

    fn check_concerns(&self, command: &Command, topology: &Topology) -> Result<()> {
        let Some(part) = self.transaction else {
            return check_read_concern(&self.read_concern, command, topology.is_replica_set);
        };
        let has_write_concern = self.write_concern.as_ref().is_some_and(|concern| !concern.is_empty());
        transaction_rules::check_concerns(part, command, &self.read_concern, has_write_concern)
    }
}

/// Returns a cluster time. No key signs it here, so that a signature is not verified. A time without
/// a signature is one with an empty signature, as in MongoDB (vector_clock.cpp).
///
/// Errors: TypeMismatch and 40414 for wrong and missing fields.
fn cluster_time(element: &Element<'_>, command: &Command) -> Result<u64> {
    let time = typed(element, command, "object", element.value().as_document())?;
    let mut fields = Fields::of_document("$clusterTime", time);
    let time = match fields.required("clusterTime", Fields::any)? {
        Value::Timestamp(time) => time,
        other => return Err(fields.wrong_type("clusterTime", other.kind(), "timestamp")),
    };
    if let Some(signature) = fields.document("signature")? {
        let mut fields = Fields::of_document("$clusterTime.signature", signature);
        match fields.required("hash", Fields::any)? {
            Value::Binary { .. } => {}
            other => return Err(fields.wrong_type("hash", other.kind(), "binData")),
        }
        fields.required("keyId", Fields::integer)?;
    }
    Ok(time)
}

/// Checks the read concern of a command outside of a transaction.
///
/// Errors: NotAReplicaSet and IllegalOperation on a standalone; InvalidOptions.
fn check_read_concern(concern: &RequestedReadConcern, command: &Command, is_replica_set: bool) -> Result<()> {
    match concern.level {
        _ if concern.after.is_some() && !is_replica_set => Err(err!(
            IllegalOperation,
            "Cannot specify afterClusterTime readConcern without replication enabled"
        )),
        Some(ReadConcern::Snapshot) if !command.reads_snapshots() => Err(err!(
            InvalidOptions,
            "Command {} does not support {{ readConcern: {{ level: \"snapshot\" }} }} :: caused by :: read concern \
             snapshot is not supported",
            command.name
        )),
        Some(ReadConcern::Snapshot) if !is_replica_set => {
            Err(err!(NotAReplicaSet, "node needs to be a replica set member to use readConcern: snapshot"))
        }
        Some(level) if !command.takes_read_concern && level != ReadConcern::Local => Err(err!(
            InvalidOptions,
            "Command {} does not support this readConcern :: caused by :: read concern not supported",
            command.name
        )),
        // The handler checks the stages of a pipeline itself.
        Some(ReadConcern::Linearizable) if command.name != "aggregate" => check_linearizable(is_replica_set),
        _ => Ok(()),
    }
}

/// Checks that the server supports linearizable reads.
///
/// Errors: NotAReplicaSet on a standalone.
pub(crate) fn check_linearizable(is_replica_set: bool) -> Result<()> {
    match is_replica_set {
        true => Ok(()),
        false => Err(err!(
            NotAReplicaSet,
            "node needs to be a replica set member to use readConcern: linearizable"
        )),
    }
}

fn typed<T>(element: &Element<'_>, command: &Command, expected: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| {
        Error::wrong_type(format_args!("{}.{}", command.name, element.name()), element.kind(), expected)
    })
}

fn transaction_number(value: Value<'_>) -> Result<i64> {
    match value {
        Value::Int64(number) if number >= 0 => Ok(number),
        Value::Int64(_) => Err(err!(InvalidOptions, "Transaction number cannot be negative")),
        other => Err(Error::wrong_type("txnNumber", other.kind(), "long")),
    }
}

/// Refuses `coordinator`, which only shards use.
///
/// Errors: TypeMismatch; NotImplemented for true.
fn refuse_coordinator(element: &Element<'_>, command: &Command) -> Result<()> {
    match typed(element, command, "bool", element.value().as_bool())? {
        true => Err(err!(NotImplemented, "BSON field '{}.coordinator' is not implemented", command.name)),
        false => Ok(()),
    }
}

fn statement_id(path: impl Display, value: Value<'_>) -> Result<i32> {
    match value {
        Value::Int32(number) => check_bounds(path, number, 0..=i32::MAX),
        other => Err(Error::wrong_type(path, other.kind(), "int")),
    }
}

fn max_time(element: &Element<'_>, command: &Command) -> Result<Option<Duration>> {
    let value = element.value();
    let number = value.as_number().ok_or_else(|| {
        Error::wrong_type(
            format_args!("{}.maxTimeMS", command.name),
            value.kind(),
            "[long, int, decimal, double",
        )
    })?;
    let millis =
        number.to_i64_exact().ok_or_else(|| err!(FailedToParse, "maxTimeMS has non-integral value"))?;
    if !(0..=i64::from(i32::MAX)).contains(&millis) {
        bail!(BadValue, "{millis} value for maxTimeMS is out of range [0, {}]", i32::MAX);
    }
    Ok((millis > 0).then(|| Duration::from_millis(millis as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::{Builder, FieldName};

    fn read_as(name: &str, is_replica_set: bool, build: impl FnOnce(&mut Builder)) -> Result<()> {
        let mut builder = Builder::new();
        builder.append(FieldName::trusted(name), "c");
        build(&mut builder);
        let document = builder.finish();
        let command = crate::commands::table::find(name).unwrap();
        Arguments::default().read(document.view(), command, &Topology { is_replica_set })
    }

    fn read(build: impl FnOnce(&mut Builder)) -> Result<()> {
        read_as("ping", false, build)
    }

    fn code(result: Result<()>) -> i32 {
        result.err().map_or(0, |error| error.code().number())
    }

    #[test]
    fn the_names_are_sorted() {
        assert!(is_generic("lsid") && is_generic("writeConcern") && !is_generic("documents"));
    }

    #[test]
    fn snapshots_are_for_reads_on_a_replica_set() {
        let snapshot = |builder: &mut Builder| {
            _ = builder.begin_document(c"readConcern").append(c"level", "snapshot").end()
        };
        assert_eq!(code(read_as("find", true, snapshot)), 0);
        assert_eq!(code(read_as("find", false, snapshot)), 123);
        assert_eq!(code(read_as("count", true, snapshot)), 72);
    }

    #[test]
    fn nonsense_in_general_arguments_is_refused() {
        assert_eq!(code(read(|b| _ = b.append(c"maxTimeMS", 5))), 0);
        assert_eq!(code(read(|b| _ = b.append(c"maxTimeMS", -1))), 2);
        assert_eq!(code(read(|b| _ = b.append(c"maxTimeMS", "1"))), 14);
        assert_eq!(code(read(|b| _ = b.append(c"lsid", 1))), 14);
        assert_eq!(code(read(|b| _ = b.append(c"txnNumber", 1i64))), 72);
        assert_eq!(code(read(|b| _ = b.append(c"apiStrict", true))), 4_886_600);
        assert_eq!(code(read(|b| _ = b.append(c"apiVersion", "2"))), 322);
        assert_eq!(code(read(|b| _ = b.append(c"startTransaction", true))), 72);
        assert_eq!(code(read(|b| _ = b.begin_document(c"writeConcern").append(c"w", 1).end())), 72);
        assert_eq!(code(read(|b| _ = b.begin_document(c"readConcern").append(c"level", "x").end())), 2);
        let preference = |mode: &str, seconds: i32| {
            code(read(|b| {
                let document = b.begin_document(c"$readPreference").append(c"mode", mode);
                document.append(c"maxStalenessSeconds", seconds).end();
            }))
        };
        assert_eq!(preference("x", 0), 2);
        assert_eq!(preference("secondary", 120), 0);
        assert_eq!(preference("secondary", 89), 160);
        assert_eq!(preference("secondary", -1), 2);
        assert_eq!(preference("primary", 90), 2);
    }
}
