//! Document validation: a collection's validator, validation level and validation action.

mod details;
mod schema_details;
#[cfg(test)]
mod tests;

use self::details::Refused;
use base::bson::{Builder, Document, DocumentBuf};
use base::{CompatibleWith, Error, Result, err};
use query::Context;
use query::matcher::Matcher;
use std::sync::OnceLock;

/// The option that prepares the level `constraint`.
pub(crate) const PREPARE: &std::ffi::CStr = c"prepareConstraintValidationLevel";

/// Condition for a collection's documents, and the reaction to documents that fail it.
pub struct Validator {
    filter: DocumentBuf,
    matcher: Matcher,
    /// The filter by the rules of MongoDB 9.0.
    newer: OnceLock<Matcher>,
    level: Level,
    action: Action,
    /// True for a level or action given by the client, false for defaults.
    is_explicit: (bool, bool),
    /// True if the collection is about to get the level `constraint`.
    prepares: bool,
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
    /// All writes, and no write may skip validation. No stored document is invalid.
    Constraint,
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

/// A change of a validator; fields that are `None` keep their value.
#[derive(Clone, Copy, Default)]
pub struct ValidatorChange<'a> {
    /// The condition.
    pub filter: Option<Document<'a>>,
    /// `validationLevel`.
    pub level: Option<&'a str>,
    /// `validationAction`.
    pub action: Option<&'a str>,
    /// `prepareConstraintValidationLevel`.
    pub prepares: Option<bool>,
}

impl ValidatorChange<'_> {
    /// Returns true if it changes anything.
    pub fn is_any(&self) -> bool {
        let has_text = self.level.is_some() || self.action.is_some();
        has_text || self.filter.is_some() || self.prepares.is_some()
    }

    /// Returns the changed validator; `None` for a collection without a condition.
    ///
    /// Errors: errors of the filter; BadValue for a level, an action or a combination that does not exist.
    pub(crate) fn apply(&self, now: Option<&Validator>, context: &Context) -> Result<Option<Validator>> {
        self.check(now)?;
        let filter = self.filter.or(now.map(|now| now.filter())).unwrap_or(Document::EMPTY);
        let level = self.level.or(now.map(|now| now.level_name())).unwrap_or("strict");
        let action = self.action.or(now.map(|now| now.action_name())).unwrap_or("error");
        let prepares = self.prepares.unwrap_or_else(|| now.is_some_and(|now| now.prepares));
        let changed = Validator::parse(filter, Some(level), Some(action), context)?.preparing(prepares);
        let plain = filter.is_empty() && level == "strict" && action == "error" && !changed.prepares;
        Ok(if plain { None } else { Some(changed) })
    }

    /// Returns true if the collection gets the level `constraint` and has another.
    pub(crate) fn raises(&self, now: Option<&Validator>) -> bool {
        self.level == Some("constraint") && now.is_none_or(|now| now.level != Level::Constraint)
    }

    /// Checks the change of a validator. Errors: BadValue, as in MongoDB 9.0.
    pub(crate) fn check(&self, now: Option<&Validator>) -> Result<()> {
        let prepares = now.is_some_and(|now| now.prepares);
        let is_constraint = now.is_some_and(|now| now.level == Level::Constraint);
        let keeps_level = self.level.is_none_or(|level| level == "constraint");
        Err(match self {
            _ if prepares && self.filter.is_some() => err!(
                BadValue,
                "Validator cannot be changed while prepareConstraintValidationLevel is set. To make validator changes, \
                 first run: db.runCommand({{collMod: \"<collection>\", prepareConstraintValidationLevel: false}})"
            ),
            _ if is_constraint && keeps_level && self.filter.is_some() => {
                err!(BadValue, "Validator cannot be changed when Validation level is 'constraint'")
            }
            _ if !self.raises(now) => return Ok(()),
            _ if now.is_some_and(|now| now.level != Level::Strict) => {
                err!(BadValue, "validationLevel can only be changed to 'constraint' from 'strict'")
            }
            _ if self.filter.is_some() => err!(
                BadValue,
                "Cannot change the validator in the same collMod that upgrades validationLevel to 'constraint'"
            ),
            _ if !prepares => err!(
                BadValue,
                "Cannot upgrade validationLevel to 'constraint' without first setting \
                 prepareConstraintValidationLevel to true"
            ),
            _ if self.action.or(now.map(|now| now.action_name())) == Some("warn") => warn_refused(),
            _ => return Ok(()),
        })
    }
}

