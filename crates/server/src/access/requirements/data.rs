//! Privileges for commands that read and write documents, for pipelines, and for changes of collections and views.

use super::super::action::{Action, Actions};
use super::super::resource::Resource;
use super::{Authorizer, is_set, refused, values};
use base::bson::{Array, Document, Element, Value};
use base::{Result, bail};
use database::language::{Inputs, Requester, Resource as On, StageDefinition, first_stage, stages_of};

const BYPASS: &str = "bypassDocumentValidation";

/// Adds the action to bypass validation if the request has the flag.
pub(super) fn with_bypass(authorizer: &Authorizer<'_>, actions: Actions) -> Actions {
    match authorizer.has(BYPASS) {
        true => actions.and(Actions::one(Action::BypassDocumentValidation)),
        false => actions,
    }
}

/// `insert`: requires insert, and the action to bypass validation if the request has the flag.
pub(crate) fn insert(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let actions = with_bypass(authorizer, Actions::one(Action::Insert));
    authorizer.require_all(authorizer.collection(), actions)
}

/// `update`: also requires insert if a statement has `upsert`.
pub(crate) fn update(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let mut actions = with_bypass(authorizer, Actions::one(Action::Update));
    if authorizer.documents("updates").iter().any(|statement| is_set(*statement, "upsert")) {
        actions = actions.and(Actions::one(Action::Insert));
    }
    authorizer.require_all(authorizer.collection(), actions)
}

/// `findAndModify`: requires find, and the actions of `remove`, `update` and `upsert`.
pub(crate) fn find_and_modify(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let mut actions = with_bypass(authorizer, Actions::one(Action::Find));
    if authorizer.has("remove") {
        actions = actions.and(Actions::one(Action::Remove));
    }
    if authorizer.body.get("update").is_some() {
        actions = actions.and(Actions::one(Action::Update));
    }
    if authorizer.has("upsert") {
        actions = actions.and(Actions::one(Action::Insert));
    }
    authorizer.require_all(authorizer.collection(), actions)
}

/// `bulkWrite`: requires on each namespace the actions of its operations.
pub(crate) fn bulk_write(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let namespaces = authorizer.documents("nsInfo");
    let mut actions = vec![Actions::NONE; namespaces.len()];
    for operation in authorizer.documents("ops") {
        let Some(first) = operation.first() else { continue };
        // The same conversion as the handler's, which rounds.
        let index = first.value().as_number().and_then(|index| usize::try_from(index.to_i64_coerced()).ok());
        // The handler refuses an operation without a valid namespace before the first write.
        let Some(needed) = index.and_then(|index| actions.get_mut(index)) else { continue };
        let one = match first.name() {
            "insert" => Actions::one(Action::Insert),
            "delete" => Actions::one(Action::Remove),
            _ if is_set(operation, "upsert") => Actions::of(&[Action::Insert, Action::Update]),
            _ => Actions::one(Action::Update),
        };
        *needed = needed.and(one);
    }
    for (information, actions) in namespaces.into_iter().zip(actions) {
        let actions = if actions.is_empty() { actions } else { with_bypass(authorizer, actions) };
        for name in values(information, "ns").filter_map(|name| name.as_str()) {
            authorizer.require_all(full(name), actions)?;
        }
    }
    Ok(())
}

/// Returns the resource of a full name (`database.collection`).
pub(super) fn full(name: &str) -> Resource<'_> {
    let (database, collection) = name.split_once('.').unwrap_or((name, ""));
    Resource::named(database, Some(collection))
}

/// `dataSize` and `checkShardingIndex`: require find on the full name in the command's own field.
pub(crate) fn find_in_named(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let resource = match authorizer.value().and_then(|value| value.as_str()) {
        Some(name) => full(name),
        None => Resource::Database(authorizer.database),
    };
    authorizer.require(resource, Action::Find)
}

/// `filemd5`: reads the chunks of a file.
pub(crate) fn file_md5(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let root = authorizer.body.get("root").and_then(|root| root.as_str()).unwrap_or("fs");
    let chunks = format!("{root}.chunks");
    authorizer.require(Resource::Collection(authorizer.database, &chunks), Action::Find)
}

/// `explain`: requires the privileges of the explained command.
pub(crate) fn explain(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let inner = authorizer.value().and_then(|inner| inner.as_document()).unwrap_or(Document::EMPTY);
    authorizer.check_other(authorizer.database, inner)
}

