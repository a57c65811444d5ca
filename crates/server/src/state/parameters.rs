//! Server parameters of getParameter and setParameter.
//!
//! A parameter exists if clients read it or if a change has an effect. Other parameters are
//! refused, never ignored: as unknown, or as MongoDB parameters without a meaning here.

pub(crate) mod elsewhere;

use base::bson::{Builder, FieldName, Value};
use base::{Result, bail, err};
use database::OPERATION_MEMORY;
use database::language::{DEFAULT_BYTES, Limits};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    Boolean(bool),
    /// A 32-bit integer.
    Integer(i32),
    /// A 64-bit integer, usually bytes.
    Long(i64),
    Double(f64),
    /// A word of a fixed list.
    Word(&'static str),
}

impl Setting {
    /// Appends the value to a reply.
    pub(crate) fn append_to(&self, reply: &mut Builder, name: &str) {
        match self {
            Setting::Boolean(value) => reply.append(FieldName::trusted(name), *value),
            Setting::Integer(value) => reply.append(FieldName::trusted(name), *value),
            Setting::Long(value) => reply.append(FieldName::trusted(name), *value),
            Setting::Double(value) => reply.append(FieldName::trusted(name), *value),
            Setting::Word(value) => reply.append(FieldName::trusted(name), *value),
        };
    }
}

/// A parameter: name, initial value, and whether it can change at run time.
struct Parameter {
    name: &'static str,
    initial: Setting,
    changeable: bool,
    lowest: i32,
}

const fn fixed(name: &'static str, value: bool) -> Parameter {
    Parameter { name, initial: Setting::Boolean(value), changeable: false, lowest: 0 }
}

const fn boolean(name: &'static str, value: bool) -> Parameter {
    Parameter { name, initial: Setting::Boolean(value), changeable: true, lowest: 0 }
}

const fn integer(name: &'static str, value: i32, lowest: i32) -> Parameter {
    Parameter { name, initial: Setting::Integer(value), changeable: true, lowest }
}

/// Declares an unchangeable number.
const fn constant(name: &'static str, value: i32) -> Parameter {
    Parameter { name, initial: Setting::Integer(value), changeable: false, lowest: value }
}

/// Declares a parameter that only accepts its present value. MongoDB has other values.
const fn only(name: &'static str, value: Setting) -> Parameter {
    Parameter { name, initial: value, changeable: true, lowest: 0 }
}

/// Declares the memory limit of a kind of work, one of [`Limits`].
const fn bytes(name: &'static str) -> Parameter {
    let initial = Setting::Long(DEFAULT_BYTES as i64);
    Parameter { name, initial, changeable: true, lowest: 1 }
}

/// All parameters of this module, sorted by name. The command itself handles `enableTestCommands`
/// and parameters of other types.
const PARAMETERS: &[Parameter] = &[
    fixed("acceptApiVersion2", false),
    boolean("allowDiskUseByDefault", true),
    Parameter { name: "authSchemaVersion", initial: Setting::Integer(5), changeable: false, lowest: 5 },
    integer(CURSOR_TIMEOUT, 600_000, 1),
    only("diagnosticDataCollectionEnabled", Setting::Boolean(false)),
    fixed("ingressConnectionEstablishmentRateLimiterEnabled", false),
    bytes("internalDocumentSourceBucketAutoMaxMemoryBytes"),
    bytes("internalDocumentSourceGraphLookupMaxMemoryBytes"),
    bytes("internalDocumentSourceGroupMaxMemoryBytes"),
    bytes("internalDocumentSourceSetWindowFieldsMaxMemoryBytes"),
    bytes("internalLookupStageIntermediateDocumentMaxSizeBytes"),
    bytes("internalQueryFacetBufferSizeBytes"),
    bytes("internalQueryFacetMaxOutputDocSizeBytes"),
    only("internalQueryFrameworkControl", Setting::Word("forceClassicEngine")),
    bytes("internalQueryMaxAddToSetBytes"),
    integer("internalQueryMaxAllowedDensifyDocs", 500_000, 1),
    bytes("internalQueryMaxBlockingSortMemoryUsageBytes"),
    bytes("internalQueryMaxNAccumulatorBytes"),
    bytes(OPERATION_MEMORY),
    bytes("internalQueryMaxPushBytes"),
    integer(SYNC_EVERY, 100, 1),
    constant("localLogicalSessionTimeoutMinutes", 30),
    constant("maxBSONDepth", 200),
    integer(LOG_SIZE, 10, 0),
    Parameter { name: HISTORY_BYTES, initial: Setting::Long(512 << 20), changeable: true, lowest: 1 },
    integer("maxTransactionLockRequestTimeoutMillis", 5, -1),
    integer(HISTORY_AGE, 300, 0),
    boolean(NO_TABLE_SCAN, false),
    integer(UNAUTHENTICATED_MESSAGE_MAX, 16 * 1024, 1),
    boolean(QUIET, false),
    fixed("requireApiVersion", false),
    integer("scramIterationCount", 10_000, 5000),
    integer("scramSHA256IterationCount", 15_000, 5000),
    Parameter { name: SYNC_DELAY, initial: Setting::Double(60.0), changeable: true, lowest: 0 },
    integer("transactionLifetimeLimitSeconds", 60, 1),
    boolean("ttlMonitorEnabled", true),
    integer("ttlMonitorSleepSecs", 60, 1),
];

