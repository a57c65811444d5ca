//! Privileges of pipeline stages that read or write.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Asked, refused, values};
use base::Result;
use base::bson::{Array, Element, Value};
use database::language::Resource as On;
use database::language::{Asker, Inputs, StageDefinition, first_stage, stages_of};

/// `aggregate`: requires the privileges of each stage, and find on the collection unless the first
/// stage brings its own documents.
pub(crate) fn aggregate(asked: &mut Asked<'_>) -> Result<()> {
    let collection = asked.value().and_then(|value| value.as_str()).unwrap_or("$cmd.aggregate");
    let pipelines: Vec<Array<'_>> =
        values(asked.body, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    if pipelines.is_empty() {
        return asked.need(Resource::Collection(asked.database, collection), Action::Find);
    }
    pipelines.into_iter().try_for_each(|pipeline| stages(asked, collection, pipeline))
}

/// Checks a pipeline over a collection of the request's database. The nesting limit of messages
/// bounds the recursion.
pub(super) fn stages(asked: &mut Asked<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    if !brings_own(pipeline) {
        asked.need(Resource::named(asked.database, Some(collection)), Action::Find)?;
    }
    inner(asked, collection, pipeline)
}

fn brings_own(pipeline: Array<'_>) -> bool {
    first_stage(pipeline).is_some_and(StageDefinition::brings_own_documents)
}

/// Checks the stages of a pipeline whose own collection is readable.
fn inner(asked: &mut Asked<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    stages_of(pipeline).try_for_each(|(definition, spec)| stage(asked, collection, definition, &spec))
}

fn stage(
    asked: &mut Asked<'_>,
    collection: &str,
    definition: &'static StageDefinition,
    spec: &Element<'_>,
) -> Result<()> {
    let user = asked.user();
    let is_user = |named: Value<'_>| {
        let field = |name: &str| named.as_document().and_then(|named| named.get(name)?.as_str());
        user.is_some_and(|user| field("user") == Some(&user.name) && field("db") == Some(&user.db))
    };
    let asker = Asker {
        database: asked.database,
        collection: Some(collection).filter(|name| *name != "$cmd.aggregate"),
        is: &is_user,
    };
    for right in definition.rights(spec.value(), &asker) {
        let actions = right.actions.iter().map(|name| Action::of_name(name).ok_or_else(refused));
        let actions = Actions::of(&actions.collect::<Result<Vec<_>>>()?);
        match right.on {
            On::AnyNormal => asked.need_all(Resource::AnyNormal, actions)?,
            On::Cluster => asked.need_all(Resource::Cluster, actions)?,
            On::Database => asked.need_all(Resource::Database(asked.database), actions)?,
            On::Collection => asked.need_all(Resource::named(asked.database, Some(collection)), actions)?,
            On::Target(named) => target(asked, named, actions)?,
        }
    }
    let Inputs { collections, pipelines } = definition.inputs(spec.value());
    if pipelines.is_empty() || pipelines.iter().any(|pipeline| !brings_own(*pipeline)) {
        for name in &collections {
            asked.need(place(asked.database, *name), Action::Find)?;
        }
    }
    let other = collections.first().and_then(|name| name.as_str()).unwrap_or(collection);
    pipelines.into_iter().try_for_each(|pipeline| inner(asked, other, pipeline))
}

/// Returns the collection of a stage, given as a string or as `{db, coll}`.
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
