//! Read concern and read preference: what a read sees, and which member runs it.
//!
//! On one node all levels except snapshot read the same view. At the durability level `journaled` the reply of a
//! majority, linearizable or snapshot read waits for the journal.
//!
//! A single node ignores read preferences. Over a store with standbys, a read that prefers a secondary runs on
//! a standby. Drivers leave the choice to a mongos, and a front acts as one.

use base::bson::{Builder, Document, Element, Type, Value};
use base::{Error, Result, bail, err};

/// Levels of a read concern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub(crate) enum ReadConcern {
    Local,
    Available,
    Majority,
    Linearizable,
    Snapshot,
}

/// The read concern of a command.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RequestedReadConcern {
    /// Level, if given.
    pub(crate) level: Option<ReadConcern>,
    /// Cluster time of a snapshot read.
    pub(crate) at: Option<u64>,
    /// Cluster time that the read must not precede.
    pub(crate) after: Option<u64>,
    /// True if the document has any field.
    pub(crate) is_given: bool,
}

impl ReadConcern {
    /// Returns the name of the level.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReadConcern::Local => "local",
            ReadConcern::Available => "available",
            ReadConcern::Majority => "majority",
            ReadConcern::Linearizable => "linearizable",
            ReadConcern::Snapshot => "snapshot",
        }
    }

    /// Returns true if the level guarantees that no crash reverts the read data.
    pub(crate) fn is_durable(self) -> bool {
        matches!(self, ReadConcern::Majority | ReadConcern::Linearizable | ReadConcern::Snapshot)
    }

    /// Parses a level.
    ///
    /// Errors: BadValue, TypeMismatch.
    pub(crate) fn parse(value: Value<'_>) -> Result<ReadConcern> {
        Ok(match value.as_str() {
            Some("local") => ReadConcern::Local,
            Some("available") => ReadConcern::Available,
            Some("majority") => ReadConcern::Majority,
            Some("linearizable") => ReadConcern::Linearizable,
            Some("snapshot") => ReadConcern::Snapshot,
            Some(other) => {
                return Err(Error::unknown_value("readConcern.level", other));
            }
            None => {
                return Err(Error::wrong_type("readConcern.level", value.kind(), "string"));
            }
        })
    }
}

/// Checks the `provenance` of a concern.
///
/// Errors: BadValue.
pub(crate) fn check_provenance(concern: &str, provenance: &str) -> Result<()> {
    match provenance {
        "clientSupplied" | "implicitDefault" | "customDefault" | "getLastErrorDefaults" => Ok(()),
        other => Err(Error::unknown_value(format_args!("{concern}.provenance"), other)),
    }
}

impl RequestedReadConcern {
    /// Parses the `readConcern` of a command. `command` is its name for errors.
    ///
    /// Errors: TypeMismatch; IDLUnknownField; InvalidOptions; an invalid level.
    pub(crate) fn parse(document: Document<'_>, command: &str) -> Result<RequestedReadConcern> {
        let mut requested =
            RequestedReadConcern { is_given: !document.is_empty(), ..RequestedReadConcern::default() };
        for field in document {
            match (field.name(), field.value()) {
                ("level", value) if value.is_nullish() => {}
                ("level", value) => requested.level = Some(ReadConcern::parse(value)?),
                ("afterClusterTime", Value::Timestamp(time)) => requested.after = Some(time),
                ("atClusterTime", Value::Timestamp(time)) => requested.at = Some(time),
                ("provenance", value) if value.is_nullish() => {}
                ("provenance", Value::String(provenance)) => {
                    check_provenance("readConcern", provenance)?;
                }
                (name @ ("afterClusterTime" | "atClusterTime" | "provenance"), value) => {
                    let expected = if name == "provenance" { "string" } else { "timestamp" };
                    return Err(Error::wrong_type(
                        format_args!("{command}.readConcern.{name}"),
                        value.kind(),
                        expected,
                    ));
                }
                (name, _) => {
                    return Err(Error::unknown_field(format_args!("{command}.readConcern.{name}")));
                }
            }
        }
        match requested.conflict() {
            Some(message) => Err(err!(InvalidOptions, "{message}")),
            None => Ok(requested),
        }
    }