/// Parameters that only accept their present value.
const ONLY_ONE_WAY: [&str; 2] = ["diagnosticDataCollectionEnabled", "internalQueryFrameworkControl"];

/// Values of `internalQueryFrameworkControl`. Vellum has one query engine.
const FRAMEWORKS: [&str; 3] = ["forceClassicEngine", "trySbeEngine", "trySbeRestricted"];

/// Maximum bytes of replaced documents for old snapshots. MongoDB has no such parameter.
pub(crate) const HISTORY_BYTES: &str = "maxSnapshotHistoryBytes";

/// Age in seconds up to which a snapshot read may name an earlier time.
pub(crate) const HISTORY_AGE: &str = "minSnapshotHistoryWindowInSeconds";

/// Idle timeout of cursors in milliseconds.
const CURSOR_TIMEOUT: &str = "cursorTimeoutMillis";

/// Divisor: a stage spills at this share of the operation's memory.
const SPILL_SHARE: usize = 8;

/// Maximum size of a value in a log line, in kilobytes; 0 is unlimited.
const LOG_SIZE: &str = "maxLogSizeKB";

/// Refuses collection scans.
const NO_TABLE_SCAN: &str = "notablescan";

/// Hides opened and closed connections in the log at all levels.
const QUIET: &str = "quiet";

/// Maximum seconds between a commit and the next checkpoint; 0 disables this timer.
pub(crate) const SYNC_DELAY: &str = "syncdelay";

/// Milliseconds between two timed syncs of the journal.
pub(crate) const SYNC_EVERY: &str = "journalCommitInterval";

/// Maximum of [`SYNC_EVERY`], in milliseconds.
const SYNC_EVERY_MAX: i64 = 500;

/// Maximum of [`SYNC_DELAY`], in seconds.
const SYNC_DELAY_MAX: f64 = 9_000_000.0;

/// Maximum message size before authentication, in bytes.
const UNAUTHENTICATED_MESSAGE_MAX: &str = "preAuthMaximumMessageSizeBytes";

/// The parameters of a server, with copies of values that each command reads.
pub(crate) struct Parameters {
    values: RwLock<Vec<Setting>>,
    /// Current limits, ready for each operation.
    limits: RwLock<Limits>,
    /// Copy of [`NO_TABLE_SCAN`], which each command reads.
    no_table_scan: AtomicBool,
    /// Copy of [`OPERATION_MEMORY`] in bytes.
    operation_memory: AtomicUsize,
}

#[cfg(test)]
impl Default for Parameters {
    fn default() -> Parameters {
        Parameters::new(1 << 30, Duration::from_millis(100))
    }
}

fn position(name: &str) -> Option<usize> {
    PARAMETERS.binary_search_by(|parameter| parameter.name.cmp(name)).ok()
}

impl Parameters {
    /// Creates the initial values with an operation's memory in bytes and the sync interval of the
    /// journal.
    pub(crate) fn new(operation_memory: u64, sync_every: Duration) -> Parameters {
        let initial = |parameter: &Parameter| match parameter.name {
            SYNC_EVERY => Setting::Integer(i32::try_from(sync_every.as_millis()).unwrap_or(i32::MAX)),
            OPERATION_MEMORY => Setting::Long(i64::try_from(operation_memory).unwrap_or(i64::MAX)),
            _ => parameter.initial.clone(),
        };
        Parameters {
            values: RwLock::new(PARAMETERS.iter().map(initial).collect()),
            limits: RwLock::default(),
            no_table_scan: AtomicBool::new(false),
            operation_memory: AtomicUsize::new(usize::try_from(operation_memory).unwrap_or(usize::MAX)),
        }
    }

