//! Checks of an applyOps command before its first operation is applied.

use crate::protocol::fields::Fields;
use base::bson::{Document, Element, Type, Value};
use base::{Error, Result, bail, err};

/// Name of a field that MongoDB no longer accepts.
const PRE_CONDITION: &str = "preCondition";

/// Maximum nesting depth of applyOps.
const DEPTH_MAX: usize = 10;

/// Returns the operations of a command or of a nested applyOps.
///
/// Errors: TypeMismatch if the operations are not an array of documents; FailedToParse if the
/// nesting is too deep; NoSuchKey for an operation without its kind; IllegalOperation for an
/// operation without a namespace.
pub(super) fn operations(command: Document<'_>) -> Result<Vec<Document<'_>>> {
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
    let Value::Array(operations) = first.value() else { return Err(wrong_type(first, Type::Array)) };
    let document = |element: Element<'_>| wrong_type(element, Type::Document);
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

fn wrong_type(element: Element<'_>, expected: Type) -> Error {
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
pub(super) fn check_options(fields: &mut Fields<'_>, command: Document<'_>) -> Result<()> {
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
