//! `applyOps`: checks and applies oplog entries, as `mongorestore --oplogReplay` requests.
//!
//! Each operation is a commit of its own, as in MongoDB since 7.0, and is logged as the change that
//! it made. `results` reports an entry that fails, and the later entries are still applied. An
//! entry that cannot be applied at all ends the command. After a wait the command continues with the
//! entry that waited.

mod entry;

use crate::access::{Requirements, requirements};
use crate::call::progress::HandlerState;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::crud::write_batch::is_suspended;
use crate::protocol::fields::Fields;
use base::bson::{Builder, Document, Element, Type, Value};
use base::{CompatibleWith, Error, ErrorCode, Result, bail, err};

/// Position in the command table.
pub(crate) const APPLY_OPS: Row =
    Row::write("applyOps", apply_ops, Requirements::By(requirements::apply_ops))
        .help("Applies entries of an oplog.")
        .restarts();

/// Options that apply to all operations of a command.
#[derive(Clone, Copy)]
struct Options {
    bypass_validation: bool,
    /// True if an update inserts a missing document.
    always_upsert: bool,
}

fn apply_ops(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let operations = operations(call.request.body)?;
    fields.command_value();
    check_options(&mut fields, call.request.body)?;
    let bypass_validation = fields.flag("bypassDocumentValidation")?.unwrap_or(false);
    // The default is false since 8.1.
    let always_upsert = fields.boolean("alwaysUpsert")?;
    let always_upsert = always_upsert.unwrap_or(call.server.settings.compatible_with < CompatibleWith::V8_2);
    fields.finish()?;
    let outcome = apply(call, operations, Options { bypass_validation, always_upsert });
    if is_suspended(&outcome) {
        return outcome.map(|_| HandlerStatus::Done);
    }
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

/// Progress of a command whose operation waits.
#[derive(Default)]
struct Applying {
    results: Results,
    /// Position of the operation.
    at: usize,
    /// The state of its handler, if it is a command.
    handler_state: Option<HandlerState>,
}

/// Applies operations in order.
///
/// Errors: UnknownError if some operations failed; the error of an operation that ended the
/// command; LockBusy for an operation that waits.
fn apply(call: &mut Call<'_>, operations: Vec<Document<'_>>, options: Options) -> Result<Results> {
    let kept = call.progress.take_state().and_then(|state| state.downcast::<Applying>().ok());
    let Applying { mut results, at, handler_state } = kept.map(|kept| *kept).unwrap_or_default();
    if let Some(suspended) = &mut call.progress.suspended {
        suspended.handler_state = handler_state;
    }
    for (at, operation) in operations.into_iter().enumerate().skip(at) {
        call.may_suspend.set(true);
        let kind = operation.get("op").and_then(|kind| kind.as_str()).unwrap_or_default();
        let applied = match kind {
            "n" => continue,
            "c" => entry::apply_command(call, operation, options).map(|()| true),
            _ => {
                let database = call.server.database.clone();
                database.by_latest_catalog(|| entry::apply_document(call, kind, operation, options))
            }
        };
        match applied {
            Ok(applied) => results.0.push(applied),
            Err(error) if error.code() == ErrorCode::LockBusy => {
                let handler_state = call.progress.take_state();
                return Err(call.keep(Applying { results, at, handler_state }, error));
            }
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
        None => Err(Error::missing_field("OplogEntryBase.o")),
    }
}

fn wrong_type(name: &str, found: Value<'_>, expected: &str) -> Error {
    Error::wrong_type(format_args!("OplogEntryBase.{name}"), found.kind(), expected)
}

/// Returns true if the command continues after this error. An interruption ends the command, and a wait suspends it.
fn may_continue(error: &Error) -> bool {
    !matches!(
        error.code(),
        ErrorCode::LockBusy
            | ErrorCode::MaxTimeMSExpired
            | ErrorCode::Interrupted
            | ErrorCode::InterruptedAtShutdown
            | ErrorCode::InterruptedDueToReplStateChange
    )
}

/// Name of a field that MongoDB no longer accepts.
const PRE_CONDITION: &str = "preCondition";

/// Maximum nesting depth of applyOps.
const DEPTH_MAX: usize = 10;

/// Returns the operations of a command or of a nested applyOps.
///
/// Errors: TypeMismatch if the operations are not an array of documents; FailedToParse if the
/// nesting is too deep; NoSuchKey for an operation without its kind; IllegalOperation for an
/// operation without a namespace.
fn operations(command: Document<'_>) -> Result<Vec<Document<'_>>> {
    check_nesting(command, 0)?;
    let operations = documents(command)?;
    for (at, operation) in operations.iter().enumerate() {
        check_operation(*operation, at)?;
    }
    if operations.len() > 1 && operations.iter().any(|operation| is_command(*operation, "dropDatabase")) {
        bail!(6275900, "dropDatabase in an applyOps must be the only entry");
    }
    Ok(operations)
}

fn documents(command: Document<'_>) -> Result<Vec<Document<'_>>> {
    let Some(first) = command.first() else { return Ok(Vec::new()) };
    let Value::Array(operations) = first.value() else { return Err(wrong_element_type(first, Type::Array)) };
    let document = |element: Element<'_>| wrong_element_type(element, Type::Document);
    operations
        .elements()
        .map(|element| element.value().as_document().ok_or_else(|| document(element)))
        .collect()
}

fn check_nesting(command: Document<'_>, depth: usize) -> Result<()> {
    for operation in documents(command)? {
        if depth > 0 && is_command(operation, "dropDatabase") {
            bail!(9585500, "dropDatabase is not allowed inside nested applyOps");
        }
        if is_command(operation, "applyOps")
            && let Some(nested) = operation.get("o").and_then(|object| object.as_document())
        {
            if depth >= DEPTH_MAX {
                bail!(FailedToParse, "Too many nested applyOps");
            }
            check_nesting(nested, depth + 1)?;
        }
    }
    Ok(())
}

/// Returns true if an operation is the command of this name.
fn is_command(operation: Document<'_>, name: &str) -> bool {
    let object = operation.get("o").and_then(|object| object.as_document());
    operation.get("op").and_then(|kind| kind.as_str()) == Some("c")
        && object.and_then(|object| object.first()).is_some_and(|first| first.name() == name)
}

fn check_operation(operation: Document<'_>, at: usize) -> Result<()> {
    let kind = match operation.get("op") {
        None => bail!(NoSuchKey, "op does not contain required \"op\" field: {at}"),
        Some(Value::String(kind)) => kind,
        Some(_) => bail!(TypeMismatch, "\"op\" field is not a string: {at}"),
    };
    if kind.is_empty() {
        bail!(IllegalOperation, "\"op\" field value cannot be empty: {at}");
    }
    let namespace = match operation.get("ns") {
        None => bail!(IllegalOperation, "op does not contain required \"ns\" field: {at}"),
        Some(Value::String(namespace)) => namespace,
        Some(_) => bail!(IllegalOperation, "\"ns\" field is not a string: {at}"),
    };
    if namespace.contains('\0') {
        bail!(IllegalOperation, "namespaces cannot have embedded null characters");
    }
    if namespace.is_empty() && kind != "n" {
        bail!(IllegalOperation, "\"ns\" field value cannot be empty when op type is not 'n': {at}");
    }
    Ok(())
}

fn wrong_element_type(element: Element<'_>, expected: Type) -> Error {
    err!(
        TypeMismatch,
        "\"{}\" had the wrong type. Expected {}, found {}",
        element.name(),
        expected.alias(),
        element.kind().alias()
    )
}

/// Takes the options of the command.
///
/// Errors: 6711600 for `preCondition`; BadValue, 31056 or 31240 for fields of a transaction's oplog
/// entry, which clients may not apply; FailedToParse for an unknown mode; NotImplemented for a mode
/// of replication members.
fn check_options(fields: &mut Fields<'_>, command: Document<'_>) -> Result<()> {
    if fields.any(PRE_CONDITION)?.is_some() {
        let error = err!(6711600, "applyOps command no longer supports the '{PRE_CONDITION}' option");
        return Err(error.context(&format!("Failed to parse applyOps command: {command}")));
    }
    if fields.boolean("prepare")?.unwrap_or(false) {
        bail!(BadValue, "applyOps command can't have 'prepare' field");
    }
    if fields.boolean("partialTxn")?.unwrap_or(false) {
        bail!(31056, "applyOps command can't have 'partialTxn' field.");
    }
    if fields.integer("count")?.is_some() {
        bail!(31240, "applyOps command can't have 'count' field.");
    }
    // Since MongoDB 7.0 no application is atomic, so the value has no effect.
    fields.any("allowAtomic")?;
    match fields.string("oplogApplicationMode")? {
        None | Some("ApplyOps") => Ok(()),
        Some(
            mode @ ("InitialSync" | "Recovering" | "Secondary" | "UnstableRecovering" | "StableRecovering"),
        ) => Err(err!(NotImplemented, "applyOps with oplogApplicationMode '{mode}' is not implemented")),
        Some(mode) => Err(err!(
            FailedToParse,
            "Could not parse oplogApplicationMode :: caused by :: Unknown oplog application mode: {mode}"
        )),
    }
}
