//! Updates as clients write them, and a property against a naive model.

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

/// An update in the shell's notation, pipelines and array filters included.
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
        Ok(after)
    }

    /// Expects this document, bytes and all.
    #[track_caller]
    pub(super) fn gives(&self, before: &str, after: &str) {
        let found = self.run(before).unwrap_or_else(|error| panic!("{:?}: {error}", self.update));
        let found = found.unwrap_or_else(|| panic!("{:?} on {before}: no change", self.update));
        let expected = document(after);
        assert!(found == expected, "{:?} on {before}: {found}, not {expected}", self.update);
    }

    /// Expects that nothing changes.
    #[track_caller]
    pub(super) fn keeps(&self, before: &str) {
        let found = self.run(before).unwrap_or_else(|error| panic!("{:?}: {error}", self.update));
        assert!(found.is_none(), "{:?} on {before}: {}", self.update, found.unwrap());
    }

    /// Expects an error with this code and exactly this message.
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
