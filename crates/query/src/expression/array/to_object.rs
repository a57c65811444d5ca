//! `$arrayToObject` and `$objectToArray`.

use super::super::evaluate::{Call, Computed, null};
use super::super::object::OrderedFields;
use super::super::show;
use super::array_or_null;
use base::bson::{Builder, Document, FieldName, Value};
use base::{Error, ErrorCode, Result, bail, err};

/// `$objectToArray`: `[{k: name, v: value}, …]`. Errors: 40390 for a value that is not a document.
pub(in super::super) fn object_to_array<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let document = match call.get_non_null(0)? {
        None => return null(),
        Some(Value::Document(document)) => document,
        Some(other) => {
            bail!(40390, "$objectToArray requires a document input, found: {}", other.kind());
        }
    };
    let mut builder = Builder::new();
    for element in document {
        call.scope.context.steps(1)?;
        builder.push_document().append(c"k", element.name()).append(c"v", element.value()).end();
    }
    call.scope.array(builder)
}

/// `$arrayToObject`: from `[[name, value], …]` or `[{k: name, v: value}, …]`. Of equal names the last value wins, in
/// the first position.
///
/// Errors: 40386 and 40391 to 40398 for other forms.
pub(in super::super) fn array_to_object<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = array_or_null(call, 0, |found| {
        err!(40386, "$arrayToObject requires an array input, found: {found}")
    })?;
    let Some(input) = input else { return null() };
    let mut pairs = OrderedFields::default();
    let mut first_is_array = None;
    for element in input.iter() {
        call.scope.context.steps(1)?;
        let (name, value) = pair(element, first_is_array)?;
        first_is_array.get_or_insert(matches!(element, Value::Array(_)));
        let name = FieldName::new(name).map_err(|_| {
            let code = if first_is_array == Some(true) { 4940400 } else { 4940401 };
            Error::new(ErrorCode::Location(code), "Key field cannot contain an embedded null byte")
        })?;
        pairs.set(name, value);
    }
    call.scope.document(pairs.build())
}

/// Returns name and value of an element. The first element determines the form of all others.
fn pair<'a>(element: Value<'a>, first_is_array: Option<bool>) -> Result<(&'a str, Value<'a>)> {
    const MIXED: &str =
        "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects.";
    let found = element.kind().alias();
    match (first_is_array, element) {
        (None | Some(true), Value::Array(array)) => {
            let parts: Vec<_> = array.iter().collect();
            let [name, value] = parts[..] else {
                let size = parts.len();
                let message =
                    format!("$arrayToObject requires an array of size 2 arrays,found array of size: {size}");
                return Err(Error::new(ErrorCode::Location(40397), message));
            };
            let name = name.as_str().ok_or_else(|| {
                let found = name.kind().alias();
                err!(
                    40395,
                    "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {found}"
                )
            })?;
            Ok((name, value))
        }
        (None | Some(false), Value::Document(document)) => named_pair(document),
        (Some(true), _) => Err(err!(40396, "{MIXED} Array was detected, now found: {found}")),
        (Some(false), _) => Err(err!(40391, "{MIXED} Object was detected, now found: {found}")),
        (None, _) => Err(err!(40398, "Unrecognised input type format for $arrayToObject: {found}")),
    }
}

/// Returns name and value of `{k: name, v: value}`. Errors: 40392 to 40394.
fn named_pair(document: Document<'_>) -> Result<(&str, Value<'_>)> {
    let count = document.iter().count();
    if count != 2 {
        bail!(
            40392,
            "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"
        );
    }
    let (Some(name), Some(value)) = (document.get("k"), document.get("v")) else {
        let found = show::document(document);
        bail!(
            40393,
            "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {found}"
        );
    };
    let name = name.as_str().ok_or_else(|| {
        let found = name.kind().alias();
        err!(
            40394,
            "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {found}"
        )
    })?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{check, check_error};

    #[test]
    fn there_and_back() {
        check("{$objectToArray: '$a'}", "{a: {x: 1, y: [2]}}", "[{k: 'x', v: 1}, {k: 'y', v: [2]}]");
        check("{$objectToArray: null}", "{}", "null");
        check_error("{$objectToArray: 1}", "{}", 40390);
        check("{$arrayToObject: '$a'}", "{a: [['x', 1], ['y', 2], ['x', 3]]}", "{x: 3, y: 2}");
        check("{$arrayToObject: '$a'}", "{a: [{k: 'x', v: 1}, {v: 2, k: 'y'}]}", "{x: 1, y: 2}");
        check("{$arrayToObject: '$a'}", "{a: []}", "{}");
        check("{$arrayToObject: '$b'}", "{}", "null");
        check_error("{$arrayToObject: '$a'}", "{a: 1}", 40386);
        check_error("{$arrayToObject: '$a'}", "{a: [1]}", 40398);
        check_error("{$arrayToObject: '$a'}", "{a: [['x']]}", 40397);
        check_error("{$arrayToObject: '$a'}", "{a: [[1, 2]]}", 40395);
        check_error("{$arrayToObject: '$a'}", "{a: [['x', 1], {k: 'y', v: 1}]}", 40396);
        check_error("{$arrayToObject: '$a'}", "{a: [{k: 'y', v: 1}, ['x', 1]]}", 40391);
        check_error("{$arrayToObject: '$a'}", "{a: [{k: 'y'}]}", 40392);
        check_error("{$arrayToObject: '$a'}", "{a: [{k: 'y', w: 1}]}", 40393);
        check_error("{$arrayToObject: '$a'}", "{a: [{k: 1, v: 1}]}", 40394);
        check_error("{$arrayToObject: '$a'}", "{a: [{k: 'a\\u0000', v: 1}]}", 4940401);
        check_error("{$arrayToObject: '$a'}", "{a: [['a\\u0000', 1]]}", 4940400);
    }
}
