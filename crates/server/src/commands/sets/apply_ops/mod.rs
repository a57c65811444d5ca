//! `applyOps`: applies oplog entries, as `mongorestore --oplogReplay` requests.
//!
//! Each operation is a commit of its own, as in MongoDB since 7.0, and is logged as the change that
//! it made. `results` reports an entry that fails, and the later entries are still applied. An
//! entry that cannot be applied at all ends the command.

mod checks;
mod command;
mod document;

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::bson::{Builder, Document, Value};
use base::{CompatibleWith, Error, ErrorCode, Result, err};

/// Position in the command table.
pub(crate) const APPLY_OPS: Row = Row::new(
    "applyOps",
    Kind::Write,
    "Applies entries of an oplog.",
    apply_ops,
    Requirements::By(requirements::apply_ops),
);

/// Options that apply to all operations of a command.
#[derive(Clone, Copy)]
struct Options {
    bypass_validation: bool,
    /// True if an update inserts a missing document.
    always_upsert: bool,
}

fn apply_ops(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let operations = checks::operations(call.request.body)?;
    fields.command_value();
    checks::check_options(&mut fields, call.request.body)?;
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    // The default is false since 8.1.
    let always_upsert = fields.boolean("alwaysUpsert")?;
    let always_upsert = always_upsert.unwrap_or(call.server.settings.compatible_with < CompatibleWith::V8_2);
    fields.finish()?;
    let outcome = apply(call, operations, Options { bypass_validation, always_upsert });
    call.acknowledge(None)?;
    match outcome {
        Ok(results) => {
            results.append_to(call.reply);
            Ok(HandlerStatus::Done)
        }
        Err(error) => Err(error),
    }
}

/// Outcomes of the applied operations, in order.
#[derive(Default)]
struct Results(Vec<bool>);

impl Results {
    fn append_to(&self, reply: &mut Builder) {
        reply.append(c"applied", self.0.len() as i32).begin_array(c"results");
        self.0.iter().for_each(|result| _ = reply.push(*result));
        reply.end();
    }

    /// Returns the command's error with the results in its information.
    fn fail(&self, error: Error) -> Error {
        let mut info = Builder::new();
        self.append_to(&mut info);
        error.with_info(info.finish())
    }
}

/// Applies operations in order.
///
/// Errors: UnknownError if some operations failed; the error of an operation that ended the
/// command.
fn apply(call: &mut Call<'_>, operations: Vec<Document<'_>>, options: Options) -> Result<Results> {
    let mut results = Results::default();
    for operation in operations {
        let kind = operation.get("op").and_then(|kind| kind.as_str()).unwrap_or_default();
        let applied = match kind {
            "n" => continue,
            "c" => command::apply(call, operation, options).map(|()| true),
            _ => {
                let database = call.server.database.clone();
                database.by_latest_catalog(|| document::apply(call, kind, operation, options))
            }
        };
        match applied {
            Ok(applied) => results.0.push(applied),
            Err(error) => {
                results.0.push(false);
                return Err(results.fail(error));
            }
        }
    }
    match results.0.contains(&false) {
        true => Err(results.fail(err!(UnknownError, "applyOps had one or more errors applying ops"))),
        false => Ok(results),
    }
}

/// Returns the collection UUID of an operation.
///
/// Errors: invalid UUID.
fn uuid(operation: Document<'_>) -> Result<Option<[u8; 16]>> {
    match operation.get("ui") {
        None => Ok(None),
        Some(Value::Binary { subtype: 4, bytes }) if bytes.len() == 16 => Ok(bytes.try_into().ok()),
        Some(Value::Binary { subtype: 4, .. }) => {
            Err(err!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype"))
        }
        Some(other) => Err(wrong_type("ui", other, "binData")),
    }
}

/// Returns the `o` field of an operation.
///
/// Errors: missing field; not a document.
fn object(operation: Document<'_>) -> Result<Document<'_>> {
    match operation.get("o") {
        Some(Value::Document(object)) => Ok(object),
        Some(other) => Err(wrong_type("o", other, "object")),
        None => Err(err!(IDLFailedToParse, "BSON field 'OplogEntryBase.o' is missing but a required field")),
    }
}

fn wrong_type(name: &str, found: Value<'_>, expected: &str) -> Error {
    Error::wrong_type(format_args!("OplogEntryBase.{name}"), found.kind(), expected)
}

/// Returns true if the command continues after this error. An interruption ends the command.
fn may_continue(error: &Error) -> bool {
    !matches!(
        error.code(),
        ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
    )
}