/// `mapReduce`: reads, and writes if it has a target.
pub(crate) fn map_reduce(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::Find)?;
    let targets: Vec<Value<'_>> = values(authorizer.body, "out").collect();
    for target in targets {
        match target {
            Value::String(name) => {
                let actions = Actions::of(&[Action::Insert, Action::Remove]);
                authorizer.require_all(
                    Resource::named(authorizer.database, Some(name)),
                    with_bypass(authorizer, actions),
                )?;
            }
            Value::Document(target) => {
                let database = target.get("db").and_then(|name| name.as_str()).unwrap_or(authorizer.database);
                for (mode, action) in
                    [("replace", Action::Remove), ("merge", Action::Update), ("reduce", Action::Update)]
                {
                    let Some(name) = target.get(mode).and_then(|name| name.as_str()) else { continue };
                    let actions = with_bypass(authorizer, Actions::of(&[Action::Insert, action]));
                    authorizer.require_all(Resource::named(database, Some(name)), actions)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

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
    // The parsers take the last of repeated fields.
    let other = collections.last().and_then(|name| name.as_str()).unwrap_or(collection);
    pipelines.into_iter().try_for_each(|pipeline| inner(authorizer, other, pipeline))
}

/// Returns the collection of a stage, given as a string or as `{db, coll}`. An empty name counts as none, as in
/// `$merge`.
fn resource<'v>(database: &'v str, named: Value<'v>) -> Resource<'v> {
    match named {
        Value::Document(named) => {
            let names = |field| values(named, field).filter_map(|value| value.as_str());
            let text = |field| names(field).filter(|name| !name.is_empty()).last();
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

/// `create`: a view also requires the privileges to read its source, unless the user cannot read
/// the view.
pub(crate) fn create(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let own = authorizer.collection();
    if authorizer.has("capped") {
        authorizer.require(own, Action::ConvertToCapped)?;
    }
    let is_view = values(authorizer.body, "viewOn").any(|on| !on.is_nullish());
    // A user with the insert privilege can create the collection by an insert anyway.
    let by_insert = !is_view
        && !authorizer.is_authorized(own, Action::CreateCollection)
        && authorizer.is_authorized(own, Action::Insert);
    authorizer.require(own, if by_insert { Action::Insert } else { Action::CreateCollection })?;
    view(authorizer)
}

/// `collMod`: a change of a view also requires the privileges to read its new source.
///
/// Errors: Unauthorized; InvalidOptions for only one of `viewOn` and `pipeline`.
pub(crate) fn coll_mod(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::CollMod)?;
    let has = |name: &str| authorizer.body.get(name).is_some();
    if has("viewOn") != has("pipeline") {
        bail!(
            InvalidOptions,
            "Must specify both 'viewOn' and 'pipeline' when modifying a view and auth is enabled"
        );
    }
    view(authorizer)
}

/// Requires the privileges to read the source of a view if the user may read the view. A view
/// therefore gives no access to documents that its creator cannot read.
fn view(authorizer: &mut Authorizer<'_>) -> Result<()> {
    if !authorizer.is_authorized(authorizer.collection(), Action::Find) {
        return Ok(());
    }
    let on: Vec<&str> = values(authorizer.body, "viewOn").filter_map(|on| on.as_str()).collect();
    let pipelines: Vec<Array<'_>> =
        values(authorizer.body, "pipeline").filter_map(|pipeline| pipeline.as_array()).collect();
    for collection in on {
        if pipelines.is_empty() {
            authorizer.require(Resource::named(authorizer.database, Some(collection)), Action::Find)?;
        }
        for pipeline in &pipelines {
            stages(authorizer, collection, *pipeline)?;
        }
    }
    Ok(())
}

/// `cloneCollectionAsCapped`: requires find on the source, and the actions that create the target.
pub(crate) fn clone_as_capped(authorizer: &mut Authorizer<'_>) -> Result<()> {
    authorizer.require(authorizer.collection(), Action::Find)?;
    let to = authorizer.body.get("toCollection").and_then(|name| name.as_str());
    let actions = Actions::of(&[Action::ConvertToCapped, Action::CreateIndex, Action::Insert]);
    authorizer.require_all(Resource::named(authorizer.database, to), actions)
}

/// `renameCollection`: within a database a separate privilege suffices, unless the new name lets
/// the user read documents that were unreadable before. Across databases it requires the privileges
/// to copy and drop.
pub(crate) fn rename(authorizer: &mut Authorizer<'_>) -> Result<()> {
    let text = |value: Option<Value<'_>>| value.and_then(|name| name.as_str().map(str::to_string));
    let (Some(from), Some(to)) = (text(authorizer.value()), text(authorizer.body.get("to"))) else {
        return authorizer.require(Resource::AnyNormal, Action::RenameCollectionSameDB);
    };
    let (source, target) = (full(&from), full(&to));
    let database = |name: &str| name.split_once('.').map_or(name.to_string(), |parts| parts.0.to_string());
    let (source_database, target_database) = (database(&from), database(&to));
    if authorizer.has("dropTarget") {
        authorizer.require(target, Action::DropCollection)?;
    }
    let shows_more =
        !authorizer.is_authorized(source, Action::Find) && authorizer.is_authorized(target, Action::Find);
    let within = source_database == target_database
        && !shows_more
        && authorizer.is_authorized(Resource::Database(&source_database), Action::RenameCollectionSameDB);
    if within && both_normal(&from, &to) {
        return authorizer.require(Resource::Database(&source_database), Action::RenameCollectionSameDB);
    }
    authorizer.require_all(source, Actions::of(&[Action::DropCollection, Action::Find]))?;
    authorizer.require_all(target, Actions::of(&[Action::CreateIndex, Action::Insert]))
}

/// Returns true if neither is a system collection. Privileges on a database do not cover system
/// collections.
fn both_normal(from: &str, to: &str) -> bool {
    let is_normal = |name: &str| {
        name.split_once('.')
            .is_some_and(|(database, name)| crate::access::resource::is_normal(database, name))
    };
    is_normal(from) && is_normal(to)
}
