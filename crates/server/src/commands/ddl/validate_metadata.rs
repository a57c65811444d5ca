//! `validateDBMetadata`: checks that views and indexes use only a version of the stable API.

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::commands::crud::aggregate;
use crate::protocol::fields::Fields;
use base::bson::Array;
use base::{ErrorCode, Result, bail};
use database::catalog::collection::Collection;

/// Maximum bytes of errors in a reply. Above it the reply reports only that errors are missing.
const ERRORS_MAX: usize = 15 * 1024 * 1024;

/// The row of `validateDBMetadata`.
pub(crate) const VALIDATE_METADATA: Row = Row::new(
    "validateDBMetadata",
    Kind::Read,
    "Lists views and indexes that a version of the stable API does not support.",
    validate_metadata,
    Requirements::By(requirements::validate_metadata),
);

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
