//! Tests of typical updates, and a property test against a naive model.

mod diffs;
mod errors;
mod model;
mod operators;
mod positional;
mod upserts;

use super::*;
use base::bson::{ValueBuf, extended_json};

pub(super) fn document(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Checks that the oplog's diff of an update reproduces its result byte for byte.
#[track_caller]
pub(super) fn leads(
    before: Document<'_>,
    after: Document<'_>,
    diff: Option<&DocumentBuf>,
    is_replacement: bool,
) {
    assert!(!(diff.is_some() && is_replacement));
    if let Some(diff) = diff {
        assert_eq!(crate::change::apply(before, diff.view()).unwrap().view(), after, "{diff:?}");
    }
}

/// An update in the shell's notation, with pipelines and array filters.
pub(super) struct Case {
    update: ValueBuf,
    filters: Vec<DocumentBuf>,
    position: Option<usize>,
    is_insert: bool,
}

pub(super) fn case(update: &str) -> Case {
    let wrapped = document(&format!("{{u: {update}}}"));
    let update = wrapped.view().get("u").unwrap().to_owned();
    Case { update, filters: Vec::new(), position: None, is_insert: false }
}

impl Case {
    pub(super) fn filter(mut self, filter: &str) -> Case {
        self.filters.push(document(filter));
        self
    }

    pub(super) fn at(mut self, position: usize) -> Case {
        self.position = Some(position);
        self
    }

    pub(super) fn inserting(mut self) -> Case {
        self.is_insert = true;
        self
    }

    pub(super) fn run(&self, before: &str) -> Result<Option<DocumentBuf>> {
        let context = Context::for_tests();
        let filters: Vec<_> = self.filters.iter().map(DocumentBuf::view).collect();
        let update = Update::parse(self.update.view(), &filters, &context)?;
        let before = document(before);
        let after = update.apply(before.view(), self.position, self.is_insert, &context)?;
        if let Some(after) = &after {
            base::bson::validate(after.bytes()).unwrap();
        }
        if let (Some(after), false) = (&after, self.is_insert) {
            let diff = update.diff(before.view(), after.view(), self.position, &context)?;
            leads(before.view(), after.view(), diff.as_ref(), update.is_replacement());
        }
        Ok(after)
    }

    /// Expects this diff in the oplog; an empty text means no diff.
    #[track_caller]
    pub(super) fn logs(&self, before: &str, diff: &str) {
        let context = Context::for_tests();
        let filters: Vec<_> = self.filters.iter().map(DocumentBuf::view).collect();
        let update = Update::parse(self.update.view(), &filters, &context).unwrap();
        let before = document(before);
        let after = update.apply(before.view(), self.position, false, &context).unwrap().unwrap();
        let found = update.diff(before.view(), after.view(), self.position, &context).unwrap();
        assert_eq!(found.unwrap_or_default(), document(if diff.is_empty() { "{}" } else { diff }));
    }

    /// Expects exactly this document.
    #[track_caller]
    pub(super) fn gives(&self, before: &str, after: &str) {
        let found = self.run(before).unwrap_or_else(|error| panic!("{:?}: {error}", self.update));
        let found = found.unwrap_or_else(|| panic!("{:?} on {before}: no change", self.update));
        let expected = document(after);
        assert!(found == expected, "{:?} on {before}: {found}, not {expected}", self.update);
    }

    /// Expects no change.
    #[track_caller]
    pub(super) fn keeps(&self, before: &str) {
        let found = self.run(before).unwrap_or_else(|error| panic!("{:?}: {error}", self.update));
        assert!(found.is_none(), "{:?} on {before}: {}", self.update, found.unwrap());
    }

    /// Expects an error with exactly this code and message.
    #[track_caller]
    pub(super) fn fails(&self, before: &str, code: i32, message: &str) {
        match self.run(before) {
            Ok(found) => panic!("{:?} on {before}: {found:?}, no error", self.update),
            Err(error) => {
                assert_eq!((error.code().number(), error.message()), (code, message), "{:?}", self.update);
            }
        }
    }
}
