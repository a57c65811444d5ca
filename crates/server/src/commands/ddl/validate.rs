//! `validate` checks that documents, indexes, counts, catalog and files of a collection agree. `validateDBMetadata`
//! checks that views and indexes use only a version of the stable API.
//!
//! Both commands change nothing, even if a repair is requested. Problems appear in the reply and in the log.
//! `vellum --repair` repairs them.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::crud::aggregate;
use crate::protocol::fields::Fields;
use base::bson::{Array, Builder, FieldName, Value};
use base::{ErrorCode, Result, bail};
use database::catalog::collection::Collection;
use database::validate::{Depth, IndexFindings};

/// The row of `validate`.
pub(crate) const VALIDATE: Row = Row::read("validate", validate, Requirements::Collection(Action::Validate))
    .help("Checks the consistency of a collection and its indexes.");

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
    let context = call.context(&call.operation());
    let mut validation = call.server.database.validate(&namespace, depth, &context)?;
    call.reply.append(c"ns", namespace.as_str());
    let uuid = validation.uuid.as_ref().map(|uuid| Value::Binary { subtype: 4, bytes: uuid });
    call.reply.append_optional(c"uuid", uuid);
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

/// Maximum bytes of errors in a reply. Above it the reply reports only that errors are missing.
const ERRORS_MAX: usize = 15 * 1024 * 1024;

/// The row of `validateDBMetadata`.
pub(crate) const VALIDATE_METADATA: Row =
    Row::read("validateDBMetadata", validate_metadata, Requirements::By(requirements::validate_metadata))
        .help("Lists views and indexes that a version of the stable API does not support.");

fn validate_metadata(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let database = fields.string("db")?;
    let name = fields.string("collection")?;
    let parameters = fields.required("apiParameters", Fields::document)?;
    fields.finish()?;
    let mut parameters = Fields::of_document("validateDBMetadata.apiParameters", parameters);
    let version = parameters.required("version", Fields::string)?;
    let strict = parameters.strict_boolean("strict")?.unwrap_or(false);
    // Version 1 has no deprecated features.
    parameters.strict_boolean("deprecationErrors")?;
    parameters.finish()?;
    if let Some(name) = name
        && (name.is_empty() || name.starts_with('.') || name.contains('\0'))
    {
        bail!(InvalidNamespace, "Invalid collection name specified '{name}'");
    }
    let catalog = call.server.database.catalog();
    let reply = &mut *call.reply;
    reply.begin_array(c"apiVersionErrors");
    let requested = catalog.databases().filter(|known| database.is_none_or(|it| it == *known));
    let collections = requested.flat_map(|database| catalog.collections(database));
    let collections =
        collections.filter(|collection| name.is_none_or(|it| it == collection.namespace.collection()));
    let errors = collections.flat_map(|collection| {
        errors_of(collection, strict && version == "1").into_iter().map(move |why| (collection, why))
    });
    let begin = reply.len();
    let mut has_more = false;
    for (collection, why) in errors {
        has_more = reply.len() - begin > ERRORS_MAX;
        if has_more {
            break;
        }
        reply.push_document().append(c"ns", collection.namespace.as_str());
        reply.append(c"code", ErrorCode::APIStrictError.number()).append(c"codeName", "APIStrictError");
        reply.append(c"errmsg", &why).end();
    }
    reply.end();
    if has_more {
        reply.append(c"hasMoreErrors", true);
    }
    Ok(HandlerStatus::Done)
}

/// Returns the features of a collection or view that version 1 of the stable API lacks.
fn errors_of(collection: &Collection, strict: bool) -> Vec<String> {
    if !strict {
        return Vec::new();
    }
    if let Some(view) = &collection.options.view {
        let stages = view.pipeline.view().as_array().unwrap_or(Array::EMPTY);
        return aggregate::check_stable_api(stages)
            .err()
            .map(|error| error.message().to_string())
            .into_iter()
            .collect();
    }
    let indexes = collection.data.iter().flat_map(|data| &data.indexes);
    let unstable = indexes.filter(|index| index.spec.sparse || index.spec.text.is_some());
    unstable
        .map(|index| format!("The index with name {} is not allowed in API version 1.", index.spec.name))
        .collect()
}
