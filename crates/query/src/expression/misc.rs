//! Sizes, hashes, new values such as random numbers and ids, metadata, and operators that are refused by name.

use super::convert::binary::UUID;
use super::evaluate::{Call, Computed, null, type_name, value};
use super::named::{Named, named_arguments};
use super::node::{CallNode, Node};
use super::parse::Parser;
use super::show;
use super::table::Operator;
use crate::MetaKind;
use base::bson::{Builder, FieldName, ObjectId, Value};
use base::encoding;
use base::hash::hash64;
use base::random::Random;
use base::{Result, bail, err};
use md5::Md5;
use sha2::{Digest, Sha256};
use twox_hash::XxHash64;

/// `$binarySize`: the size of a string or a binary in bytes. Errors: 51276 for other types.
pub(super) fn binary_size<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::String(text)) => value(text.len() as i32),
        Some(Value::Binary { bytes, .. }) => value(bytes.len() as i32),
        Some(other) => Err(err!(
            51276,
            "$binarySize requires a string or BinData argument, found: {}",
            other.kind().alias()
        )),
    }
}

/// `$bsonSize`: the size of a document in bytes. Errors: 31393 for other types.
pub(super) fn bson_size<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Document(document)) => value(document.bytes().len() as i32),
        Some(other) => {
            Err(err!(31393, "$bsonSize requires a document input, found: {}", other.kind().alias()))
        }
    }
}

/// `$toHashedIndexKey`: the hash of the value in a hashed index.
pub(super) fn hashed_index_key<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(hash64(call.get(0)?.unwrap_or(Value::Null)))
}

/// Parses `$rand`, which takes `{}` or `[]`. Errors: 3040501 for arguments, 10065 for other forms.
pub(super) fn parse_rand(
    _: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    match argument {
        Value::Document(document) if document.is_empty() => {}
        Value::Array(array) if array.is_empty() => {}
        Value::Document(_) | Value::Array(_) => {
            bail!(3040501, "$rand does not currently accept arguments");
        }
        _ => bail!(10065, "invalid parameter: expected an object ($rand)"),
    }
    Ok(Node::call(operator, Vec::new()))
}

/// Returns a new number in `[0, 1)` for each evaluation.
pub(super) fn rand<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(call.scope.context.random_unit())
}

/// Parses an operator that takes an empty object. Errors: FailedToParse for other arguments.
pub(super) fn parse_empty(
    _: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    match argument {
        Value::Document(document) if document.is_empty() => Ok(Node::call(operator, Vec::new())),
        _ => Err(err!(FailedToParse, "{} does not accept arguments", operator.name)),
    }
}

/// Returns a new ObjectId for each evaluation.
pub(super) fn create_object_id<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let (seconds, random) =
        (call.scope.context.present_millis() / 1000, call.scope.context.random().to_be_bytes());
    let [a, b, c, d, e, rest @ ..] = random;
    let counter = rest.iter().fold(0, |counter, byte| counter << 8 | u32::from(*byte));
    value(Value::ObjectId(ObjectId::from_parts(seconds as u32, [a, b, c, d, e], counter)))
}

/// Returns a new random UUID (version 4) for each evaluation.
pub(super) fn create_uuid<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let bytes = Random::new(call.scope.context.random()).uuid();
    value(Value::Binary { subtype: UUID, bytes: call.scope.bytes(&bytes)? })
}

/// Returns the time of each evaluation. `$$NOW` is the time of the whole operation.
pub(super) fn current_date<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    value(Value::DateTime(call.scope.context.present_millis()))
}

/// `$subtype`: the subtype of a binary. Errors: 10389300 for other types.
pub(super) fn subtype<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match call.get_non_null(0)? {
        None => null(),
        Some(Value::Binary { subtype, .. }) => value(i32::from(subtype)),
        Some(other) => {
            Err(err!(10389300, "$subtype requires a BinData argument, found: {}", other.kind().alias()))
        }
    }
}

pub(super) static HASH: Named = named_arguments!("$hash", ["input", "algorithm"], []);
pub(super) static HEX_HASH: Named = named_arguments!("$hexHash", ["input", "algorithm"], []);

