//! Options of a change stream: the specification of `$changeStream`, and its namespace.
//!
//! ```text
//! {$changeStream: {
//!     resumeAfter: <token>, startAfter: <token>, startAtOperationTime: <timestamp>,    at most one
//!     fullDocument: "default" | "updateLookup" | "whenAvailable" | "required",
//!     fullDocumentBeforeChange: "off" | "whenAvailable" | "required",
//!     allChangesForCluster: <boolean>,
//!     showExpandedEvents: <boolean>, showSystemEvents: <boolean>, showRawUpdateDescription: <boolean>,
//! }}
//! ```
//!
//! All options are optional. MongoDB's internal options are accepted too.

use super::token::{ResumeToken, TokenParts};
use base::bson::{Document, Element, Type, Value};
use base::{Error, Namespace, Result, bail};

/// `fullDocument`: the document returned with updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FullDocument {
    /// No document.
    #[default]
    Default,
    /// The current document when the event is built.
    UpdateLookup,
    /// The document after the update, or null if it is no longer available.
    WhenAvailable,
    /// The document after the update; an error if it is not available.
    Required,
}

/// `fullDocumentBeforeChange`: the document before the change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BeforeChange {
    /// No document.
    #[default]
    Off,
    /// The document before the change, or null if it is no longer available.
    WhenAvailable,
    /// The document before the change; an error if it is not available.
    Required,
}

/// The specification of a change stream.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Resume after the event of this token.
    pub resume_after: Option<ResumeToken>,
    /// As `resume_after`, but also after an invalidation.
    pub start_after: Option<ResumeToken>,
    /// Start at this cluster time.
    pub start_at: Option<u64>,
    /// The document returned with updates.
    pub full_document: FullDocument,
    /// The document returned with updates, replacements and deletes.
    pub before_change: BeforeChange,
    /// Watch all databases.
    pub all_changes: bool,
    /// Allow a stream on `config`.
    pub on_config: bool,
    /// Allow a stream on a system collection.
    pub on_system: bool,
    /// Show events of some system collections.
    pub show_system: bool,
    /// Show updates in the oplog's format.
    pub raw_updates: bool,
    /// Show events of collections, indexes and views.
    pub expanded: bool,
}

/// The namespace of a change stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// A collection.
    Collection(Namespace),
    /// All collections of a database.
    Database(String),
    /// All collections of all databases.
    Deployment,
}

impl Scope {
    /// Returns the scope of a namespace. The collection `$cmd.aggregate` means the whole database.
    pub fn of(namespace: &Namespace) -> Scope {
        match (namespace.database(), namespace.collection()) {
            ("admin", _) => Scope::Deployment,
            (database, "$cmd.aggregate") => Scope::Database(database.to_string()),
            _ => Scope::Collection(namespace.clone()),
        }
    }
}

impl Spec {
    /// Parses the specification of the stage.
    ///
    /// Errors: 6188500 if it is not a document, 40415 for unknown fields, TypeMismatch, BadValue for unknown modes,
    /// errors of resume tokens.
    pub fn parse(spec: &Element<'_>) -> Result<Spec> {
        let Value::Document(fields) = spec.value() else {
            bail!(6188500, "$changeStream stage expects a document as argument");
        };
        let mut parsed = Spec::default();
        for field in fields {
            match field.name() {
                "resumeAfter" => parsed.resume_after = Some(ResumeToken::parse(document(&field)?)?),
                "startAfter" => parsed.start_after = Some(ResumeToken::parse(document(&field)?)?),
                "startAtOperationTime" => match field.value() {
                    Value::Timestamp(time) => parsed.start_at = Some(time),
                    _ => return Err(mistyped(&field, Type::Timestamp)),
                },
                "fullDocument" => parsed.full_document = full_document(&field)?,
                "fullDocumentBeforeChange" => parsed.before_change = before_change(&field)?,
                "allChangesForCluster" => parsed.all_changes = flag(&field)?,
                "allowToRunOnConfigDB" => parsed.on_config = flag(&field)?,
                "allowToRunOnSystemNS" => parsed.on_system = flag(&field)?,
                "showSystemEvents" => parsed.show_system = flag(&field)?,
                "showRawUpdateDescription" => parsed.raw_updates = flag(&field)?,
                "showExpandedEvents" => parsed.expanded = flag(&field)?,
                // Accepted without effect: chunks migrate only between shards, and lookups always match the collection.
                "showMigrationEvents" | "matchCollectionUUIDForUpdateLookup" => drop(flag(&field)?),
                other => {
                    return Err(Error::unknown_field(format_args!("$changeStream.{other}")));
                }
            }
        }
        Ok(parsed)
    }

