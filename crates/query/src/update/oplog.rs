//! Updates in the format of oplog entries: `{$v: 2, diff: …}`, `{$v: 1, $set: …}`, or a replacement.

use super::replacement::Replacement;
use super::{Kind, Update, is_operators};
use crate::Context;
use crate::change;
use base::bson::{Builder, Document, DocumentBuf, Type, Value, equal};
use base::{Result, bail, err};

/// A `diff` of version 2.
#[derive(Debug)]
pub(super) struct OplogDiff(DocumentBuf);

impl OplogDiff {
    /// Applies the diff to a document.
    ///
    /// Errors: the diff's errors; ImmutableField if it changes the `_id`.
    pub(super) fn apply(&self, document: Document<'_>) -> Result<DocumentBuf> {
        let after = change::apply(document, self.0.view())?;
        match (document.get("_id"), after.view().get("_id")) {
            (Some(before), Some(after)) if equal(before, after) => Ok(()),
            (Some(_), _) => Err(err!(
                ImmutableField,
                "Performing an update on the path '_id' would modify the immutable field '_id'"
            )),
            (None, _) => Ok(()),
        }?;
        Ok(after)
    }
}

impl Update {
    /// Parses the `o` of an update in the oplog.
    ///
    /// Errors: 4772600 for a version that is not an integer, 4772601 for a diff that is not a document, 4772604 for an
    /// unknown version; errors of [`parse`](Update::parse) and of the diff.
    pub fn from_oplog(object: Document<'_>, context: &Context) -> Result<Update> {
        if !is_operators(object) {
            return Ok(Update { kind: Kind::Replacement(Replacement::logged(object)) });
        }
        let Some(version) = object.find("$v") else {
            return Update::parse(Value::Document(object), &[], context);
        };
        if !matches!(version.kind(), Type::Int32 | Type::Int64) {
            bail!(
                4772600,
                "Expected $v field to be missing or an integer, but got type: {}",
                version.kind().alias()
            );
        }
        match version.value().as_i64() {
            Some(2) => match object.get("diff") {
                Some(Value::Document(diff)) => Ok(Update { kind: Kind::Diff(OplogDiff(diff.to_owned())) }),
                other => Err(err!(
                    4772601,
                    "Expected 'diff' field to be an object, instead got type: {}",
                    other.map_or("missing", |other| other.kind().alias())
                )),
            },
            Some(1) => {
                let mut rest = Builder::new();
                for field in object.iter().filter(|field| field.name() != "$v") {
                    rest.append_element(&field);
                }
                Update::parse(Value::Document(rest.finish().view()), &[], context)
            }
            other => Err(err!(
                4772604,
                "Unrecognized value for '$v' (Version) field: {}",
                other.unwrap_or_default()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn applied(object: &str, document: &str) -> Result<Option<String>> {
        let (object, document) = (parse(object).unwrap(), parse(document).unwrap());
        let context = Context::for_tests();
        let update = Update::from_oplog(object.view(), &context)?;
        let after = update.apply(document.view(), None, false, &context)?;
        Ok(after.map(|after| after.view().to_string()))
    }

    #[test]
    fn all_versions_are_applied() {
        let cases = [
            ("{$v: 2, diff: {u: {a: 2}, i: {b: 3}}}", "{ _id: 1, a: 2, b: 3 }"),
            ("{$v: 1, $set: {a: 2}}", "{ _id: 1, a: 2 }"),
            ("{$set: {a: 3}}", "{ _id: 1, a: 3 }"),
            ("{_id: 1, c: 1}", "{ _id: 1, c: 1 }"),
            ("{_id: 1, $c: 1, $v: 3}", "{ _id: 1, $c: 1, $v: 3 }"),
        ];
        for (object, expected) in cases {
            assert_eq!(applied(object, "{_id: 1, a: 1}").unwrap().unwrap(), expected, "{object}");
        }
        assert_eq!(applied("{$v: 2, diff: {u: {a: 1}}}", "{_id: 1, a: 1}").unwrap(), None);
    }

    #[test]
    fn invalid_oplog_updates_are_refused() {
        let cases = [
            ("{$v: \"2\"}", 4772600),
            ("{$v: 2, diff: 1}", 4772601),
            ("{$v: 3, diff: {}}", 4772604),
            ("{$v: 2, diff: {u: {_id: 2}}}", 66),
        ];
        for (object, code) in cases {
            let error = applied(object, "{_id: 1, a: 1}").unwrap_err();
            assert_eq!(error.code().number(), code, "{object}");
        }
    }
}
