//! Read preferences: which of the members that hold the data is to answer.
//!
//! One node is all there is, whatever is preferred. Over a store that has standbys a read that wants a secondary
//! gets one of those; drivers leave the choice to a mongos, which is what a front is to them.

use base::bson::{Document, Element, Type, Value};
use base::{Result, err};

/// The least that maxStalenessSeconds may say, as the specification has it.
const STALENESS_MIN: i64 = 90;

/// The modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

/// A read preference as a command gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadPreference {
    /// The mode.
    pub(crate) mode: Mode,
    /// Whether members are wanted that have tags: no standby has any.
    pub(crate) has_tags: bool,
}

impl Mode {
    fn parse(name: &str) -> Option<Mode> {
        Some(match name {
            "primary" => Mode::Primary,
            "primaryPreferred" => Mode::PrimaryPreferred,
            "secondary" => Mode::Secondary,
            "secondaryPreferred" => Mode::SecondaryPreferred,
            "nearest" => Mode::Nearest,
            _ => return None,
        })
    }

    /// The mode's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Primary => "primary",
            Mode::PrimaryPreferred => "primaryPreferred",
            Mode::Secondary => "secondary",
            Mode::SecondaryPreferred => "secondaryPreferred",
            Mode::Nearest => "nearest",
        }
    }
}

impl ReadPreference {
    /// Reads `$readPreference` of a command by its name.
    ///
    /// Errors: TypeMismatch, BadValue, IDLFailedToParse and MaxStalenessOutOfRange as MongoDB.
    pub(crate) fn parse(element: &Element<'_>, command: &str) -> Result<ReadPreference> {
        let document = element.value().as_document().ok_or_else(|| {
            err!(
                TypeMismatch,
                "BSON field '{}.{}' is the wrong type '{}', expected type 'object'",
                command,
                element.name(),
                element.kind().alias()
            )
        })?;
        let mode = mode(document)?;
        let has_tags = tags(document)?;
        if has_tags && mode == Mode::Primary {
            return Err(err!(BadValue, "Only empty tags are allowed with primary read preference"));
        }
        if staleness(document)? > 0 && mode == Mode::Primary {
            return Err(err!(BadValue, "maxStalenessSeconds can not be set for the primary mode"));
        }
        Ok(ReadPreference { mode, has_tags })
    }

    /// Whether a secondary may answer.
    pub(crate) fn secondary_ok(self) -> bool {
        self.mode != Mode::Primary
    }
}

fn mode(document: Document<'_>) -> Result<Mode> {
    match document.get("mode") {
        Some(Value::String(name)) => Mode::parse(name).ok_or_else(|| {
            err!(
                BadValue,
                "Enumeration value '{name}' for field '$readPreference.mode' is not a valid value."
            )
        }),
        Some(other) => Err(wrong_type("mode", other.kind(), "'string'")),
        None => {
            Err(err!(IDLFailedToParse, "BSON field '$readPreference.mode' is missing but a required field"))
        }
    }
}

/// Whether only members with tags suit: none of the sets is the empty one.
fn tags(document: Document<'_>) -> Result<bool> {
    let Some(value) = document.get("tags") else { return Ok(false) };
    let sets = value.as_array().ok_or_else(|| wrong_type("tags", value.kind(), "'array'"))?;
    let is_any = |set: Value<'_>| set.as_document().is_some_and(|set| set.is_empty());
    Ok(sets.iter().next().is_some() && !sets.iter().any(is_any))
}

/// Any that is allowed suits: no standby is read from that is further behind than the least of them.
fn staleness(document: Document<'_>) -> Result<i64> {
    let Some(value) = document.get("maxStalenessSeconds") else { return Ok(0) };
    let number = value.as_number().ok_or_else(|| {
        wrong_type("maxStalenessSeconds", value.kind(), "types '[long, int, decimal, double']")
    })?;
    match number.to_i64_clamped() {
        i64::MIN..=-1 => Err(err!(BadValue, "maxStalenessSeconds must be a non-negative integer")),
        1..STALENESS_MIN => {
            Err(err!(MaxStalenessOutOfRange, "maxStalenessSeconds value cannot be less than {STALENESS_MIN}"))
        }
        seconds => Ok(seconds),
    }
}

fn wrong_type(name: &str, kind: Type, expected: &str) -> base::Error {
    err!(
        TypeMismatch,
        "BSON field '$readPreference.{name}' is the wrong type '{}', expected type {expected}",
        kind.alias()
    )
}