    /// Returns the memory limit of an operation in bytes.
    pub(crate) fn operation_memory(&self) -> usize {
        self.operation_memory.load(Relaxed)
    }

    /// Returns the value of a parameter; `None` if it does not exist.
    pub(crate) fn get(&self, name: &str) -> Option<Setting> {
        self.values.read().get(position(name)?).cloned()
    }

    /// Returns true if collection scans are refused.
    pub(crate) fn no_table_scan(&self) -> bool {
        self.no_table_scan.load(Relaxed)
    }

    /// Returns the idle timeout of cursors.
    pub(crate) fn cursor_timeout(&self) -> Duration {
        match self.get(CURSOR_TIMEOUT) {
            Some(Setting::Integer(millis)) => Duration::from_millis(u64::try_from(millis).unwrap_or(0)),
            _ => Duration::from_secs(600),
        }
    }

    /// Returns the maximum age of a transaction: the present value of
    /// transactionLifetimeLimitSeconds.
    pub(crate) fn transaction_lifetime(&self) -> Duration {
        match self.get("transactionLifetimeLimitSeconds") {
            Some(Setting::Integer(seconds)) => Duration::from_secs(seconds.unsigned_abs().into()),
            _ => Duration::from_secs(60),
        }
    }

    /// Returns the maximum message size before authentication.
    pub(crate) fn unauthenticated_message_max(&self) -> usize {
        match self.get(UNAUTHENTICATED_MESSAGE_MAX) {
            Some(Setting::Integer(bytes)) => usize::try_from(bytes).unwrap_or(0),
            _ => 16 * 1024,
        }
    }

    /// Returns each parameter with its value, and true if it can change.
    pub(crate) fn all(&self) -> Vec<(&'static str, Setting, bool)> {
        let values = self.values.read();
        let with_value = PARAMETERS.iter().zip(values.iter());
        with_value.map(|(parameter, value)| (parameter.name, value.clone(), parameter.changeable)).collect()
    }

    /// Returns the memory limits of blocking stages. Stages that can spill use a share of the
    /// operation's memory.
    pub(crate) fn limits(&self) -> Limits {
        self.limits.read().spilling_at_most(self.operation_memory() / SPILL_SHARE)
    }

    fn limit(&self, name: &str, setting: &Setting) {
        let mut limits = self.limits.write();
        match *setting {
            Setting::Boolean(allowed) if name == "allowDiskUseByDefault" => limits.allow_disk_use = allowed,
            Setting::Integer(number) => drop(limits.set(name, usize::try_from(number).unwrap_or(0))),
            Setting::Long(number) => drop(limits.set(name, usize::try_from(number).unwrap_or(usize::MAX))),
            Setting::Boolean(_) | Setting::Double(_) | Setting::Word(_) => {}
        }
    }

    /// Changes a parameter. Returns the earlier value.
    ///
    /// Errors: InvalidOptions for an unknown name or a startup parameter; TypeMismatch; BadValue.
    pub(crate) fn set(&self, name: &str, value: Value<'_>) -> Result<Setting> {
        let unknown = || {
            err!(
                InvalidOptions,
                "attempted to set unrecognized parameter [{name}], use help:true to see options "
            )
        };
        let at = position(name).ok_or_else(|| elsewhere::not_set(name).unwrap_or_else(unknown))?;
        let parameter = PARAMETERS.get(at).ok_or_else(unknown)?;
        if !parameter.changeable {
            return Err(not_at_runtime(name));
        }
        let setting = match parameter.initial {
            Setting::Boolean(_) => Setting::Boolean(value.is_truthy()),
            Setting::Integer(_) => {
                let number = integer_value(parameter, value)?;
                Setting::Integer(i32::try_from(number).map_err(|_| not_a_number(parameter))?)
            }
            Setting::Long(_) => Setting::Long(integer_value(parameter, value)?),
            Setting::Double(_) => Setting::Double(seconds_value(parameter, value)?),
            Setting::Word(_) => word_value(parameter, value)?,
        };
        if setting != parameter.initial && ONLY_ONE_WAY.contains(&parameter.name) {
            bail!(NotImplemented, "the parameter '{name}' has a fixed value in this server");
        }
        self.limit(parameter.name, &setting);
        let mut values = self.values.write();
        if parameter.name == NO_TABLE_SCAN {
            self.no_table_scan.store(setting == Setting::Boolean(true), Relaxed);
        }
        if let (OPERATION_MEMORY, Setting::Long(bytes)) = (parameter.name, &setting) {
            self.operation_memory.store(usize::try_from(*bytes).unwrap_or(usize::MAX), Relaxed);
        }
        if parameter.name == QUIET {
            crate::process::logging::components::set_quiet(setting == Setting::Boolean(true));
        }
        if let (LOG_SIZE, Setting::Integer(kilobytes)) = (parameter.name, &setting) {
            crate::process::logging::set_longest(usize::try_from(*kilobytes).unwrap_or(0));
        }
        let slot = values.get_mut(at).ok_or_else(unknown)?;
        Ok(std::mem::replace(slot, setting))
    }
}

