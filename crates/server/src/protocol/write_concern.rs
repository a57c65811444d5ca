//! Write concerns: parsing, defaults, and unsatisfiable concerns.
//!
//! A write without a concern gets the default of setDefaultRWConcern. Without it, the default is
//! the majority on a replica set and one node on a standalone, as in MongoDB since 5.0. The
//! majority of one node means its journal.
//!
//! `commands/data.rs` waits as a concern requires. A new field is a case of [`WriteConcern::parse`] and a line of
//! [`WriteConcern::append_to`].

use crate::protocol::read_concern::check_provenance;
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use base::{Error, Result, bail, err};
use database::AcknowledgmentLevel;
use std::time::Duration;

/// Maximum number of members in a replica set.
const MEMBERS_MAX: i64 = 50;

/// The write concern of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WriteConcern {
    /// Number of members, if given.
    pub(crate) w: Option<Acknowledgement>,
    /// True if the write must be synced in the journal.
    pub(crate) journal: Option<bool>,
    /// True if the client used `fsync` for it.
    fsync: bool,
    /// Timeout in milliseconds; zero is unlimited.
    pub(crate) timeout_millis: i64,
}

/// The `w` of a write concern.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Acknowledgement {
    /// A number of members.
    Members(i64),
    Majority,
    /// A named mode of the set's configuration, which has none.
    Named(String),
    /// Numbers of values for tags of the set's configuration, which has none.
    Tags(DocumentBuf),
}

/// Source of a write concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provenance {
    /// The command.
    Client,
    /// setDefaultRWConcern.
    CustomDefault,
    /// MongoDB's default.
    ImplicitDefault,
}

/// A write concern with defaults.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effective {
    concern: WriteConcern,
    provenance: Provenance,
}

impl WriteConcern {
    /// Returns the majority concern without a timeout.
    pub(crate) fn majority() -> WriteConcern {
        WriteConcern { w: Some(Acknowledgement::Majority), ..WriteConcern::default() }
    }

    /// Returns the concern of one member, which waits for nothing.
    pub(crate) fn one() -> WriteConcern {
        WriteConcern { w: Some(Acknowledgement::Members(1)), ..WriteConcern::default() }
    }

    /// Parses `{w, j, fsync, wtimeout}`. An empty document is the empty concern.
    ///
    /// Errors: FailedToParse, TypeMismatch and IDLUnknownField as MongoDB.
    pub(crate) fn parse(document: Document<'_>) -> Result<WriteConcern> {
        let mut concern = WriteConcern::default();
        let mut requested = [None; 2];
        for field in document {
            let value = field.value();
            match field.name() {
                "w" => concern.w = Some(Acknowledgement::parse(value)?),
                name @ ("j" | "fsync") => {
                    if value.is_nullish() {
                        continue;
                    }
                    if value.as_number().is_none() && value.as_bool().is_none() {
                        bail!(TypeMismatch, "{name} must be numeric or a boolean value");
                    }
                    requested[usize::from(name == "fsync")] = Some(value.is_truthy());
                }
                "wtimeout" | "wtimeoutMS" => {
                    let millis = value.as_number().map_or(0, |number| number.to_i64_clamped());
                    if millis > i64::from(i32::MAX) {
                        bail!(FailedToParse, "wtimeout must be at most {}", i32::MAX);
                    }
                    concern.timeout_millis = millis.clamp(0, i64::from(i32::MAX));
                }
                "provenance" if value.is_nullish() => {}
                "provenance" => match value.as_str() {
                    Some(provenance) => check_provenance("writeConcern", provenance)?,
                    None => {
                        return Err(Error::wrong_type("writeConcern.provenance", value.kind(), "string"));
                    }
                },
                "getLastError" => {}
                name => {
                    return Err(Error::unknown_field(format_args!("writeConcern.{name}")));
                }
            }
        }
        let [journal, fsync] = requested;
        concern.fsync = fsync == Some(true);
        concern.journal = match journal {
            Some(true) if concern.fsync => {
                bail!(FailedToParse, "fsync and j options cannot be used together");
            }
            journal => {
                if concern.fsync {
                    Some(true)
                } else {
                    journal
                }
            }
        };
        if concern.w == Some(Acknowledgement::Members(0)) && journal == Some(true) {
            bail!(FailedToParse, "cannot use 'j' option with w:0");
        }
        Ok(concern)
    }

