//! `validate`: whether a collection's documents, indexes, counts, catalog and files agree.
//!
//! It changes nothing. What it finds wrong is in the reply, and in the log; `vellum --repair` mends it.

use crate::access::{Action, Needs};
use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use base::bson::{Builder, FieldName};
use base::{Result, err};
use database::validate::{Depth, IndexFindings};

/// The row of `validate`.
pub(crate) const VALIDATE: Command = Command::new(
    "validate",
    Kind::Read,
    "Checks that documents and indexes agree.",
    validate,
    Needs::Collection(Action::Validate),
);

fn validate(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let full = fields.flag("full")?.unwrap_or(false);
    // Documents are always read.
    fields.flag("scandata")?;
    // Any validation lets other clients go on.
    let background = fields.flag("background")?.unwrap_or(false);
    // The counts are always compared.
    let counts = fields.flag("enforceFastCount")?.unwrap_or(false);
    let metadata = fields.flag("metadata")?.unwrap_or(false);
    let conformance = fields.flag("checkBSONConformance")?.unwrap_or(false);
    for part in ["repair", "fixMultikey"] {
        fields.refuse_unless_default(part)?;
    }
    fields.finish()?;
    for (with, name) in [(full, "full"), (counts, "enforceFastCount")] {
        if background && with {
            return Err(err!(
                InvalidOptions,
                "Running the validate command with both {{ background: true }} and {{ {name}: true }} is not supported."
            ));
        }
    }
    if metadata && (background || full || counts || conformance) {
        return Err(err!(
            InvalidOptions,
            "Running the validate command with {{ metadata: true }} is not supported with any other options"
        ));
    }
    let depth = match (metadata, full) {
        (true, _) => Depth::Metadata,
        (false, false) => Depth::Data,
        (false, true) => Depth::Full,
    };
    let (_, context) = call.surroundings();
    let found = call.server.database.validate(&namespace, depth, &context)?;
    call.reply.append(c"ns", namespace.as_str());
    if depth != Depth::Metadata {
        call.reply.append(c"nInvalidDocuments", found.invalid as i64);
        call.reply.append(c"nNonCompliantDocuments", found.non_compliant as i64);
        call.reply
            .append_number(c"nrecords", found.records as i64)
            .append(c"nIndexes", found.indexes.len() as i32);
        call.reply.begin_document(c"keysPerIndex");
        for index in &found.indexes {
            call.reply.append_number(FieldName::known(&index.name), index.keys as i64);
        }
        call.reply.end();
    }
    call.reply.begin_document(c"indexDetails");
    for index in &found.indexes {
        details(call.reply, index);
    }
    call.reply.end().append(c"valid", found.is_valid()).append(c"repaired", false);
    strings(call.reply, "warnings", &found.warnings);
    strings(call.reply, "errors", &found.errors);
    for (name, entries) in [("extraIndexEntries", &found.extra), ("missingIndexEntries", &found.missing)] {
        call.reply.begin_array(FieldName::literal(name));
        for entry in entries {
            call.reply.push(entry.view());
        }
        call.reply.end();
    }
    call.reply.begin_array(c"corruptRecords");
    for record in &found.corrupt_records {
        call.reply.push(*record as i64);
    }
    call.reply.end();
    Ok(Answer::Done)
}

fn details(reply: &mut Builder, index: &IndexFindings) {
    reply.begin_document(FieldName::known(&index.name)).append(c"valid", index.errors.is_empty());
    if !index.errors.is_empty() {
        strings(reply, "errors", &index.errors);
    }
    reply.end();
}

fn strings(reply: &mut Builder, name: &str, texts: &[String]) {
    reply.begin_array(FieldName::known(name));
    for text in texts {
        reply.push(text);
    }
    reply.end();
}
