//! `usersInfo`: documents of users, by default without credentials.

use crate::access::command::Kind;
use crate::access::{Requirements, requirements};
use crate::auth::{role, store};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::names::UserName;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::{Result, bail, err};

/// Position in the command table.
pub(crate) const USERS_INFO: Row = Row::new(
    "usersInfo",
    Kind::Read,
    "Returns users.",
    users_info,
    Requirements::By(requirements::users_info),
);

/// The selected users.
enum SelectedUsers {
    /// Users of all databases.
    Everybody,
    /// Users of the command's database.
    OfDatabase,
    /// Named users.
    Named(Vec<UserName>),
}

/// Parsed fields of the command.
struct Parts<'a> {
    whom: SelectedUsers,
    credentials: bool,
    custom_data: bool,
    privileges: bool,
    restrictions: bool,
    filter: Option<Document<'a>>,
}

fn users_info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let requested = Parts::read(call)?;
    let users = match (&requested.whom, requested.privileges || requested.restrictions) {
        (SelectedUsers::Named(names), true) if requested.filter.is_none() => {
            one_by_one(call, names, &requested)?
        }
        (_, true) => {
            bail!(IllegalOperation, "Privilege or restriction details require exact-match usersInfo queries");
        }
        (_, false) => by_pipeline(call, &requested)?,
    };
    call.reply.begin_array(c"users");
    for user in &users {
        call.reply.push(user);
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

impl<'a> Parts<'a> {
    fn read(call: &Call<'a>) -> Result<Parts<'a>> {
        let mut fields = call.fields();
        let whom = SelectedUsers::read(fields.command_value(), call.request.database)?;
        let requested = Parts {
            whom,
            credentials: fields.flag("showCredentials")?.unwrap_or(false),
            custom_data: fields.flag("showCustomData")?.unwrap_or(true),
            privileges: fields.flag("showPrivileges")?.unwrap_or(false),
            restrictions: fields.flag("showAuthenticationRestrictions")?.unwrap_or(false),
            filter: fields.document("filter")?,
        };
        fields.finish()?;
        Ok(requested)
    }
}

impl SelectedUsers {
    fn read(value: Value<'_>, db: &str) -> Result<SelectedUsers> {
        match value {
            Value::Document(parts) if is_for_all(parts) => Ok(SelectedUsers::Everybody),
            Value::Array(names) => {
                let names = names.iter().map(|name| read_name(name, db)).collect::<Result<Vec<_>>>()?;
                match names.is_empty() {
                    true => Err(err!(BadValue, "$and/$or/$nor must be a nonempty array")),
                    false => Ok(SelectedUsers::Named(names)),
                }
            }
            other if other.as_number().is_some_and(|number| number.to_i64_clamped() == 1) => {
                Ok(SelectedUsers::OfDatabase)
            }
            other => Ok(SelectedUsers::Named(vec![read_name(other, db)?])),
        }
    }
}

fn is_for_all(parts: Document<'_>) -> bool {
    let mut parts = parts.iter();
    let first = parts.next().is_some_and(|part| part.name() == "forAllDBs" && part.value().is_truthy());
    first && parts.next().is_none()
}

/// Parses a user name: a string for the command's database, or `{user, db}`.
fn read_name(name: Value<'_>, db: &str) -> Result<UserName> {
    let parts = match name {
        Value::String(name) => return Ok(UserName::new(name, db)),
        Value::Document(parts) => parts,
        _ => bail!(BadValue, "UserName must be either a string or an object"),
    };
    if let Some(unknown) = parts.iter().find(|part| !["user", "db"].contains(&part.name())) {
        bail!(BadValue, "UserName contains an unknown field named: '{}", unknown.name());
    }
    let part = |name: &str| match parts.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(err!(
            BadValue,
            "UserName must contain a string field named: {name}. But, has type {}",
            other.kind().alias()
        )),
        None => Err(err!(BadValue, "UserName must contain a field named: {name}")),
    };
    Ok(UserName::new(part("user")?, part("db")?))
}

/// Reads named users one by one, with the details that are available only for named users.
fn one_by_one(call: &Call<'_>, names: &[UserName], requested: &Parts<'_>) -> Result<Vec<DocumentBuf>> {
    let mut users = Vec::new();
    for name in names {
        let Some(found) = store::user(&call.server.database, name)? else { continue };
        let mut user = Builder::new();
        user.append_all(shown(found.view(), requested).view());
        role::append_resolved(&call.server.database, &mut user, &role::named_in(found.view()), true)?;
        users.push(user.finish());
    }
    Ok(users)
}

/// Returns a user's document with the requested fields.
fn shown(user: Document<'_>, requested: &Parts<'_>) -> DocumentBuf {
    let mut shown = Builder::new();
    for element in user {
        match element.name() {
            "credentials" => {
                append_mechanisms(&mut shown, element.value());
                if requested.credentials {
                    shown.append_element(&element);
                }
            }
            "customData" if !requested.custom_data => {}
            "authenticationRestrictions" if !requested.restrictions => {}
            _ => _ = shown.append_element(&element),
        }
    }
    if requested.restrictions && user.get("authenticationRestrictions").is_none() {
        shown.begin_array(c"authenticationRestrictions").end();
    }
    shown.finish()
}

fn append_mechanisms(shown: &mut Builder, credentials: Value<'_>) {
    shown.begin_array(c"mechanisms");
    for credential in credentials.as_document().into_iter().flatten() {
        shown.push(credential.name());
    }
    shown.end();
}

/// Reads users by an aggregation, as MongoDB does, so that `filter` applies to the output.
fn by_pipeline(call: &Call<'_>, requested: &Parts<'_>) -> Result<Vec<DocumentBuf>> {
    let mut command = Builder::new();
    command.append(c"aggregate", store::USERS).begin_array(c"pipeline");
    match &requested.whom {
        SelectedUsers::Everybody => {}
        SelectedUsers::OfDatabase => {
            command
                .push_document()
                .begin_document(c"$match")
                .append(c"db", call.request.database)
                .end()
                .end();
        }
        SelectedUsers::Named(names) => {
            command.push_document().begin_document(c"$match").begin_array(c"$or");
            for UserName { name, db } in names {
                command.push_document().append(c"user", name).append(c"db", db).end();
            }
            command.end().end().end();
        }
    }
    command.push_document().begin_document(c"$sort").append(c"user", 1).append(c"db", 1).end().end();
    command.push_document().begin_document(c"$addFields").begin_document(c"mechanisms");
    command.begin_document(c"$map").begin_document(c"input").append(c"$objectToArray", "$credentials").end();
    command.append(c"as", "credential").append(c"in", "$$credential.k").end().end().end().end();
    command.push_document().begin_array(c"$unset").push("authenticationRestrictions");
    if !requested.credentials {
        command.push("credentials");
    }
    if !requested.custom_data {
        command.push("customData");
    }
    command.end().end();
    if let Some(filter) = requested.filter {
        command.push_document().append(c"$match", filter).end();
    }
    command.end().begin_document(c"cursor").append(c"batchSize", i32::MAX).end();
    command
        .begin_document(c"$readPreference")
        .append(c"mode", "primaryPreferred")
        .end()
        .append(c"$db", "admin");
    let reply = call.run_inner(command.finish().view())?;
    let cursor = reply.view().get("cursor").and_then(|cursor| cursor.as_document());
    if cursor.and_then(|cursor| cursor.get("id")).and_then(|id| id.as_i64()) != Some(0) {
        bail!(BSONObjectTooLarge, "the users do not fit into one reply: request fewer users");
    }
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(|batch| batch.as_array());
    let users = batch.into_iter().flat_map(|batch| batch.iter());
    Ok(users.filter_map(|user| Some(user.as_document()?.to_owned())).collect())
}