    /// Parses a command's `writeConcern`.
    ///
    /// Errors: InvalidOptions if the command supports none; BadValue for several members on a
    /// standalone; as [`parse`](Self::parse).
    pub(crate) fn read(
        document: Document<'_>,
        takes_write_concern: bool,
        is_replica_set: bool,
    ) -> Result<WriteConcern> {
        if !takes_write_concern {
            bail!(InvalidOptions, "Command does not support writeConcern");
        }
        let mut concern = WriteConcern::parse(document)?;
        match &concern.w {
            _ if is_replica_set => Ok(concern),
            Some(Acknowledgement::Members(2..)) => {
                Err(err!(BadValue, "cannot use 'w' > 1 when a host is not replicated"))
            }
            Some(Acknowledgement::Named(name)) => Err(err!(
                BadValue,
                "cannot use non-majority 'w' mode {name} when a host is not a member of a replica set"
            )),
            // MongoDB checks tags only on a set.
            Some(Acknowledgement::Tags(_)) => {
                concern.w = Some(Acknowledgement::Members(1));
                Ok(concern)
            }
            _ => Ok(concern),
        }
    }

    /// Returns true for `w: 0`, also with `j: false`.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.w == Some(Acknowledgement::Members(0)) && self.journal != Some(true)
    }

    /// Returns true for the empty concern.
    pub(crate) fn is_empty(&self) -> bool {
        *self == WriteConcern::default()
    }

    /// Appends the fields in MongoDB's form.
    pub(crate) fn append_to(&self, document: &mut Builder) {
        match &self.w {
            Some(Acknowledgement::Members(members)) => {
                document.append(c"w", i32::try_from(*members).unwrap_or(i32::MAX))
            }
            Some(Acknowledgement::Majority) => document.append(c"w", "majority"),
            Some(Acknowledgement::Named(name)) => document.append(c"w", name),
            Some(Acknowledgement::Tags(tags)) => document.append(c"w", tags),
            None => document.append(c"w", 1),
        };
        if let Some(journal) = self.journal {
            document.append(FieldName::literal(if self.fsync { "fsync" } else { "j" }), journal);
        }
        document.append(c"wtimeout", i32::try_from(self.timeout_millis).unwrap_or(i32::MAX));
    }

    /// Returns the error if this number of members cannot satisfy the concern. The write is applied
    /// anyway. `members` is called only if it matters.
    pub(crate) fn unsatisfiable(&self, members: impl Fn() -> usize) -> Option<Error> {
        match self.w.as_ref()? {
            Acknowledgement::Members(required @ 2..) if members() < *required as usize => {
                Some(err!(UnsatisfiableWriteConcern, "Not enough data-bearing nodes"))
            }
            Acknowledgement::Named(name) => Some(err!(
                UnknownReplWriteConcern,
                "No write concern mode named '{name}' found in replica set configuration"
            )),
            Acknowledgement::Tags(tags) => {
                let tag = tags.view().first()?;
                Some(err!(NoSuchKey, "No replica set tag key {} in config", tag.name()))
            }
            _ => None,
        }
    }
}

impl Acknowledgement {
    fn parse(value: Value<'_>) -> Result<Acknowledgement> {
        match value {
            Value::String("majority") => Ok(Acknowledgement::Majority),
            Value::String(name) => Ok(Acknowledgement::Named(name.to_string())),
            // MongoDB reads null as a mode with an empty name, which no set has.
            nullish if nullish.is_nullish() => Ok(Acknowledgement::Named(String::new())),
            Value::Document(tags) => match tags.iter().all(|tag| tag.value().as_number().is_some()) {
                true if !tags.is_empty() => Ok(Acknowledgement::Tags(tags.to_owned())),
                _ => Err(err!(FailedToParse, "w has to be a document of one or more tags with numbers")),
            },
            other => {
                let number = other
                    .as_number()
                    .ok_or_else(|| err!(FailedToParse, "w has to be a number, string, or object"))?;
                let members = if number.is_nan() { -1 } else { number.to_i64_coerced() };
                if !(0..=MEMBERS_MAX).contains(&members) {
                    bail!(
                        FailedToParse,
                        "w has to be a non-negative number and not greater than {MEMBERS_MAX}"
                    );
                }
                Ok(Acknowledgement::Members(members))
            }
        }
    }
}

impl Effective {
    /// Returns the concern of a write, where `default` replaces a missing or empty concern.
    pub(crate) fn new(requested: Option<&WriteConcern>, default: (WriteConcern, Provenance)) -> Effective {
        match requested.filter(|requested| !requested.is_empty()) {
            None => Effective { concern: default.0, provenance: default.1 },
            Some(requested) => {
                let w = requested.w.clone().or(default.0.w);
                Effective { concern: WriteConcern { w, ..requested.clone() }, provenance: Provenance::Client }
            }
        }
    }

    /// Returns the majority concern for reads.
    pub(crate) fn majority() -> Effective {
        Effective { concern: WriteConcern::majority(), provenance: Provenance::Client }
    }

