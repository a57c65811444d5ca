//! Privileges that each command needs: its declaration in the command table and the checks that follow from it.
//!
//! A row of the table names an action and the kind of its resource, or a function of the request.
//! The function parses the request as the handler does and errs on the strict side. It checks both
//! values of a duplicate field, and checks the whole database if the request names no collection.
//!
//! A cursor stores the user and the privileges of the command that opened it. Other users cannot
//! read it. Its owner cannot read it after losing these privileges.

mod apply_ops;
mod data;
mod server;
mod users;

pub(crate) use apply_ops::apply_ops;
pub(crate) use data::{aggregate, *};
pub(crate) use server::*;
pub(crate) use users::*;

use super::Identity;
use super::action::{Action, Actions};
use super::privilege::Privileges;
use super::resource::{OwnedResource, Resource};
use crate::observe::activity::Activities;
use crate::protocol::names::UserName;
use base::bson::{Document, Value};
use base::{CompatibleWith, Result, bail, err};
use database::{Cursor, CursorTag, Database};
use std::sync::Arc;
use wire::request::{Documents, Sequences};

/// The needs of a command, as declared in its row.
#[derive(Clone, Copy)]
pub(crate) enum Requirements {
    /// No privilege. Authentication is required unless the row allows the command without it.
    Nothing,
    /// An action on the server.
    Cluster(Action),
    /// An action on the command's database.
    Database(Action),
    /// An action on the collection in the command's own field.
    Collection(Action),
    /// An action on the database in the command's own field.
    NamedDatabase(Action),
    /// An action in the databases of the roles in `roles`.
    Roles(Action),
    /// An action in the databases of the resources in `privileges`.
    Privileges(Action),
    /// The needs that the function derives from the request.
    By(fn(&mut Authorizer<'_>) -> Result<()>),
}

/// A privilege that a request needed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RequiredPrivilege {
    /// Resource of the privilege.
    pub(crate) resource: OwnedResource,
    pub(crate) actions: Actions,
}

/// A request and its user, during the check of its privileges.
pub(crate) struct Authorizer<'a> {
    /// Privileges of the user.
    pub(crate) privileges: &'a Privileges,
    /// Identity of the user; `None` before authentication.
    pub(crate) identity: Option<&'a Identity>,
    /// The request's document.
    pub(crate) body: Document<'a>,
    /// The request's database.
    pub(crate) database: &'a str,
    /// Document sequences beside the body.
    pub(crate) sequences: &'a Sequences<'a>,
    /// Current operations of all connections.
    pub(crate) activities: &'a Activities,
    /// The open cursors.
    pub(crate) store: &'a Database,
    /// MongoDB version of the server's behaviour.
    pub(crate) compatible_with: CompatibleWith,
    /// Needs of the command with a name, for commands that contain others.
    pub(crate) requirements_of: fn(&str) -> Option<Requirements>,
    /// Records the needed privileges, if requested.
    pub(crate) record: Option<Vec<RequiredPrivilege>>,
}

/// Returns the refusal without the command's text, which the caller adds.
pub(crate) fn refused() -> base::Error {
    err!(Unauthorized, "unauthorized")
}

impl<'a> Authorizer<'a> {
    pub(crate) fn user(&self) -> Option<&'a UserName> {
        self.identity.map(|identity| &identity.user)
    }

    /// Returns true if an action is allowed.
    pub(crate) fn is_authorized(&self, resource: Resource<'_>, action: Action) -> bool {
        self.privileges.allows(resource, action)
    }

    /// Requires an action on a resource.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn require(&mut self, resource: Resource<'_>, action: Action) -> Result<()> {
        self.require_all(resource, Actions::one(action))
    }

    /// Requires several actions on a resource.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn require_all(&mut self, resource: Resource<'_>, actions: Actions) -> Result<()> {
        if let Some(record) = &mut self.record {
            record.push(RequiredPrivilege { resource: resource.to_owned(), actions });
        }
        match self.privileges.allows_all(resource, actions) {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    /// Returns the value of the command's own field.
    pub(crate) fn value(&self) -> Option<Value<'a>> {
        self.body.first().map(|first| first.value())
    }

    /// Returns the collection in the command's own field, or the database if the field names no
    /// collection.
    pub(crate) fn collection(&self) -> Resource<'a> {
        Resource::named(self.database, self.value().and_then(|value| value.as_str()))
    }

    /// Returns the database in the command's own field.
    pub(crate) fn named_database(&self) -> Resource<'a> {
        Resource::Database(self.value().and_then(|value| value.as_str()).unwrap_or(self.database))
    }

    /// Returns true if a field is true or a nonzero number.
    pub(crate) fn has(&self, name: &str) -> bool {
        is_set(self.body, name)
    }

    /// Returns the documents of a list in the body or in a document sequence.
    pub(crate) fn documents(&self, name: &str) -> Vec<Document<'a>> {
        let sequences = self.sequences.iter().filter(|sequence| sequence.name == name);
        let mut documents: Vec<Document<'a>> =
            sequences.flat_map(|sequence| Documents::iter(&sequence.documents)).collect();
        for array in values(self.body, name).filter_map(|value| value.as_array()) {
            documents.extend(array.iter().filter_map(|value| value.as_document()));
        }
        documents
    }

    /// Checks the declared needs against this request.
    ///
    /// Errors: Unauthorized; errors of a needs function.
    pub(crate) fn check(&mut self, requirements: &Requirements) -> Result<()> {
        match *requirements {
            Requirements::Nothing => Ok(()),
            Requirements::Cluster(action) => self.require(Resource::Cluster, action),
            Requirements::Database(action) => self.require(Resource::Database(self.database), action),
            Requirements::Collection(action) => self.require(self.collection(), action),
            Requirements::NamedDatabase(action) => self.require(self.named_database(), action),
            Requirements::Roles(action) => users::on_roles(self, action),
            Requirements::Privileges(action) => users::on_privileges(self, action),
            Requirements::By(function) => function(self),
        }
    }

    /// Checks another command inside this request, on a database.
    ///
    /// Errors: as [`check`](Self::check).
    pub(crate) fn check_other(&mut self, database: &str, body: Document<'_>) -> Result<()> {
        let name = body.first().map_or("", |first| first.name());
        // The handler refuses an unknown command.
        let Some(requirements) = (self.requirements_of)(name) else { return Ok(()) };
        let none = Sequences::default();
        let mut other = Authorizer {
            privileges: self.privileges,
            identity: self.identity,
            body,
            database,
            sequences: &none,
            activities: self.activities,
            store: self.store,
            compatible_with: self.compatible_with,
            requirements_of: self.requirements_of,
            record: self.record.take(),
        };
        let checked = other.check(&requirements);
        let record = other.record;
        self.record = record;
        checked
    }
}

