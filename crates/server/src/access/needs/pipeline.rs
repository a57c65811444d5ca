//! What the stages of a pipeline need, wherever in it they read or write.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Asked, is_set, values};
use base::Result;
use base::bson::{Array, Document, Element, Value};

/// Stages that bring documents of their own, so that a pipeline which begins with one reads no collection.
// tidy: sorted
const SOURCES: [&str; 13] = [
    "$changeStream",
    "$collStats",
    "$currentOp",
    "$documents",
    "$indexStats",
    "$listClusterCatalog",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSearchIndexes",
    "$listSessions",
    "$planCacheStats",
    "$queryStats",
    "$shardedDataDistribution",
];

/// `aggregate`.
pub(crate) fn aggregate(asked: &mut Asked<'_>) -> Result<()> {
    let collection = asked.value().and_then(|value| value.as_str()).unwrap_or("$cmd.aggregate");
    let pipelines: Vec<Array<'_>> =
        values(asked.body, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    if pipelines.is_empty() {
        return asked.need(Resource::Collection(asked.database, collection), Action::Find);
    }
    pipelines.into_iter().try_for_each(|pipeline| stages(asked, collection, pipeline))
}

/// What a pipeline over a collection of the request's database needs. How deep they nest is bounded by how deep
/// messages do.
pub(super) fn stages(asked: &mut Asked<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    if !brings_own(pipeline) {
        asked.need(Resource::named(asked.database, Some(collection)), Action::Find)?;
    }
    for document in pipeline.iter().filter_map(|stage| stage.as_document()) {
        for element in document {
            stage(asked, collection, &element)?;
        }
    }
    Ok(())
}

fn brings_own(pipeline: Array<'_>) -> bool {
    let first = pipeline.iter().next().and_then(|stage| stage.as_document()?.first());
    first.is_some_and(|stage| SOURCES.contains(&stage.name()))
}

fn stage(asked: &mut Asked<'_>, collection: &str, element: &Element<'_>) -> Result<()> {
    let own = Resource::named(asked.database, Some(collection));
    let options = element.value().as_document().unwrap_or(Document::EMPTY);
    match element.name() {
        "$changeStream" => change_stream(asked, collection, options),
        "$collStats" => asked.need(own, Action::CollStats),
        "$currentOp" if is_set(options, "allUsers") => asked.need(Resource::Cluster, Action::Inprog),
        "$facet" => options
            .iter()
            .filter_map(|part| part.value().as_array())
            .try_for_each(|part| inner(asked, collection, part)),
        "$graphLookup" => other_collections(asked, options, "from"),
        "$indexStats" => asked.need(own, Action::IndexStats),
        "$listClusterCatalog" => asked.need(Resource::Cluster, Action::ListDatabases),
        "$listLocalSessions" | "$listSessions" => sessions(asked, options),
        "$listSampledQueries" => asked.need(Resource::Cluster, Action::ListSampledQueries),
        "$listSearchIndexes" => asked.need(own, Action::ListSearchIndexes),
        "$lookup" => joined(asked, collection, options, "from"),
        "$merge" => merge(asked, element.value()),
        "$out" => {
            let actions = Actions::of(&[Action::Insert, Action::Remove]);
            target(asked, element.value(), actions)
        }
        "$planCacheStats" => asked.need(own, Action::PlanCacheRead),
        "$queryStats" => asked.need(Resource::Cluster, Action::QueryStatsRead),
        "$shardedDataDistribution" => asked.need(Resource::Cluster, Action::ShardedDataDistribution),
        "$unionWith" => match element.value() {
            Value::String(name) => asked.need(Resource::named(asked.database, Some(name)), Action::Find),
            _ => joined(asked, collection, options, "coll"),
        },
        _ => Ok(()),
    }
}

/// The stages of a part of `$facet`, which read what came before it.
fn inner(asked: &mut Asked<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    for document in pipeline.iter().filter_map(|stage| stage.as_document()) {
        document.iter().try_for_each(|element| stage(asked, collection, &element))?;
    }
    Ok(())
}

fn other_collections(asked: &mut Asked<'_>, options: Document<'_>, field: &str) -> Result<()> {
    for name in values(options, field) {
        asked.need(place(asked.database, name), Action::Find)?;
    }
    Ok(())
}

/// `$lookup` and `$unionWith`: the other collection, unless the pipeline brings its own documents, and the pipeline.
fn joined(asked: &mut Asked<'_>, own: &str, options: Document<'_>, field: &str) -> Result<()> {
    let pipelines: Vec<Array<'_>> =
        values(options, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    let reads = pipelines.is_empty() || pipelines.iter().any(|pipeline| !brings_own(*pipeline));
    if reads {
        other_collections(asked, options, field)?;
    }
    let other = options.get(field).and_then(|name| name.as_str()).unwrap_or(own);
    pipelines.into_iter().try_for_each(|pipeline| inner(asked, other, pipeline))
}

/// The collection that a stage names as text or as `{db, coll}`.
fn place<'v>(database: &'v str, named: Value<'v>) -> Resource<'v> {
    match named {
        Value::Document(named) => {
            let text = |field: &str| values(named, field).filter_map(|value| value.as_str()).last();
            Resource::named(text("db").unwrap_or(database), text("coll"))
        }
        named => Resource::named(database, named.as_str()),
    }
}

fn target(asked: &mut Asked<'_>, named: Value<'_>, actions: Actions) -> Result<()> {
    let actions = match asked.has("bypassDocumentValidation") {
        true => actions.and(Actions::one(Action::BypassDocumentValidation)),
        false => actions,
    };
    asked.need_all(place(asked.database, named), actions)
}

/// What `$merge` does to documents that are there, and to those that aren't.
fn merge(asked: &mut Asked<'_>, specification: Value<'_>) -> Result<()> {
    let both = Actions::of(&[Action::Insert, Action::Update]);
    let Value::Document(options) = specification else { return target(asked, specification, both) };
    let text = |name: &str| options.get(name).and_then(|mode| mode.as_str());
    let updates = !matches!(text("whenMatched"), Some("keepExisting" | "fail"));
    let inserts = !matches!(text("whenNotMatched"), Some("discard" | "fail"));
    let actions = match (updates, inserts) {
        (true, false) => Actions::one(Action::Update),
        (false, true) => Actions::one(Action::Insert),
        _ => both,
    };
    values(options, "into").try_for_each(|into| target(asked, into, actions))
}

/// Streams need to read what they watch: a collection, a database, or all of them.
fn change_stream(asked: &mut Asked<'_>, collection: &str, options: Document<'_>) -> Result<()> {
    let resource = if is_set(options, "allChangesForCluster") {
        Resource::AnyNormal
    } else if collection == "$cmd.aggregate" {
        Resource::Database(asked.database)
    } else {
        Resource::named(asked.database, Some(collection))
    };
    asked.need_all(resource, Actions::of(&[Action::ChangeStream, Action::Find]))
}

/// Sessions of others need a right; one's own don't.
fn sessions(asked: &mut Asked<'_>, options: Document<'_>) -> Result<()> {
    let is_own = |user: Value<'_>| {
        let field = |name: &str| user.as_document().and_then(|user| user.get(name)?.as_str());
        asked.user().is_some_and(|own| {
            field("user") == Some(own.name.as_str()) && field("db") == Some(own.db.as_str())
        })
    };
    let mut users = values(options, "users").filter_map(|users| users.as_array());
    let only_own = users.all(|users| users.iter().all(is_own));
    match is_set(options, "allUsers") || !only_own {
        true => asked.need(Resource::Cluster, Action::ListSessions),
        false => Ok(()),
    }
}