/// Returns the error for a startup parameter.
fn not_at_runtime(name: &str) -> base::Error {
    err!(IllegalOperation, "not allowed to change [{name}] at runtime")
}

/// Parses a word.
///
/// Errors: BadValue for an unknown word; NotImplemented for a word without a meaning here.
fn word_value(parameter: &Parameter, value: Value<'_>) -> Result<Setting> {
    match value.as_str().and_then(|word| FRAMEWORKS.iter().find(|known| **known == word)) {
        Some(word) => Ok(Setting::Word(word)),
        None => Err(err!(BadValue, "Failed to set parameter {}: unknown value", parameter.name)),
    }
}

fn not_a_number(parameter: &Parameter) -> base::Error {
    err!(BadValue, "Failed to set parameter {}: the value must be a number", parameter.name)
}

fn integer_value(parameter: &Parameter, value: Value<'_>) -> Result<i64> {
    let number = value.as_number().ok_or_else(|| not_a_number(parameter))?.to_i64_clamped();
    if number < i64::from(parameter.lowest) {
        bail!(
            BadValue,
            "Invalid value for parameter {}: {number} is not greater than or equal to {}",
            parameter.name,
            parameter.lowest
        );
    }
    if parameter.name == SYNC_EVERY && number > SYNC_EVERY_MAX {
        bail!(
            BadValue,
            "Invalid value for parameter {SYNC_EVERY}: {number} is not less than or equal to {SYNC_EVERY_MAX}"
        );
    }
    Ok(number)
}

/// Parses a number of seconds.
///
/// Errors: BadValue if the value is not a number or out of range.
fn seconds_value(parameter: &Parameter, value: Value<'_>) -> Result<f64> {
    let number = value.as_number().ok_or_else(|| not_a_number(parameter))?.to_f64();
    let bound = match number {
        _ if number > SYNC_DELAY_MAX => format!("less than or equal to {SYNC_DELAY_MAX:?}"),
        _ if number >= 0.0 => return Ok(number),
        _ => "greater than or equal to 0.0".to_string(),
    };
    Err(err!(BadValue, "Invalid value for parameter {}: {number:?} is not {bound}", parameter.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_changed_and_refused() {
        assert!(PARAMETERS.windows(2).all(|pair| pair[0].name < pair[1].name));
        let parameters = Parameters::default();
        assert_eq!(parameters.set("ttlMonitorEnabled", false.into()).unwrap(), Setting::Boolean(true));
        assert_eq!(parameters.get("ttlMonitorEnabled"), Some(Setting::Boolean(false)));
        assert_eq!(parameters.set("ttlMonitorSleepSecs", 0.into()).unwrap_err().code().number(), 2);
        let sort = "internalQueryMaxBlockingSortMemoryUsageBytes";
        assert_eq!(parameters.set(sort, 5000.into()).unwrap(), Setting::Long(100 << 20));
        parameters.set("allowDiskUseByDefault", false.into()).unwrap();
        let limits = parameters.limits();
        assert_eq!((limits.sort, limits.group, limits.allow_disk_use), (5000, 100 << 20, false));
        let refused = |name: &str| parameters.set(name, 0.into()).unwrap_err().code().number();
        for parameter in PARAMETERS
            .iter()
            .filter(|parameter| parameter.name.starts_with("internal") && parameter.name != OPERATION_MEMORY)
            .filter(|parameter| !matches!(parameter.initial, Setting::Word(_)))
        {
            assert_eq!(refused(parameter.name), 2);
            assert!(Limits::default().set(parameter.name, 1), "{} is no limit", parameter.name);
        }
        assert_eq!(parameters.set("nonsense", 1.into()).unwrap_err().code().number(), 72);
        assert_eq!(parameters.set("requireApiVersion", true.into()).unwrap_err().code().number(), 20);
    }
}
