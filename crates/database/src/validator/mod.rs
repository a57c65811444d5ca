//! Document validation: a collection's validator, validation level and validation action.

mod details;
#[cfg(test)]
mod tests;

use self::details::Refused;
use base::bson::{Builder, Document, DocumentBuf};
use base::{Result, bail, err};
use query::Context;
use query::matcher::Matcher;

/// Condition for a collection's documents, and the reaction to documents that fail it.
pub struct Validator {
    filter: DocumentBuf,
    matcher: Matcher,
    level: Level,
    action: Action,
    /// True for a level or action given by the client, false for defaults.
    is_explicit: (bool, bool),
}

/// Writes that are checked.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) enum Level {
    /// No writes.
    Off,
    /// Inserts, and updates of documents that were valid before.
    Moderate,
    /// All writes.
    #[default]
    Strict,
}

/// Reaction to a write that fails validation.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) enum Action {
    /// Refuses the write with DocumentValidationFailure.
    #[default]
    Error,
    /// As `Error`, and logs the refusal.
    ErrorAndLog,
    /// Writes the document and logs a warning.
    Warn,
}

impl Validator {
    /// Parses a validator. Errors: errors of the filter, and BadValue for an unknown level or
    /// action.
    pub fn parse(
        filter: Document<'_>,
        level: Option<&str>,
        action: Option<&str>,
        context: &Context,
    ) -> Result<Validator> {
        let is_explicit = (level.is_some(), action.is_some());
        let (level, action) = (level.unwrap_or("strict"), action.unwrap_or("error"));
        let level = match level {
            "off" => Level::Off,
            "moderate" => Level::Moderate,
            "strict" => Level::Strict,
            _ => {
                bail!(
                    BadValue,
                    "Enumeration value '{level}' for field 'validationLevel' is not a valid value."
                );
            }
        };
        let action = match action {
            "error" => Action::Error,
            "errorAndLog" => Action::ErrorAndLog,
            "warn" => Action::Warn,
            _ => {
                bail!(
                    BadValue,
                    "Enumeration value '{action}' for field 'validationAction' is not a valid value."
                );
            }
        };
        let matcher = Matcher::parse(filter, context)?;
        Ok(Validator { filter: filter.to_owned(), matcher, level, action, is_explicit })
    }

    /// Returns the filter as given by the client.
    pub fn filter(&self) -> Document<'_> {
        self.filter.view()
    }

    /// Returns the level's name.
    pub fn level_name(&self) -> &'static str {
        match self.level {
            Level::Off => "off",
            Level::Moderate => "moderate",
            Level::Strict => "strict",
        }
    }

    /// Returns the action's name.
    pub fn action_name(&self) -> &'static str {
        match self.action {
            Action::Error => "error",
            Action::ErrorAndLog => "errorAndLog",
            Action::Warn => "warn",
        }
    }

    /// Checks a document before its write. `before` is the old version in an update.
    ///
    /// Errors: DocumentValidationFailure with its details.
    pub fn check(
        &self,
        document: Document<'_>,
        before: Option<Document<'_>>,
        context: &Context,
    ) -> Result<()> {
        if self.level == Level::Off || self.matcher.matches(document, context)? {
            return Ok(());
        }
        if let (Level::Moderate, Some(before)) = (self.level, before)
            && !self.matcher.matches(before, context)?
        {
            return Ok(());
        }
        match self.action {
            Action::Error => {}
            Action::ErrorAndLog => log::warn!("Document failed validation: {document}"),
            Action::Warn => {
                log::warn!("Document would fail validation: {document}");
                return Ok(());
            }
        }
        let mut info = Builder::new();
        info.begin_document(c"errInfo");
        if let Some(id) = document.get("_id") {
            info.append(c"failingDocumentId", id);
        }
        info.begin_document(c"details");
        Refused { document, context }.filter(&mut info, self.filter.view())?;
        info.end().end();
        Err(err!(DocumentValidationFailure, "Document failed validation").with_info(info.finish()))
    }

    /// Returns true if a stored document passes validation, or if validation is off.
    pub(crate) fn complies(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        Ok(self.level == Level::Off || self.matcher.matches(document, context)?)
    }

    /// Appends the options given by the client, as listCollections prints them.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        out.append(c"validator", &self.filter);
        if self.is_explicit.0 {
            out.append(c"validationLevel", self.level_name());
        }
        if self.is_explicit.1 {
            out.append(c"validationAction", self.action_name());
        }
    }
}
