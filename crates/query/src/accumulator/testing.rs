//! Test helpers: fold values in the shell's notation.

use super::Accumulation;
use crate::{Arena, Context};
use base::Result;
use base::bson::{Builder, DocumentBuf, Value, ValueBuf, extended_json};

fn parse(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn fold(spec: &str, values: &str) -> Result<ValueBuf> {
    let context = Context::for_tests();
    let spec = parse(spec);
    let accumulation = Accumulation::parse(&spec.view().first().unwrap(), &context)?;
    let mut running = accumulation.start(Value::Null, &context)?;
    let values = parse(&format!("{{v: {values}}}"));
    for value in values.view().get("v").unwrap().as_array().unwrap().iter() {
        let mut builder = Builder::new();
        builder.append(c"a", value);
        let document = builder.finish();
        let arena = Arena::new();
        running.add(accumulation.argument(document.view().into(), &context, &arena)?)?;
    }
    running.finish()
}

/// Checks the result of an accumulator over documents whose `a` are these values.
#[track_caller]
pub(crate) fn folds(spec: &str, values: &str, expected: &str) {
    let result = fold(spec, values).unwrap_or_else(|error| panic!("{spec} over {values}: {error}"));
    let expected = parse(&format!("{{v: {expected}}}"));
    let expected = expected.view().get("v").unwrap().to_owned();
    assert_eq!(
        (result.kind(), result.bytes()),
        (expected.kind(), expected.bytes()),
        "{spec} over {values}: {result:?}"
    );
}

/// Checks that the specification is refused.
#[track_caller]
pub(crate) fn refuses(spec: &str, code: i32, message: &str) {
    let error =
        Accumulation::parse(&parse(spec).view().first().unwrap(), &Context::for_tests()).err().unwrap();
    assert_eq!(error.code().number(), code, "{error}");
    assert!(error.message().contains(message), "{error}");
}

/// Checks that a value is refused.
#[track_caller]
pub(crate) fn folding_fails(spec: &str, values: &str, code: i32) {
    assert_eq!(fold(spec, values).err().unwrap().code().number(), code);
}
