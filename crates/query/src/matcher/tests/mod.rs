//! Tests of typical filters against typical documents.

mod arrays;
mod comparisons;
mod errors;
mod properties;
mod shape;

use super::Matcher;
use crate::Context;
use base::bson::{DocumentBuf, extended_json};

/// Parses a document in the shell's notation.
fn document(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn parse(filter: &str) -> Matcher {
    Matcher::parse(document(filter).view(), &Context::for_tests()).unwrap_or_else(|e| panic!("{filter}: {e}"))
}

fn is_match(filter: &Matcher, text: &str) -> bool {
    filter.matches(document(text).view(), &Context::for_tests()).unwrap()
}

/// Checks that the filter matches the documents of `matching` and none of `others`.
#[track_caller]
pub(super) fn check(filter: &str, matching: &[&str], others: &[&str]) {
    let matcher = parse(filter);
    for text in matching {
        assert!(is_match(&matcher, text), "{filter} should match {text}: {matcher:?}");
    }
    for text in others {
        assert!(!is_match(&matcher, text), "{filter} should not match {text}: {matcher:?}");
    }
}

/// Checks the array position that a filter finds.
#[track_caller]
fn check_position(filter: &str, text: &str, expected: Option<usize>) {
    let found = parse(filter).matches_at(document(text).view(), &Context::for_tests()).unwrap();
    assert_eq!(found.unwrap().position, expected, "{filter} on {text}");
}

/// Checks that parsing the filter fails with this code and message.
#[track_caller]
pub(super) fn check_error(filter: &str, code: i32, message: &str) {
    let error = Matcher::parse(document(filter).view(), &Context::for_tests()).unwrap_err();
    assert_eq!((error.code().number(), error.message()), (code, message), "{filter}");
}

/// Checks the normalised form of a filter.
#[track_caller]
fn check_shape(filter: &str, expected: &str) {
    let described = parse(filter).describe();
    assert_eq!(described.view().to_string(), document(expected).view().to_string(), "{filter}");
    // The output of explain parses to a filter of equal shape (except for $not with $nor inside).
    let again = Matcher::parse(described.view(), &Context::for_tests()).unwrap();
    assert_eq!(again.describe().view().to_string(), described.view().to_string(), "{filter}");
}

#[test]
fn a_filter_can_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Matcher>();
}