/// Returns all values of a field, since a document may have duplicate fields.
pub(crate) fn values<'a>(document: Document<'a>, name: &str) -> impl Iterator<Item = Value<'a>> {
    document.iter().filter(move |element| element.name() == name).map(|element| element.value())
}

/// Returns true if a field is true or a nonzero number.
pub(crate) fn is_set(document: Document<'_>, name: &str) -> bool {
    values(document, name).any(|value| value.is_truthy())
}

/// User and privileges of the command that opened a cursor.
struct CursorOwner {
    user: Option<UserName>,
    needed: Vec<RequiredPrivilege>,
}

/// Returns true if this user opened the cursor.
pub(crate) fn is_cursor_of(tag: &CursorTag, user: Option<&UserName>) -> bool {
    tag.downcast_ref::<CursorOwner>().is_some_and(|owner| owner.user.as_ref() == user)
}

/// Returns the user that opened a cursor.
pub(crate) fn cursor_user(tag: &CursorTag) -> Option<&UserName> {
    tag.downcast_ref::<CursorOwner>()?.user.as_ref()
}

/// Returns the tag for a cursor that a command with these needs leaves open.
pub(crate) fn cursor_tag(mut authorizer: Authorizer<'_>, requirements: &Requirements) -> CursorTag {
    authorizer.record = Some(Vec::new());
    // The check passed before the handler. The next batch detects privileges revoked since.
    let _ = authorizer.check(requirements);
    let user = authorizer.user().cloned();
    let Authorizer { record, .. } = authorizer;
    Arc::new(CursorOwner { user, needed: record.unwrap_or_default() })
}

/// Checks that the connection may read a cursor of another session.
///
/// Errors: Unauthorized.
pub(crate) fn check_other_session(
    authorizer: &Authorizer<'_>,
    own: Option<&str>,
    given: Option<&str>,
) -> Result<()> {
    if authorizer.is_authorized(Resource::Cluster, Action::Impersonate) {
        return Ok(());
    }
    let (own, given) = (own.unwrap_or("none"), given.unwrap_or("none"));
    Err(err!(
        Unauthorized,
        "Cursor session id ({own}) is not the same as the operation context's session id ({given})"
    ))
}

/// Checks that the connection may read a cursor.
///
/// Errors: Unauthorized.
pub(crate) fn check_cursor(authorizer: &Authorizer<'_>, id: i64, cursor: &Cursor) -> Result<()> {
    let Some(identity) = authorizer.identity else {
        bail!(Unauthorized, "not authorized for getMore on {}", authorizer.database);
    };
    let owner = cursor.tag.as_ref().and_then(|tag| tag.downcast_ref::<CursorOwner>());
    let Some(owner) = owner.filter(|owner| owner.user.as_ref() == Some(&identity.user)) else {
        bail!(Unauthorized, "cursor id {id} was not created by the authenticated user");
    };
    let still =
        |needed: &RequiredPrivilege| authorizer.privileges.allows_all(needed.resource.view(), needed.actions);
    match owner.needed.iter().all(still) {
        true => Ok(()),
        false => Err(err!(Unauthorized, "not authorized for getMore with cursor id {id}")),
    }
}