/// Returns the hash of a string or a binary; `None` for null. Errors: 10754000 to 10754002.
fn digest(call: &Call<'_, '_>) -> Result<Option<Vec<u8>>> {
    let Some(input) = call.get_non_null(0)? else { return Ok(None) };
    let bytes = match input {
        Value::String(text) => text.as_bytes(),
        Value::Binary { bytes, .. } => bytes,
        other => bail!(
            10754000,
            "$hash requires that 'input' be a valid UTF-8 string or binData, found: {} with value {}",
            other.kind().alias(),
            show::value(other)
        ),
    };
    call.scope.context.steps(bytes.len() / 1024)?;
    Ok(Some(match call.get(1)? {
        Some(Value::String("md5")) => Md5::digest(bytes).to_vec(),
        Some(Value::String("sha256")) => Sha256::digest(bytes).to_vec(),
        Some(Value::String("xxh64")) => XxHash64::oneshot(0, bytes).to_be_bytes().to_vec(),
        Some(Value::String(other)) => bail!(
            10754002,
            "Currently, the only supported algorithms for $hash are 'md5', 'sha256' and 'xxh64', found: {other}"
        ),
        other => bail!(
            10754001,
            "$hash requires that 'algorithm' be a string, found: {} with value {}",
            type_name(other),
            show::optional(other)
        ),
    }))
}

/// `$hash`: the hash as a binary.
pub(super) fn hash<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match digest(call)? {
        None => null(),
        Some(bytes) => value(Value::Binary { subtype: 0, bytes: call.scope.bytes(&bytes)? }),
    }
}

/// `$hexHash`: the hash in upper-case hexadecimal digits.
pub(super) fn hex_hash<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    match digest(call)? {
        None => null(),
        Some(bytes) => call.scope.text(&encoding::hex_upper(&bytes)),
    }
}

/// Parses `$meta`, which takes the name of a kind of metadata. Errors: the errors of [`MetaKind::parse`].
pub(super) fn parse_meta(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    argument: Value<'_>,
) -> Result<Node> {
    let kind = MetaKind::parse(argument)?;
    parser.context.metadata.require(kind);
    Ok(Node::call(operator, vec![Node::Constant(Some(argument.to_owned()))]))
}

/// Returns metadata of the document.
pub(super) fn meta<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let Some(name) = call.get(0)? else { return Ok(None) };
    Ok(call.scope.root.get(MetaKind::parse(name)?))
}

/// Formats `$meta` with its name as given.
pub(super) fn describe_meta(call: &CallNode, name: FieldName<'_>, out: &mut Builder) {
    if let Some(Node::Constant(Some(kind))) = call.operands.first() {
        out.append(name, kind);
    }
}

/// Refuses an operator that needs server-side JavaScript or a text or geospatial index.
///
/// Errors: 238, naming the operator.
pub(super) fn refuse(_: &mut Parser<'_>, operator: &'static Operator, _: Value<'_>) -> Result<Node> {
    Err(err!(NotImplemented, "the expression {} is not supported", operator.name))
}

/// Never called: operators that are refused, or that parse to another node, have no calls.
pub(super) fn never<'a>(_: &Call<'_, 'a>) -> Computed<'a> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_parse_error, evaluate};
    use base::bson::Value;

    #[test]
    fn sizes() {
        check("{$binarySize: 'é'}", "{}", "2");
        check("{$binarySize: null}", "{}", "null");
        check_error("{$binarySize: 1}", "{}", 51276);
        check("{$bsonSize: '$$ROOT'}", "{}", "5");
        check_error("{$bsonSize: 1}", "{}", 31393);
    }

    #[test]
    fn random_numbers_are_below_one() {
        let found = evaluate("{$rand: {}}", "{}").unwrap().unwrap();
        let Value::Double(number) = found.view() else { panic!("no double") };
        assert!((0.0..1.0).contains(&number));
        check_parse_error("{$rand: {a: 1}}", 3040501);
    }

    #[test]
    fn unsupported_operators_are_refused_by_name() {
        check_parse_error("{$meta: 1}", 17307);
        check_parse_error("{$meta: 'nothing'}", 17308);
        check_parse_error("{$meta: 'searchScore'}", 40218);
        check_parse_error("{$function: {}}", 238);
    }
}
