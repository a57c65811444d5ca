//! What each command needs: its declaration in the table, and the questions that come of it.
//!
//! A row of the table names an action and how its resource is found, or a function where that depends on the request.
//! Such a function reads the request as the handler will, and rather too much of it than too little: of a field given
//! twice it asks about both, and where no collection is named it asks about the whole database.

mod catalog;
mod data;
mod pipeline;
mod server;
mod users;

pub(crate) use catalog::*;
pub(crate) use data::*;
pub(crate) use pipeline::aggregate;
pub(crate) use server::*;
pub(crate) use users::*;

use super::action::{Action, Actions};
use super::privilege::Privileges;
use super::resource::{OwnedResource, Resource};
use crate::activity::Activities;
use crate::auth::Identity;
use crate::command;
use crate::names::UserName;
use base::bson::{Document, Value};
use base::{Result, err};
use database::Database;
use wire::request::Documents;
use wire::request::Sequences;

/// What a command needs, as its row in the table says.
#[derive(Clone, Copy)]
pub(crate) enum Needs {
    /// Nothing but to be there: without authentication where the row allows it, otherwise as any user.
    Nothing,
    /// An action on the server.
    Cluster(Action),
    /// An action on the database that the command is for.
    Database(Action),
    /// An action on the collection that the command's own field names.
    Collection(Action),
    /// Whatever the function asks for.
    By(fn(&mut Asked<'_>) -> Result<()>),
}

/// One thing that a request needed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Needed {
    /// On what.
    pub(crate) resource: OwnedResource,
    /// To do what.
    pub(crate) actions: Actions,
}

/// A request, and who asks, while it is found out what it needs.
pub(crate) struct Asked<'a> {
    /// What whoever asks may do.
    pub(crate) privileges: &'a Privileges,
    /// Who asks; `None` before authentication.
    pub(crate) identity: Option<&'a Identity>,
    /// The request's document.
    pub(crate) body: Document<'a>,
    /// The database that it is for.
    pub(crate) database: &'a str,
    /// The lists of documents beside it.
    pub(crate) sequences: &'a Sequences<'a>,
    /// What every connection runs now.
    pub(crate) activities: &'a Activities,
    /// The cursors that are open.
    pub(crate) store: &'a Database,
    /// What was needed, where somebody wants to know.
    pub(crate) record: Option<Vec<Needed>>,
}

/// The refusal as it is made before it is known how the command reads.
pub(crate) fn refused() -> base::Error {
    err!(Unauthorized, "unauthorized")
}

impl<'a> Asked<'a> {
    /// Who asks.
    pub(crate) fn user(&self) -> Option<&'a UserName> {
        self.identity.map(|identity| &identity.user)
    }

    /// Whether an action is allowed.
    pub(crate) fn may(&self, resource: Resource<'_>, action: Action) -> bool {
        self.privileges.allows(resource, action)
    }

    /// Needs an action on a resource.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn need(&mut self, resource: Resource<'_>, action: Action) -> Result<()> {
        self.need_all(resource, Actions::one(action))
    }

    /// Needs several.
    ///
    /// Errors: Unauthorized.
    pub(crate) fn need_all(&mut self, resource: Resource<'_>, actions: Actions) -> Result<()> {
        if let Some(record) = &mut self.record {
            record.push(Needed { resource: resource.to_owned(), actions });
        }
        match self.privileges.allows_all(resource, actions) {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    /// The value of the command's own field.
    pub(crate) fn value(&self) -> Option<Value<'a>> {
        self.body.first().map(|first| first.value())
    }

    /// The collection that the command's own field names, or the database where it names none.
    pub(crate) fn collection(&self) -> Resource<'a> {
        Resource::named(self.database, self.value().and_then(|value| value.as_str()))
    }

    /// The database that the command's own field names.
    pub(crate) fn named_database(&self) -> Resource<'a> {
        Resource::Database(self.value().and_then(|value| value.as_str()).unwrap_or(self.database))
    }

    /// Whether a field is set, be it as a number.
    pub(crate) fn has(&self, name: &str) -> bool {
        is_set(self.body, name)
    }

    /// The documents of a list, beside the body or in it.
    pub(crate) fn documents(&self, name: &str) -> Vec<Document<'a>> {
        let beside = self.sequences.iter().filter(|sequence| sequence.name == name);
        let mut found: Vec<Document<'a>> =
            beside.flat_map(|sequence| Documents::iter(&sequence.documents)).collect();
        for array in values(self.body, name).filter_map(|value| value.as_array()) {
            found.extend(array.iter().filter_map(|value| value.as_document()));
        }
        found
    }

    /// Asks what a declaration says of this request.
    ///
    /// Errors: Unauthorized; what a function finds wrong.
    pub(crate) fn check(&mut self, needs: &Needs) -> Result<()> {
        match *needs {
            Needs::Nothing => Ok(()),
            Needs::Cluster(action) => self.need(Resource::Cluster, action),
            Needs::Database(action) => self.need(Resource::Database(self.database), action),
            Needs::Collection(action) => self.need(self.collection(), action),
            Needs::By(function) => function(self),
        }
    }

    /// Asks for another command that this one carries, on a database.
    ///
    /// Errors: those of [`check`](Self::check).
    pub(crate) fn check_other(&mut self, database: &str, body: Document<'_>) -> Result<()> {
        let name = body.first().map_or("", |first| first.name());
        // What isn't there is the handler's to refuse, for the whole command.
        let Some(command) = command::find(name) else { return Ok(()) };
        let none = Sequences::default();
        let mut other = Asked {
            privileges: self.privileges,
            identity: self.identity,
            body,
            database,
            sequences: &none,
            activities: self.activities,
            store: self.store,
            record: self.record.take(),
        };
        let checked = other.check(&command.needs);
        let record = other.record;
        self.record = record;
        checked
    }
}

/// Every value that a document has under a name, since it may have several.
pub(crate) fn values<'a>(document: Document<'a>, name: &str) -> impl Iterator<Item = Value<'a>> {
    document.iter().filter(move |element| element.name() == name).map(|element| element.value())
}

/// Whether a field is set, be it as a number.
pub(crate) fn is_set(document: Document<'_>, name: &str) -> bool {
    values(document, name).any(|value| value.is_truthy())
}
