//! Dates: instants in milliseconds since 1970, with time zones.

pub(super) mod arithmetic;
pub(super) mod calendar;
pub(super) mod free_form;
pub(super) mod from_string;
pub(super) mod parts;
pub(super) mod to_string;
pub(super) mod zone;

use super::evaluate::Call;
use super::show;
use base::bson::Value;
use base::{Result, err};
use zone::Zone;

/// Returns the instant of a date, a timestamp or an object id; `None` for other types.
pub(super) fn to_millis(value: Value<'_>) -> Option<i64> {
    match value {
        Value::DateTime(millis) => Some(millis),
        Value::Timestamp(time) => i64::try_from(time >> 32).ok().map(|seconds| seconds * calendar::SECOND),
        Value::ObjectId(id) => Some(id.timestamp_millis()),
        _ => None,
    }
}

/// Converts a value to an instant. Errors: 16006 for other types.
fn instant(value: Value<'_>) -> Result<i64> {
    to_millis(value)
        .ok_or_else(|| err!(16006, "can't convert from BSON type {} to Date", value.kind().alias()))
}

/// Evaluates a zone operand: UTC by default, `None` if it is null.
///
/// Errors: 40517 for a value that is not a string, 40485 for an unknown zone.
fn zone(call: &Call<'_, '_>, position: usize) -> Result<Option<Zone>> {
    if !call.has_argument(position) {
        return Ok(Some(Zone::UTC));
    }
    match call.get_non_null(position)? {
        None => Ok(None),
        Some(Value::String(name)) => named_zone(name).map(Some),
        Some(other) => Err(err!(40517, "timezone must evaluate to a string, found {}", other.kind().alias())),
    }
}

/// Whether an operand is constant and null in a call that also has varying operands. A call of constants alone is
/// evaluated as a whole. Errors: errors of `read` for a constant operand.
fn is_constant_null<T>(
    call: &Call<'_, '_>,
    position: usize,
    read: fn(&Call<'_, '_>, usize) -> Result<Option<T>>,
) -> Result<bool> {
    Ok(call.is_constant(position) && !call.is_all_constant() && read(call, position)?.is_none())
}

/// Checks a constant zone of a call with varying operands; returns whether it is null. Errors: as [`zone`].
pub(super) fn check_zone(call: &Call<'_, '_>, position: usize) -> Result<bool> {
    is_constant_null(call, position, zone)
}

/// Parses a zone. Errors: 40485 for an unknown zone.
fn named_zone(name: &str) -> Result<Zone> {
    Zone::parse(name)
        .ok_or_else(|| err!(40485, "unrecognized time zone identifier: {}", show::value(Value::String(name))))
}
