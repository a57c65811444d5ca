//! Commands on the plan cache: index filters and cached plans.
//!
//! An index filter limits the indexes for queries of one shape. The cache keeps the winning plan of
//! a shape after a trial between indexes.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use base::bson::{Document, DocumentBuf, Value};
use base::{Result, bail, err};
use database::ShapeRequest;
use database::language::Collation;

/// The row of `planCacheClear`.
pub(crate) const CLEAR: Row =
    Row::admin("planCacheClear", clear_plans, Requirements::Collection(Action::PlanCacheWrite))
        .help("Clears the cached plans of a query shape or of a collection.");

fn clear_plans(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    // Values of other types are ignored, as in MongoDB.
    let query = fields.any("query")?.and_then(|value| value.as_document());
    let sort = fields.any("sort")?.and_then(|value| value.as_document());
    let projection = fields.any("projection")?.and_then(|value| value.as_document());
    let collation = match fields.peek("collation") {
        Some(Value::Document(_)) => fields.collation()?,
        _ => fields.any("collation").map(|_| None)?,
    };
    fields.ignore_rest();
    if call.server.database.collection(&namespace).is_none() {
        return Ok(HandlerStatus::Done);
    }
    if query.is_none() && (sort.is_some() || projection.is_some()) {
        bail!(BadValue, "sort, projection, and collation are not allowed without query");
    }
    let shape = Shape { query, sort, projection, collation };
    let scope = call.scope_to_read_here(&namespace, shape.collation.as_ref(), None)?;
    let request = shape.request();
    call.server.database.clear_cached_plans(&namespace, request.as_ref(), &scope.context)?;
    Ok(HandlerStatus::Done)
}

/// The row of `planCacheSetFilter`.
pub(crate) const SET_FILTER: Row =
    Row::admin("planCacheSetFilter", set_filter, Requirements::Collection(Action::PlanCacheIndexFilter))
        .help("Sets the index filter of a query shape.");

fn set_filter(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    let indexes = allowed_indexes(&mut fields)?;
    let shape = Shape::read(&mut fields)?;
    fields.ignore_rest();
    let request = shape.request().ok_or_else(|| err!(BadValue, "required field query missing"))?;
    let scope = call.scope_to_read_here(&namespace, shape.collation.as_ref(), None)?;
    call.server.database.set_index_filter(&namespace, &request, indexes, &scope.context)?;
    Ok(HandlerStatus::Done)
}

/// Takes the indexes of a new filter: key patterns and names.
///
/// Errors: BadValue.
fn allowed_indexes(fields: &mut Fields<'_>) -> Result<(Vec<DocumentBuf>, Vec<String>)> {
    let indexes = match fields.any("indexes")? {
        None => bail!(BadValue, "required field indexes missing"),
        Some(Value::Array(indexes)) => indexes,
        Some(_) => bail!(BadValue, "required field indexes must be an array"),
    };
    if indexes.is_empty() {
        bail!(BadValue, "required field indexes must contain at least one index");
    }
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    for index in indexes.iter() {
        match index {
            Value::Document(key) if key.is_empty() => {
                bail!(BadValue, "index specification cannot be empty");
            }
            Value::Document(key) => keys.push(key.to_owned()),
            Value::String(name) => names.push(name.to_string()),
            _ => bail!(BadValue, "each item in indexes must be an object or string"),
        }
    }
    Ok((keys, names))
}

/// The row of `planCacheClearFilters`.
pub(crate) const CLEAR_FILTERS: Row = Row::admin(
    "planCacheClearFilters",
    clear_filters,
    Requirements::Collection(Action::PlanCacheIndexFilter),
)
.help("Clears the index filter of a query shape or all filters of a collection.");

fn clear_filters(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    // MongoDB parses the shape only if the collection exists.
    if call.server.database.collection(&namespace).is_none() {
        return Ok(HandlerStatus::Done);
    }
    let shape = Shape::read(&mut fields)?;
    fields.ignore_rest();
    if shape.query.is_none()
        && (shape.sort.is_some() || shape.projection.is_some() || shape.collation.is_some())
    {
        bail!(BadValue, "sort, projection, or collation provided without query");
    }
    let scope = call.scope_to_read_here(&namespace, shape.collation.as_ref(), None)?;
    let request = shape.request();
    call.server.database.clear_index_filters(&namespace, request.as_ref(), &scope.context)?;
    Ok(HandlerStatus::Done)
}

/// The row of `planCacheListFilters`.
pub(crate) const LIST_FILTERS: Row =
    Row::read("planCacheListFilters", list_filters, Requirements::Collection(Action::PlanCacheIndexFilter))
        .help("Lists the index filters of a collection.");

fn list_filters(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let namespace = fields.namespace()?;
    fields.finish()?;
    let filters = call.server.database.index_filters(&namespace)?;
    call.reply.begin_array(c"filters");
    for filter in filters {
        call.reply.push_document().append(c"query", &filter.query);
        call.reply.append(c"sort", &filter.sort).append(c"projection", &filter.projection);
        if let Some(collation) = &filter.collation {
            call.reply.append(c"collation", collation);
        }
        call.reply.begin_array(c"indexes");
        filter.keys.iter().for_each(|key| _ = call.reply.push(key));
        filter.names.iter().for_each(|name| _ = call.reply.push(name.as_str()));
        call.reply.end().end();
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

/// Fields that identify a query shape.
struct Shape<'a> {
    query: Option<Document<'a>>,
    sort: Option<Document<'a>>,
    projection: Option<Document<'a>>,
    collation: Option<Collation>,
}

impl<'a> Shape<'a> {
    /// Takes the fields of a shape.
    ///
    /// Errors: BadValue for fields of other types and for an empty collation; an invalid collation.
    fn read(fields: &mut Fields<'a>) -> Result<Shape<'a>> {
        let query = document(fields, "required field query")?;
        let sort = document(fields, "optional field sort")?;
        let projection = document(fields, "optional field projection")?;
        let collation = match document(fields, "optional field collation")? {
            None => None,
            Some(collation) if collation.is_empty() => {
                bail!(BadValue, "optional field collation cannot be an empty object");
            }
            Some(collation) => Some(Collation::parse(collation, "collation")?),
        };
        Ok(Shape { query, sort, projection, collation })
    }

    fn request(&self) -> Option<ShapeRequest<'a>> {
        Some(ShapeRequest {
            query: self.query?,
            sort: self.sort.unwrap_or(Document::EMPTY),
            projection: self.projection.unwrap_or(Document::EMPTY),
        })
    }
}

/// Takes a field that must be a document. The last word of `description` is the field's name.
fn document<'a>(fields: &mut Fields<'a>, description: &str) -> Result<Option<Document<'a>>> {
    let name = description.rsplit(' ').next().unwrap_or(description);
    match fields.any(name)? {
        None => Ok(None),
        Some(Value::Document(document)) => Ok(Some(document)),
        // MongoDB reads an array as a document with numeric field names.
        Some(Value::Array(array)) => Ok(Some(array.as_document())),
        Some(_) => Err(err!(BadValue, "{description} must be an object")),
    }
}
