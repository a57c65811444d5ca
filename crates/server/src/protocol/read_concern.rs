//! Read concerns. On one node all levels except snapshot read the same view.
//!
//! At the durability level `journaled` the reply of a majority, linearizable or snapshot read waits
//! for the journal.

use base::bson::{Document, Value};
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
                bail!(
                    BadValue,
                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                );
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
        other => Err(err!(
            BadValue,
            "Enumeration value '{other}' for field '{concern}.provenance' is not a valid value."
        )),
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
                // The primary has seen all cluster times that were ever returned.
                ("afterClusterTime", Value::Timestamp(0)) => {
                    bail!(InvalidOptions, "readConcern.afterClusterTime must not be a null timestamp");
                }
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
                    bail!(IDLUnknownField, "BSON field '{command}.readConcern.{name}' is an unknown field.");
                }
            }
        }
        match requested.at {
            Some(_) if requested.level != Some(ReadConcern::Snapshot) => Err(err!(
                InvalidOptions,
                "readConcern.atClusterTime is only supported with readConcern level snapshot"
            )),
            _ => Ok(requested),
        }
    }
}