/// Returns the error of a validation level that does not exist.
pub fn unknown_level(level: &str) -> Error {
    Error::unknown_value("validationLevel", level)
}

fn warn_refused() -> Error {
    err!(BadValue, "Validation action of 'warn' is not allowed when Validation level is 'constraint'")
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
            "constraint" => Level::Constraint,
            _ => return Err(unknown_level(level)),
        };
        let action = match action {
            "error" => Action::Error,
            "errorAndLog" => Action::ErrorAndLog,
            "warn" => Action::Warn,
            _ => {
                return Err(Error::unknown_value("validationAction", action));
            }
        };
        if level == Level::Constraint && action == Action::Warn {
            return Err(warn_refused());
        }
        // An expression that fails without a document fails each document.
        let matcher = Matcher::parse(filter, &context.deferring_constants())?;
        let (newer, prepares) = (OnceLock::new(), false);
        Ok(Validator { filter: filter.to_owned(), matcher, newer, level, action, is_explicit, prepares })
    }

    /// Returns the validator with or without the flag `prepareConstraintValidationLevel`.
    pub(crate) fn preparing(self, prepares: bool) -> Validator {
        Validator { prepares: prepares && self.level != Level::Constraint, ..self }
    }

    /// Returns true while the collection is about to get the level `constraint`: the validator stays, and no write may
    /// skip it.
    pub fn prepares(&self) -> bool {
        self.prepares
    }

    /// Returns the filter by the rules of the writer's version.
    fn matcher(&self, context: &Context) -> &Matcher {
        match context.compatible_with >= CompatibleWith::V9_0 {
            true => self.newer.get_or_init(|| self.matcher.with_gaps()),
            false => &self.matcher,
        }
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
            Level::Constraint => "constraint",
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

    /// Checks a document before its write. `before` is the old version in an update. `bypass` is the flag
    /// `bypassDocumentValidation`.
    ///
    /// Errors: DocumentValidationFailure with its details; BadValue for a flag that the level forbids.
    pub fn check(
        &self,
        document: Document<'_>,
        before: Option<Document<'_>>,
        bypass: bool,
        context: &Context,
    ) -> Result<()> {
        if bypass {
            return self.check_bypass();
        }
        if self.complies(document, context)? {
            return Ok(());
        }
        if let (Level::Moderate, Some(before)) = (self.level, before)
            && !self.complies(before, context)?
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
        let context = &context.deferring_constants();
        Refused { document, context }.filter(&mut info, self.filter.view(), false)?;
        info.end().end();
        Err(err!(DocumentValidationFailure, "Document failed validation").with_info(info.finish()))
    }

    fn check_bypass(&self) -> Result<()> {
        let reason = match (self.level, self.prepares) {
            (Level::Constraint, _) => "with 'constraint' validationLevel",
            (_, true) => "while prepareConstraintValidationLevel is set",
            _ => return Ok(()),
        };
        Err(err!(BadValue, "bypassDocumentValidation is not permitted {reason}"))
    }

    /// Returns true if a document passes validation, or if validation is off. A document fails if an expression fails.
    ///
    /// Errors: interruption.
    pub(crate) fn complies(&self, document: Document<'_>, context: &Context) -> Result<bool> {
        if self.level == Level::Off {
            return Ok(true);
        }
        let matched = self.matcher(context).matches(document, context);
        matched.or_else(|_| context.interrupt.check().map(|()| false))
    }

    /// Appends the options given by the client, as listCollections prints them.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        if !self.filter.view().is_empty() {
            out.append(c"validator", &self.filter);
        }
        if self.is_explicit.0 {
            out.append(c"validationLevel", self.level_name());
        }
        if self.is_explicit.1 {
            out.append(c"validationAction", self.action_name());
        }
        if self.prepares {
            out.append(PREPARE, true);
        }
    }
}