    /// Returns true if the write waits for the journal: with `j: true`, and with the majority
    /// unless `j` is false. MongoDB's default waits only if the journal is synced regularly
    /// (`syncs`).
    pub(crate) fn waits_for_journal(&self, syncs: bool) -> bool {
        let majority = self.concern.w == Some(Acknowledgement::Majority);
        let requested = self.provenance != Provenance::ImplicitDefault || syncs;
        self.concern.journal.unwrap_or(majority && requested)
    }

    /// Returns the required members, if several members may hold the data.
    pub(crate) fn by_members(&self) -> Option<AcknowledgmentLevel> {
        match self.concern.w {
            Some(Acknowledgement::Majority) => Some(AcknowledgmentLevel::Majority),
            Some(Acknowledgement::Members(members @ 2..)) => {
                Some(AcknowledgmentLevel::Members(members as usize))
            }
            _ => (self.concern.journal == Some(true)).then_some(AcknowledgmentLevel::Journal),
        }
    }

    /// Returns the timeout.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        (self.concern.timeout_millis > 0).then(|| Duration::from_millis(self.concern.timeout_millis as u64))
    }

    /// Returns the error for the reply if this number of members cannot satisfy the concern.
    pub(crate) fn unsatisfiable(&self, members: impl Fn() -> usize) -> Option<Error> {
        self.concern.unsatisfiable(members).map(|error| self.describe(error, false))
    }

    /// Returns the error for the reply after the timeout.
    pub(crate) fn timed_out(&self) -> Error {
        self.describe(err!(WriteConcernFailed, "waiting for replication timed out"), true)
    }

    /// Returns the error for the reply if the store cancelled the wait for other members.
    pub(crate) fn cancelled(&self, why: &str) -> Error {
        self.describe(err!(WriteConcernFailed, "waiting for replication was interrupted: {why}"), false)
    }

    /// Adds the concern to an error.
    fn describe(&self, error: Error, timed_out: bool) -> Error {
        let mut info = Builder::new();
        if timed_out {
            info.append(c"wtimeout", true);
        }
        self.concern.append_to(info.begin_document(c"writeConcern"));
        let provenance = match self.provenance {
            Provenance::Client => "clientSupplied",
            Provenance::CustomDefault => "customDefault",
            Provenance::ImplicitDefault => "implicitDefault",
        };
        info.append(c"provenance", provenance).end();
        error.with_info(info.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json;

    fn parse(text: &str) -> Result<WriteConcern> {
        WriteConcern::parse(extended_json::parse(text).unwrap().view())
    }

    fn effective(text: &str, is_replica_set: bool) -> Effective {
        let default = match is_replica_set {
            true => WriteConcern::majority(),
            false => WriteConcern::default(),
        };
        Effective::new(Some(&parse(text).unwrap()), (default, Provenance::ImplicitDefault))
    }

    #[test]
    fn write_concerns_that_wait_for_the_journal() {
        for (text, alone, set, set_that_never_syncs) in [
            ("{}", false, true, false),
            ("{w: 1}", false, false, false),
            ("{w: 'majority'}", true, true, true),
            ("{w: 'majority', j: false}", false, false, false),
            ("{j: true}", true, true, true),
            ("{fsync: true}", true, true, true),
            // The default's w applies to a concern without w.
            ("{wtimeout: 5}", false, true, true),
        ] {
            assert_eq!(effective(text, false).waits_for_journal(true), alone, "{text} alone");
            assert_eq!(effective(text, true).waits_for_journal(true), set, "{text} on a set");
            assert_eq!(effective(text, true).waits_for_journal(false), set_that_never_syncs, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for (text, code) in [
            ("{w: -1}", 9),
            ("{w: 51}", 9),
            ("{w: true}", 9),
            ("{j: 'x'}", 14),
            ("{w: {}}", 9),
            ("{w: {dc: 'x'}}", 9),
            ("{provenance: 'x'}", 2),
            ("{j: true, fsync: true}", 9),
            ("{w: 0, j: true}", 9),
            ("{x: 1}", 40_415),
        ] {
            assert_eq!(parse(text).unwrap_err().code().number(), code, "{text}");
        }
    }

    #[test]
    fn errors_have_the_write_concern_and_its_provenance() {
        let error = effective("{w: 2, wtimeout: 9}", true).unsatisfiable(|| 1).unwrap();
        assert_eq!(error.code().number(), 100);
        let expected = "{writeConcern: {w: 2, wtimeout: 9, provenance: 'clientSupplied'}}";
        assert_eq!(error.info().unwrap(), extended_json::parse(expected).unwrap().view());
        let error = effective("{}", true).timed_out();
        assert_eq!(error.code().number(), 64);
        let expected =
            "{wtimeout: true, writeConcern: {w: 'majority', wtimeout: 0, provenance: 'implicitDefault'}}";
        assert_eq!(error.info().unwrap(), extended_json::parse(expected).unwrap().view());
    }
}