    /// Returns MongoDB's message about fields that contradict each other.
    fn conflict(&self) -> Option<&'static str> {
        let RequestedReadConcern { level, at, after, .. } = *self;
        Some(match level {
            _ if after.is_some() && at.is_some() => {
                "Specifying a timestamp for readConcern snapshot in a causally consistent session is not allowed. See \
                 https://docs.mongodb.com/manual/core/read-isolation-consistency-recency/#causal-consistency"
            }
            Some(ReadConcern::Available | ReadConcern::Linearizable) if after.is_some() => {
                "afterClusterTime field can be set only if level is equal to majority, local, or snapshot"
            }
            level if at.is_some() && level != Some(ReadConcern::Snapshot) => {
                "atClusterTime field can be set only if level is equal to snapshot"
            }
            // Null is a time without seconds here, and without any value below.
            _ if at.is_some_and(|at| at >> 32 == 0) => "atClusterTime cannot be a null timestamp",
            _ if after == Some(0) => "afterClusterTime cannot be a null timestamp",
            _ => return None,
        })
    }

    /// Returns the read concern as MongoDB's errors show it.
    pub(crate) fn text(&self) -> String {
        let mut out = Builder::new();
        out.begin_document(c"readConcern");
        out.append_optional(c"level", self.level.map(|level| Value::String(level.name())));
        out.append_optional(c"afterClusterTime", self.after.map(Value::Timestamp));
        out.append_optional(c"atClusterTime", self.at.map(Value::Timestamp));
        out.append(c"provenance", "clientSupplied").end();
        out.finish().view().to_string()
    }
}

/// Minimum of maxStalenessSeconds in the driver specification.
const STALENESS_MIN: i64 = 90;

/// Modes of a read preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

/// The read preference of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadPreference {
    pub(crate) mode: Mode,
    /// True if the preference requires tags. No standby has tags.
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

    /// Returns the name of the mode.
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
    /// Parses `$readPreference`. `command` is the command's name for errors.
    ///
    /// Errors: TypeMismatch, BadValue, IDLFailedToParse and MaxStalenessOutOfRange as MongoDB.
    pub(crate) fn parse(element: &Element<'_>, command: &str) -> Result<ReadPreference> {
        let document = element.value().as_document().ok_or_else(|| {
            Error::wrong_type(format_args!("{}.{}", command, element.name()), element.kind(), "object")
        })?;
        let mode = mode(document)?;
        let has_tags = tags(document)?;
        if has_tags && mode == Mode::Primary {
            bail!(BadValue, "Only empty tags are allowed with primary read preference");
        }
        if staleness(document)? > 0 && mode == Mode::Primary {
            bail!(BadValue, "maxStalenessSeconds can not be set for the primary mode");
        }
        Ok(ReadPreference { mode, has_tags })
    }

    /// Returns true if a secondary may run the read.
    pub(crate) fn secondary_ok(self) -> bool {
        self.mode != Mode::Primary
    }
}

fn mode(document: Document<'_>) -> Result<Mode> {
    match document.get("mode") {
        Some(Value::String(name)) => {
            Mode::parse(name).ok_or_else(|| Error::unknown_value("$readPreference.mode", name))
        }
        Some(other) => Err(wrong_type("mode", other.kind(), "string")),
        None => Err(Error::missing_field("$readPreference.mode")),
    }
}

/// Returns true if only members with tags match, because no tag set is empty.
fn tags(document: Document<'_>) -> Result<bool> {
    let Some(value) = document.get("tags") else { return Ok(false) };
    let sets = value.as_array().ok_or_else(|| wrong_type("tags", value.kind(), "array"))?;
    let is_any = |set: Value<'_>| set.as_document().is_some_and(|set| set.is_empty());
    Ok(sets.iter().next().is_some() && !sets.iter().any(is_any))
}

/// Checks maxStalenessSeconds. Each valid value is satisfied, since no standby lags more than the
/// minimum.
fn staleness(document: Document<'_>) -> Result<i64> {
    let Some(value) = document.get("maxStalenessSeconds") else { return Ok(0) };
    let number = value
        .as_number()
        .ok_or_else(|| wrong_type("maxStalenessSeconds", value.kind(), "[long, int, decimal, double"))?;
    match number.to_i64_clamped() {
        i64::MIN..=-1 => Err(err!(BadValue, "maxStalenessSeconds must be a non-negative integer")),
        1..STALENESS_MIN => {
            Err(err!(MaxStalenessOutOfRange, "maxStalenessSeconds value cannot be less than {STALENESS_MIN}"))
        }
        seconds => Ok(seconds),
    }
}

fn wrong_type(name: &str, kind: Type, expected: &str) -> Error {
    Error::wrong_type(format_args!("$readPreference.{name}"), kind, expected)
}
