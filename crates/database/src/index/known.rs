//! Specifications of indexes that were checked before.
//!
//! Test suites create the same collections with the same indexes before each test, and checking what createIndexes is given
//! was a third of its instructions. What a specification says depends on nothing but its bytes, unless it takes a
//! collation from the collection or has a filter: those are checked each time.

use super::spec::IndexSpec;
use base::bson::Document;
use base::{Namespace, Result};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use query::Context;
use std::collections::HashMap;
use std::sync::Arc;

/// How many are kept; the next one forgets them all.
const MOST: usize = 256;

/// Longer ones are not kept, in bytes.
const LONGEST: usize = 512;

/// The specifications of a database that are kept, by their bytes.
#[derive(Default)]
pub(crate) struct KnownSpecs(Mutex<HashMap<Box<[u8]>, Arc<IndexSpec>, RandomState>>);

impl KnownSpecs {
    /// What [`IndexSpec::parse`] says of a specification.
    ///
    /// Errors: those of `parse`.
    pub(crate) fn parse(
        &self,
        specification: Document<'_>,
        namespace: &Namespace,
        context: &Context,
    ) -> Result<Arc<IndexSpec>> {
        let bytes = specification.bytes();
        if !context.collation.is_simple() || bytes.len() > LONGEST {
            return IndexSpec::parse(specification, namespace, context).map(Arc::new);
        }
        if let Some(known) = self.0.lock().get(bytes) {
            return Ok(known.clone());
        }
        let spec = Arc::new(IndexSpec::parse(specification, namespace, context)?);
        if spec.partial.is_none() {
            let mut known = self.0.lock();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(bytes.into(), spec.clone());
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;
    use query::Collation;

    fn context(collation: &str) -> Context {
        let collation = extended_json::parse(collation).unwrap();
        let context = Context::for_tests();
        match collation.view().is_empty() {
            true => context,
            false => context.with_collation(Collation::parse(collation.view(), "collation").unwrap()),
        }
    }

    #[test]
    fn what_was_checked_before_is_not_checked_again_unless_more_than_its_bytes_counts() {
        let known = KnownSpecs::default();
        let namespace = Namespace::parse("test.c").unwrap();
        let simple = context("{}");
        let again = |spec: &str, second: &Context| {
            let spec = extended_json::parse(spec).unwrap();
            let first = known.parse(spec.view(), &namespace, &simple).unwrap();
            let second = known.parse(spec.view(), &namespace, second).unwrap();
            (Arc::ptr_eq(&first, &second), second)
        };
        let plain = "{key: {a: 1}, name: 'a_1'}";
        assert!(again(plain, &simple).0);
        let (same, spec) = again(plain, &context("{locale: 'de'}"));
        assert!(!same && !spec.collation.is_simple(), "the collection has a collation");
        assert!(
            again("{key: {a: 1}, name: 'a_1', collation: {locale: 'de'}}", &simple).0,
            "the index has one"
        );
        assert!(!again("{key: {a: 1}, name: 'a_1', partialFilterExpression: {b: 1}}", &simple).0);
        assert!(again("{key: {a: 1}, name: 'a_1', unique: true}", &simple).1.unique);
        assert!(!again(plain, &simple).1.unique);
    }

    #[test]
    fn only_so_many_are_kept_and_what_is_refused_is_refused_again() {
        let known = KnownSpecs::default();
        let namespace = Namespace::parse("test.c").unwrap();
        let context = context("{}");
        for number in 0..3 * MOST {
            let spec = extended_json::parse(&format!("{{key: {{a: 1}}, name: 'a{number}'}}")).unwrap();
            known.parse(spec.view(), &namespace, &context).unwrap();
            assert!(known.0.lock().len() <= MOST);
        }
        let wrong = extended_json::parse("{key: {a: 0}, name: 'a'}").unwrap();
        for _ in 0..2 {
            assert!(known.parse(wrong.view(), &namespace, &context).is_err());
        }
    }
}
