//! `validate`: checks that documents, indexes, counts, catalog and files of a collection agree.
//!
//! The command changes nothing, even if a repair is requested. Problems appear in the reply and in
//! the log. `vellum --repair` repairs them.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use base::bson::{Builder, FieldName, Value};
use base::{Result, bail};
use database::validate::{Depth, IndexFindings};

/// The row of `validate`.
pub(crate) const VALIDATE: Row = Row::new(
    "validate",
    Kind::Read,
    "Checks the consistency of a collection and its indexes.",
    validate,
    Requirements::Collection(Action::Validate),
);

fn validate(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.existing_namespace()?;
    // MongoDB checks only the truth of these options and ignores unknown options. Documents are
    // always read, and counts are always compared. No validation blocks other clients.
    fields.truthy("scandata")?;
    let [full, background] = [fields.truthy("full")?, fields.truthy("background")?];
    let counts = fields.truthy("enforceFastCount")?;
    let [metadata, conformance] = [fields.truthy("metadata")?, fields.truthy("checkBSONConformance")?];
    let [repair, fix_multikey] = [fields.truthy("repair")?, fields.truthy("fixMultikey")?];
    fields.ignore_rest();
    let is_set = call.server.is_replica_set();
    if background && !is_set {
        bail!(CommandNotSupported, "Background validation needs a replica set");
    }
    if (repair || fix_multikey) && is_set {
        bail!(InvalidOptions, "A repair is possible only on a standalone");
    }
    for (with, name) in [(full, "full"), (counts, "enforceFastCount")] {
        if background && with {
            bail!(
                InvalidOptions,
                "Running the validate command with both {{ background: true }} and {{ {name}: true }} is not supported."
            );
        }
    }
    if metadata && (background || full || counts || conformance || repair) {
        bail!(
            InvalidOptions,
            "Running the validate command with {{ metadata: true }} is not supported with any other options"
        );
    }
    let depth = match (metadata, full) {
        (true, _) => Depth::Metadata,
        (false, false) => Depth::Data,
        (false, true) => Depth::Full,
    };
    let (_, context) = call.surroundings();
    let mut validation = call.server.database.validate(&namespace, depth, &context)?;
    call.reply.append(c"ns", namespace.as_str());
    call.reply.append(c"uuid", Value::Binary { subtype: 4, bytes: &validation.uuid });
    if depth != Depth::Metadata {
        call.reply.append_number(c"nInvalidDocuments", validation.invalid as i64);
        call.reply.append_number(c"nNonCompliantDocuments", validation.non_compliant as i64);
        call.reply.append_number(c"nrecords", validation.records as i64);
    }
    call.reply.append(c"nIndexes", validation.indexes.len() as i32);
    if depth != Depth::Metadata {
        call.reply.begin_document(c"keysPerIndex");
        for index in &validation.indexes {
            call.reply.append_number(FieldName::trusted(&index.name), index.keys as i64);
        }
        call.reply.end();
    }
    call.reply.begin_document(c"indexDetails");
    for index in &validation.indexes {
        details(call.reply, index);
    }
    call.reply.end().append(c"valid", validation.is_valid());
    let mode = match (repair, fix_multikey) {
        (true, _) => "FixErrors",
        (false, true) => "AdjustMultikey",
        (false, false) => "None",
    };
    call.reply.append(c"repaired", false).append(c"repairMode", mode);
    if (repair || fix_multikey) && !validation.is_valid() {
        validation
            .warnings
            .push("A running server cannot repair data: stop it and use vellum --repair".to_string());
    }
    strings(call.reply, "warnings", &validation.warnings);
    strings(call.reply, "errors", &validation.errors);
    for (name, entries) in
        [("extraIndexEntries", &validation.extra), ("missingIndexEntries", &validation.missing)]
    {
        call.reply.begin_array(FieldName::literal(name));
        for entry in entries {
            call.reply.push(entry.view());
        }
        call.reply.end();
    }
    call.reply.begin_array(c"corruptRecords");
    for record in &validation.corrupt_records {
        call.reply.push(*record as i64);
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

fn details(reply: &mut Builder, index: &IndexFindings) {
    reply.begin_document(FieldName::trusted(&index.name)).append(c"valid", index.errors.is_empty());
    reply.append(c"spec", &index.spec);
    if !index.errors.is_empty() {
        strings(reply, "errors", &index.errors);
    }
    reply.end();
}

fn strings(reply: &mut Builder, name: &str, texts: &[String]) {
    reply.begin_array(FieldName::trusted(name));
    for text in texts {
        reply.push(text);
    }
    reply.end();
}
