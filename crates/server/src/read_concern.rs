//! Read concerns: how settled the data must be that a command reads. On one node all levels but snapshot read the same
//! view. At the durability level `journaled` the reply of a majority, linearizable or snapshot read waits for the journal.

use base::bson::{Document, Value};
use base::{Result, err};

/// The levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub(crate) enum ReadConcern {
    Local,
    Available,
    Majority,
    Linearizable,
    Snapshot,
}

/// A read concern as a command gave it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Asked {
    /// The level, where one was given.
    pub(crate) level: Option<ReadConcern>,
    /// The cluster time that a snapshot read names.
    pub(crate) at: Option<u64>,
    /// The cluster time that must have been reached.
    pub(crate) after: Option<u64>,
    /// Whether it says anything at all.
    pub(crate) says_something: bool,
}

impl ReadConcern {
    /// The level's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReadConcern::Local => "local",
            ReadConcern::Available => "available",
            ReadConcern::Majority => "majority",
            ReadConcern::Linearizable => "linearizable",
            ReadConcern::Snapshot => "snapshot",
        }
    }

    /// Whether it promises that no crash undoes what is read.
    pub(crate) fn is_durable(self) -> bool {
        matches!(self, ReadConcern::Majority | ReadConcern::Linearizable | ReadConcern::Snapshot)
    }

    /// Reads a level.
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
                return Err(err!(
                    BadValue,
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                ));
            }
            None => {
                return Err(err!(
                    TypeMismatch,
                    "BSON field 'readConcern.level' is the wrong type '{}', expected type 'string'",
                    value.kind().alias()
                ));
            }
        })
    }
}

/// Checks who a concern says that it comes from.
///
/// Errors: BadValue.
pub(crate) fn check_provenance(concern: &str, provenance: &str) -> Result<()> {
    match provenance {
        "clientSupplied" | "implicitDefault" | "customDefault" | "getLastErrorDefaults" => Ok(()),
        other => Err(err!(
            BadValue,
            "Enumeration value '{other}' for field '{concern}.provenance' is not a valid value."
        )),
    }
}

impl Asked {
    /// Reads the `readConcern` of a command by its name.
    ///
    /// Errors: TypeMismatch; IDLUnknownField; InvalidOptions; those of the level.
    pub(crate) fn parse(document: Document<'_>, command: &str) -> Result<Asked> {
        let mut asked = Asked { says_something: !document.is_empty(), ..Asked::default() };
        for field in document {
            match (field.name(), field.value()) {
                ("level", value) if value.is_nullish() => {}
                ("level", value) => asked.level = Some(ReadConcern::parse(value)?),
                // Whoever takes the writes has seen every cluster time that has been given out.
                ("afterClusterTime", Value::Timestamp(0)) => {
                    return Err(err!(
                        InvalidOptions,
                        "readConcern.afterClusterTime must not be a null timestamp"
                    ));
                }
                ("afterClusterTime", Value::Timestamp(time)) => asked.after = Some(time),
                ("atClusterTime", Value::Timestamp(time)) => asked.at = Some(time),
                ("provenance", value) if value.is_nullish() => {}
                ("provenance", Value::String(provenance)) => {
                    check_provenance("readConcern", provenance)?;
                }
                (name @ ("afterClusterTime" | "atClusterTime" | "provenance"), value) => {
                    let wanted = if name == "provenance" { "string" } else { "timestamp" };
                    return Err(err!(
                        TypeMismatch,
                        "BSON field '{command}.readConcern.{name}' is the wrong type '{}', expected type '{wanted}'",
                        value.kind().alias()
                    ));
                }
                (name, _) => {
                    return Err(err!(
                        IDLUnknownField,
                        "BSON field '{command}.readConcern.{name}' is an unknown field."
                    ));
                }
            }
        }
        match asked.at {
            Some(_) if asked.level != Some(ReadConcern::Snapshot) => Err(err!(
                InvalidOptions,
                "readConcern.atClusterTime is only supported with readConcern level snapshot"
            )),
            _ => Ok(asked),
        }
    }
}
