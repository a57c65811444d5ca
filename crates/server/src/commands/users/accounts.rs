//! Commands that create, change and drop users, and grant roles to them: documents in `admin.system.users`.

use crate::access::{Action, Requirements, requirements};
use crate::auth::user::{User, append_credential, append_roles};
use crate::auth::{self, EXTERNAL, restrictions, role, store};
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::crud::delete;
use crate::commands::crud::write_batch::{is_suspended, run_suspendable};
use crate::protocol::fields::Fields;
use crate::protocol::names::{RoleName, UserName};
use base::bson::{Array, Builder, Document, DocumentBuf, FieldName, Value};
use base::random::Random;
use base::{Error, ErrorCode, Namespace, Result, bail, err};
use database::WriteProgress;
use wire::scram::{Credential, Mechanism};
use wire::secret;

/// MongoDB's schema version of the user documents.
const SCHEMA_VERSION: i32 = 5;

/// The row of `createUser`.
pub(crate) const CREATE: Row = Row::write("createUser", create, Requirements::By(requirements::create_user))
    .without_collection()
    .help("Creates a user.")
    .has_secrets();

/// Parsed fields of a command about a user.
struct Parts<'a> {
    user: UserName,
    password: Option<&'a str>,
    digests: bool,
    mechanisms: Option<Vec<&'a str>>,
    custom_data: Option<Document<'a>>,
    roles: Option<Vec<RoleName>>,
    restrictions: Option<Array<'a>>,
}