    /// Checks that a stream with this specification may be opened on a namespace.
    ///
    /// Errors: InvalidOptions, InvalidNamespace, InvalidResumeToken, 50865 and 40674 as in MongoDB.
    pub fn check(&self, namespace: &Namespace) -> Result<()> {
        let (database, collection) = (namespace.database(), namespace.collection());
        let is_database = collection == "$cmd.aggregate";
        if self.all_changes && !(database == "admin" && is_database) {
            bail!(
                InvalidOptions,
                "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, \
                 and with no collection name; found {namespace}"
            );
        }
        let internal = match database {
            "admin" => !self.all_changes,
            "local" => true,
            "config" => !self.on_config,
            _ => false,
        };
        if internal {
            bail!(InvalidNamespace, "$changeStream may not be opened on the internal {database} database");
        }
        if collection.starts_with("system.") && !self.on_system {
            bail!(InvalidNamespace, "$changeStream may not be opened on the internal {namespace} collection");
        }
        if self.resume_after.is_some() && self.start_after.is_some() {
            bail!(50865, "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage");
        }
        let Some(token) = self.token().map(ResumeToken::parts).transpose()? else { return Ok(()) };
        self.check_token(&token, is_database)
    }

    /// Checks a resume token against the other options. `is_database` means a stream on a database
    /// or the deployment, which accepts tokens without a UUID.
    ///
    /// Errors: 40674 with a second starting point; InvalidResumeToken.
    fn check_token(&self, token: &TokenParts, is_database: bool) -> Result<()> {
        if self.start_at.is_some() {
            bail!(40674, "Only one type of resume option is allowed, but multiple were found");
        }
        if self.resume_after.is_some() && token.from_invalidate {
            bail!(
                InvalidResumeToken,
                "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate \
                 notification"
            );
        }
        if !is_database && token.is_event && token.uuid.is_none() {
            bail!(
                InvalidResumeToken,
                "Attempted to resume a single-collection stream, but the resume token does not include a UUID"
            );
        }
        Ok(())
    }

    /// The token to resume after, if given.
    pub fn token(&self) -> Option<&ResumeToken> {
        self.start_after.as_ref().or(self.resume_after.as_ref())
    }
}

fn document<'a>(field: &Element<'a>) -> Result<Document<'a>> {
    field.value().as_document().ok_or_else(|| mistyped(field, Type::Document))
}

fn flag(field: &Element<'_>) -> Result<bool> {
    match field.value() {
        Value::Boolean(flag) => Ok(flag),
        _ => Err(mistyped(field, Type::Boolean)),
    }
}

fn text<'a>(field: &Element<'a>) -> Result<&'a str> {
    field.value().as_str().ok_or_else(|| mistyped(field, Type::String))
}

fn full_document(field: &Element<'_>) -> Result<FullDocument> {
    match text(field)? {
        "default" => Ok(FullDocument::Default),
        "updateLookup" => Ok(FullDocument::UpdateLookup),
        "whenAvailable" => Ok(FullDocument::WhenAvailable),
        "required" => Ok(FullDocument::Required),
        other => Err(no_such(field, other)),
    }
}

fn before_change(field: &Element<'_>) -> Result<BeforeChange> {
    match text(field)? {
        "off" => Ok(BeforeChange::Off),
        "whenAvailable" => Ok(BeforeChange::WhenAvailable),
        "required" => Ok(BeforeChange::Required),
        other => Err(no_such(field, other)),
    }
}

fn no_such(field: &Element<'_>, value: &str) -> Error {
    Error::unknown_value(format_args!("$changeStream.{}", field.name()), value)
}

fn mistyped(field: &Element<'_>, expected: Type) -> Error {
    Error::wrong_type(format_args!("$changeStream.{}", field.name()), field.kind(), expected.alias())
}
