//! Privileges of pipeline stages that read or write.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Authorizer, refused, values};
use base::Result;
use base::bson::{Array, Element, Value};
use database::language::Resource as On;
use database::language::{Inputs, Requester, StageDefinition, first_stage, stages_of};

/// `aggregate`: requires the privileges of each stage, and find on the collection unless the first
/// stage brings its own documents.
pub(crate) fn aggregate(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let collection = authorizer.value().and_then(|value| value.as_str()).unwrap_or("$cmd.aggregate");
    let pipelines: Vec<Array<'_>> =
        values(authorizer.body, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    if pipelines.is_empty() {
        return authorizer.require(Resource::Collection(authorizer.database, collection), Action::Find);
    }
    pipelines.into_iter().try_for_each(|pipeline| stages(authorizer, collection, pipeline))
}

/// Checks a pipeline over a collection of the request's database. The nesting limit of messages
/// bounds the recursion.
pub(super) fn stages(authorizer: &mut Authorizer<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    if !generates_documents(pipeline) {
        authorizer.require(Resource::named(authorizer.database, Some(collection)), Action::Find)?;
    }
    inner(authorizer, collection, pipeline)
}

fn generates_documents(pipeline: Array<'_>) -> bool {
    first_stage(pipeline).is_some_and(StageDefinition::generates_documents)
}

/// Checks the stages of a pipeline whose own collection is readable.
fn inner(authorizer: &mut Authorizer<'_>, collection: &str, pipeline: Array<'_>) -> Result<()> {
    stages_of(pipeline).try_for_each(|(definition, spec)| stage(authorizer, collection, definition, &spec))
}

fn stage(
    authorizer: &mut Authorizer<'_>,
    collection: &str,
    definition: &'static StageDefinition,
    spec: &Element<'_>,
) -> Result<()> {
    let user = authorizer.user();
    let is_user = |named: Value<'_>| {
        let field = |name: &str| named.as_document().and_then(|named| named.get(name)?.as_str());
        user.is_some_and(|user| field("user") == Some(&user.name) && field("db") == Some(&user.db))
    };
    let requester = Requester {
        database: authorizer.database,
        collection: Some(collection).filter(|name| *name != "$cmd.aggregate"),
        is: &is_user,
    };
    for right in definition.rights(spec.value(), &requester) {
        let actions = right.actions.iter().map(|name| Action::of_name(name).ok_or_else(refused));
        let actions = Actions::of(&actions.collect::<Result<Vec<_>>>()?);
        match right.on {
            On::AnyNormal => authorizer.require_all(Resource::AnyNormal, actions)?,
            On::Cluster => authorizer.require_all(Resource::Cluster, actions)?,
            On::Database => authorizer.require_all(Resource::Database(authorizer.database), actions)?,
            On::Collection => {
                authorizer.require_all(Resource::named(authorizer.database, Some(collection)), actions)?
            }
            On::Target(named) => target(authorizer, named, actions)?,
        }
    }
    let Inputs { collections, pipelines } = definition.inputs(spec.value());
    if pipelines.is_empty() || pipelines.iter().any(|pipeline| !generates_documents(*pipeline)) {
        for name in &collections {
            authorizer.require(resource(authorizer.database, *name), Action::Find)?;
        }
    }
    let other = collections.first().and_then(|name| name.as_str()).unwrap_or(collection);
    pipelines.into_iter().try_for_each(|pipeline| inner(authorizer, other, pipeline))
}

/// Returns the collection of a stage, given as a string or as `{db, coll}`.
fn resource<'v>(database: &'v str, named: Value<'v>) -> Resource<'v> {
    match named {
        Value::Document(named) => {
            let text = |field: &str| values(named, field).filter_map(|value| value.as_str()).last();
            Resource::named(text("db").unwrap_or(database), text("coll"))
        }
        named => Resource::named(database, named.as_str()),
    }
}

fn target(authorizer: &mut Authorizer<'_>, named: Value<'_>, actions: Actions) -> Result<()> {
    let actions = match authorizer.has("bypassDocumentValidation") {
        true => actions.and(Actions::one(Action::BypassDocumentValidation)),
        false => actions,
    };
    authorizer.require_all(resource(authorizer.database, named), actions)
}