impl<'a> Parts<'a> {
    fn read(call: &Call<'a>, needs_roles: bool) -> Result<Parts<'a>> {
        let mut fields = call.fields();
        let user = named_user(call, &mut fields)?;
        let password = fields.string("pwd")?;
        let custom_data = fields.document("customData")?;
        let roles = match fields.peek("roles") {
            Some(Value::Null) => bail!(10065, "invalid parameter: expected an object (roles)"),
            None if needs_roles => Some(fields.required("roles", Fields::array)?),
            _ => fields.array("roles")?,
        };
        let parts = Parts {
            password,
            digests: fields.boolean("digestPassword")?.unwrap_or(true),
            mechanisms: fields.strings("mechanisms")?,
            custom_data,
            roles: roles.map(|roles| role::read_names(roles, &user.db)).transpose()?,
            restrictions: fields.array("authenticationRestrictions")?,
            user,
        };
        fields.finish()?;
        if parts.mechanisms.as_ref().is_some_and(Vec::is_empty) {
            bail!(BadValue, "mechanisms field must not be empty");
        }
        Ok(parts)
    }

    /// Returns the credentials of the password, one for each mechanism.
    fn credentials(&self, call: &Call<'_>) -> Result<DocumentBuf> {
        let mut credentials = Builder::new();
        let Some(password) = self.password else {
            credentials.append(c"external", true);
            return Ok(credentials.finish());
        };
        // MongoDB creates them in this order.
        for mechanism in [Mechanism::Sha1, Mechanism::Sha256] {
            if self.requests(call, mechanism)? {
                let credential = self.credential(call, mechanism, password)?;
                append_credential(&mut credentials, mechanism, &credential);
            }
        }
        Ok(credentials.finish())
    }

    fn requests(&self, call: &Call<'_>, mechanism: Mechanism) -> Result<bool> {
        let Some(names) = &self.mechanisms else { return Ok(call.server.auth.takes(mechanism.name())) };
        for name in names {
            if Mechanism::of_name(name).is_none() {
                bail!(BadValue, "Unknown auth mechanism '{name}'");
            }
            if !call.server.auth.takes(name) {
                bail!(BadValue, "{name} not supported in authMechanisms");
            }
        }
        Ok(names.contains(&mechanism.name()))
    }

    fn credential(&self, call: &Call<'_>, mechanism: Mechanism, password: &str) -> Result<Credential> {
        let iterations = auth::iterations(&call.server.parameters, mechanism);
        let salt = |bytes: Vec<u8>| bytes.into_iter().take(mechanism.salt_size()).collect();
        let random = secret::random::<32>().map_err(|why| err!(InternalError, "{why}"))?;
        if mechanism == Mechanism::Sha256 {
            if !self.digests {
                bail!(BadValue, "Use of SCRAM-SHA-256 requires undigested passwords");
            }
            if password.is_empty() {
                bail!(50687, "Error preflighting UTF-8 conversion: U_STRING_NOT_TERMINATED_WARNING");
            }
        }
        let operation = call.operation();
        operation.mark_long();
        operation.run(|| match self.digests {
            false => Ok(Credential::of_digested(password, salt(random.to_vec()), iterations)),
            true => {
                let made =
                    Credential::new(mechanism, &self.user.name, password, salt(random.to_vec()), iterations);
                made.map_err(|_| {
                    err!(50692, "Error preflighting normalization: U_STRINGPREP_PROHIBITED_ERROR")
                })
            }
        })
    }
}

/// Takes the user in the command's own field.
pub(super) fn named_user(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<UserName> {
    match fields.command_value() {
        Value::String(name) => Ok(UserName::new(name, call.request.database)),
        other => Err(fields.wrong_type(call.command.name, other.kind(), "string")),
    }
}

fn create(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(call, true)?;
    let user = &parts.user;
    if user.db == "local" {
        bail!(BadValue, "Cannot create users in the local database");
    }
    if user.name.contains('\0') {
        bail!(BadValue, "Username cannot contain NULL characters");
    }
    match (parts.password, user.db == EXTERNAL) {
        (None, false) => {
            bail!(
                BadValue,
                "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's \
                 source db"
            );
        }
        (Some(_), true) => return Err(external_password()),
        _ => {}
    }
    let credentials = parts.credentials(call)?;
    let mut document = Builder::new();
    document.append(c"_id", &user.id());
    document
        .append(c"userId", Value::Binary { subtype: 4, bytes: &Random::new(call.server.random()).uuid() });
    document.append(c"user", &user.name).append(c"db", &user.db).append(c"credentials", &credentials);
    if let Some(restrictions) = parts.restrictions.filter(|restrictions| !restrictions.is_empty()) {
        restrictions::append_checked(&mut document, "createUser", restrictions)?;
    }
    document.append_optional(c"customData", parts.custom_data);
    let roles = parts.roles.unwrap_or_default();
    append_roles(&mut document, &roles);
    if user.name.is_empty() {
        bail!(BadValue, "User document needs 'user' field to be non-empty");
    }
    let _changing = call.server.auth.changing.lock();
    auth::create_first_user(&call.server.auth, call.connection, call.command, || {
        role::check_exist(&call.server.database, &roles)?;
        prepare_store(call)?;
        let mut insert = Builder::new();
        insert.append(c"insert", store::USERS).begin_array(c"documents").push(&document.finish()).end();
        call.run_inner(admin(insert).view()).map_err(|error| match error.code() {
            ErrorCode::DuplicateKey => err!(51003, "User \"{user}\" already exists"),
            _ => error,
        })
    })?;
    call.acknowledge(None)
}

/// Creates the unique index of user names and the schema version document if they are missing.
fn prepare_store(call: &Call<'_>) -> Result<()> {
    let mut index = Builder::new();
    index.append(c"createIndexes", store::USERS).begin_array(c"indexes").push_document();
    index.begin_document(c"key").append(c"user", 1).append(c"db", 1).end();
    index.append(c"name", "user_1_db_1").append(c"unique", true).end().end();
    call.run_inner(admin(index).view())?;
    let mut version = Builder::new();
    version.append(c"update", "system.version").begin_array(c"updates").push_document();
    version.begin_document(c"q").append(c"_id", "authSchema").end();
    version
        .begin_document(c"u")
        .begin_document(c"$set")
        .append(c"currentVersion", SCHEMA_VERSION)
        .end()
        .end();
    version.append(c"upsert", true).end().end();
    call.run_inner(admin(version).view()).map(drop)
}

/// Returns an internal command on `admin`. The outer command waits for the write concern.
fn admin(mut command: Builder) -> DocumentBuf {
    command.begin_document(c"writeConcern").append(c"w", 1).end().append(c"$db", "admin");
    command.finish()
}

fn external_password() -> Error {
    err!(BadValue, "Cannot set the password for users defined on the '$external' database")
}

/// The row of `updateUser`.
pub(crate) const UPDATE: Row = Row::write("updateUser", update, Requirements::By(requirements::update_user))
    .without_collection()
    .help("Changes a user.")
    .has_secrets();

fn update(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let parts = Parts::read(call, false)?;
    let (mut set, mut unset) = (Builder::new(), Builder::new());
    let mut found_credentials = None;
    if parts.password.is_some() {
        if parts.user.db == EXTERNAL {
            return Err(external_password());
        }
        set.append(c"credentials", &parts.credentials(call)?);
    } else if let Some(mechanisms) = &parts.mechanisms {
        found_credentials = Some(trim_credentials(call, &parts.user, mechanisms, &mut unset)?);
    }
    set.append_optional(c"customData", parts.custom_data);
    match parts.restrictions {
        Some(none) if none.is_empty() => _ = unset.append(c"authenticationRestrictions", ""),
        Some(restrictions) => restrictions::append_checked(&mut set, "updateUser", restrictions)?,
        None => {}
    }
    if let Some(roles) = &parts.roles {
        append_roles(&mut set, roles);
    }
    let (set, unset) = (set.finish(), unset.finish());
    if set.view().is_empty() && unset.view().is_empty() {
        bail!(BadValue, "Must specify at least one field to update in updateUser");
    }
    let _changing = call.server.auth.changing.lock();
    if let Some(roles) = &parts.roles {
        role::check_exist(&call.server.database, roles)?;
    }
    prepare_store(call)?;
    let mut change = Builder::new();
    for (operator, fields) in [("$set", &set), ("$unset", &unset)] {
        if !fields.view().is_empty() {
            change.append(FieldName::literal(operator), fields);
        }
    }
    change_user(call, &parts.user, found_credentials.as_ref(), change.finish().view())
}

/// Marks credentials for removal if `mechanisms` shrinks. Returns the existing mechanisms.
fn trim_credentials(
    call: &Call<'_>,
    user: &UserName,
    mechanisms: &[&str],
    unset: &mut Builder,
) -> Result<DocumentBuf> {
    let document = store::user(&call.server.database, user)?.ok_or_else(|| not_found(user))?;
    let credentials = document.view().get("credentials").and_then(|credentials| credentials.as_document());
    let credentials = credentials.ok_or_else(|| {
        err!(UnsupportedFormat, "Unable to trim credentials from a user document with no credentials")
    })?;
    if mechanisms.iter().any(|name| credentials.get(name).is_none()) {
        bail!(BadValue, "mechanisms field must be a subset of previously set mechanisms");
    }
    if !Mechanism::ALL.iter().any(|mechanism| mechanisms.contains(&mechanism.name())) {
        bail!(BadValue, "mechanisms field must contain at least one previously set known mechanism");
    }
    for mechanism in Mechanism::ALL {
        if !mechanisms.contains(&mechanism.name()) {
            unset.append(FieldName::trusted(&format!("credentials.{}", mechanism.name())), "");
        }
    }
    Ok(credentials.to_owned())
}

/// Changes a user's document, with new credentials if given, and waits for the write.
pub(super) fn change_user(
    call: &mut Call<'_>,
    user: &UserName,
    credentials: Option<&DocumentBuf>,
    change: Document<'_>,
) -> Result<HandlerStatus> {
    let mut update = Builder::new();
    update.append(c"update", store::USERS).begin_array(c"updates").push_document();
    update.begin_document(c"q").append(c"user", &user.name).append(c"db", &user.db);
    update.append_optional(c"credentials", credentials);
    update.end().append(c"u", change).end().end();
    let reply = call.run_inner(admin(update).view())?;
    if count(&reply) == 0 {
        bail!(UserNotFound, "User {user} not found");
    }
    call.acknowledge(None)
}

fn count(reply: &DocumentBuf) -> i64 {
    reply.view().get("n").and_then(|count| count.as_i64()).unwrap_or_default()
}

pub(super) fn not_found(user: &UserName) -> Error {
    err!(UserNotFound, "Could not find user \"{}\" for db \"{}\"", user.name, user.db)
}

/// The row of `dropUser`.
pub(crate) const DROP: Row = Row::write("dropUser", drop_user, Requirements::Database(Action::DropUser))
    .without_collection()
    .help("Drops a user.");

fn drop_user(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let user = named_user(call, &mut fields)?;
    fields.finish()?;
    let _changing = call.server.auth.changing.lock();
    let mut delete = Builder::new();
    delete.append(c"delete", store::USERS).begin_array(c"deletes").push_document();
    delete.begin_document(c"q").append(c"user", &user.name).append(c"db", &user.db).end();
    delete.append(c"limit", 1).end().end();
    if count(&call.run_inner(admin(delete).view())?) == 0 {
        bail!(UserNotFound, "User '{user}' not found");
    }
    call.acknowledge(None)
}

/// The row of `dropAllUsersFromDatabase`.
pub(crate) const DROP_ALL: Row =
    Row::write("dropAllUsersFromDatabase", drop_all, Requirements::Database(Action::DropUser))
        .help("Drops all users of a database.");

fn drop_all(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let begin = |call: &Call<'_>| {
        let scope = call.scope(Namespace::new("admin", store::USERS)?);
        scope.operation.keep_progress();
        Ok((scope, WriteProgress::default()))
    };
    run_suspendable(call, begin, |call, (scope, progress)| {
        let _changing = call.server.auth.changing.lock();
        let mut filter = Builder::new();
        filter.append(c"db", call.request.database);
        let request = delete::parse(filter.finish().view(), false, None, scope)?;
        let database = &call.server.database;
        let deleted =
            database.by_latest_catalog(|| database.delete_retryable(scope, &request, None, progress));
        if !is_suspended(&deleted) {
            call.leave_queue();
        }
        let (count, committed) = deleted?;
        call.server.counters.deleted.add(1);
        call.reply.append_number(c"n", count as i64);
        call.acknowledge(committed)
    })
}

/// The row of `grantRolesToUser`.
pub(crate) const GRANT_ROLES: Row =
    Row::write("grantRolesToUser", |call| change_roles(call, true), Requirements::Roles(Action::GrantRole))
        .without_collection()
        .help("Grants roles to a user.");

/// The row of `revokeRolesFromUser`.
pub(crate) const REVOKE_ROLES: Row = Row::write(
    "revokeRolesFromUser",
    |call| change_roles(call, false),
    Requirements::Roles(Action::RevokeRole),
)
.without_collection()
.help("Revokes roles from a user.");

fn change_roles(call: &mut Call<'_>, grants: bool) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let user = named_user(call, &mut fields)?;
    let named = fields.required("roles", Fields::array)?;
    fields.finish()?;
    if named.is_empty() {
        bail!(BadValue, "{} command requires a non-empty \"roles\" array", call.command.name);
    }
    let named = role::read_names(named, &user.db)?;
    let _changing = call.server.auth.changing.lock();
    let document = store::user(&call.server.database, &user)?;
    let found = document.and_then(|document| User::read(document.view())).ok_or_else(|| not_found(&user))?;
    role::check_exist(&call.server.database, &named)?;
    let mut roles = found.roles;
    role::grant_or_revoke(&mut roles, named, grants);
    let mut set = Builder::new();
    append_roles(set.begin_document(c"$set"), &roles);
    set.end();
    change_user(call, &user, None, set.finish().view())
}
