//! Server parameters: those that getParameter shows and setParameter changes.
//!
//! A parameter is here because clients read it or because changing it has its effect; any other
//! is refused, never taken silently: as unknown, or as having no meaning here where MongoDB has it.

pub(crate) mod elsewhere;

use base::bson::{Builder, FieldName, Value};
use base::{Result, err};
use database::OPERATION_MEMORY;
use database::language::{DEFAULT_BYTES, Limits};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A parameter's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Setting {
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i32),
    /// A whole number that may be great: of bytes, mostly.
    Long(i64),
    /// Any number.
    Double(f64),
    /// A word of a few.
    Word(&'static str),
}

impl Setting {
    /// Appends the value to a reply.
    pub(crate) fn append_to(&self, reply: &mut Builder, name: &str) {
        match self {
            Setting::Boolean(value) => reply.append(FieldName::known(name), *value),
            Setting::Integer(value) => reply.append(FieldName::known(name), *value),
            Setting::Long(value) => reply.append(FieldName::known(name), *value),
            Setting::Double(value) => reply.append(FieldName::known(name), *value),
            Setting::Word(value) => reply.append(FieldName::known(name), *value),
        };
    }
}

/// A parameter: its name, its value at start, and whether it can be changed at run time.
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

/// A number that is what it is.
const fn constant(name: &'static str, value: i32) -> Parameter {
    Parameter { name, initial: Setting::Integer(value), changeable: false, lowest: value }
}

/// Something that could be otherwise in MongoDB, and may be set to what it is.
const fn only(name: &'static str, value: Setting) -> Parameter {
    Parameter { name, initial: value, changeable: true, lowest: 0 }
}

/// How much a kind of work may hold, one of [`Limits`].
const fn bytes(name: &'static str) -> Parameter {
    let initial = Setting::Long(DEFAULT_BYTES as i64);
    Parameter { name, initial, changeable: true, lowest: 1 }
}

/// Every parameter held here, sorted by name. `enableTestCommands` and those that aren't numbers
/// or booleans are answered by the command itself.
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
    integer(STRANGER_MESSAGE_MAX, 16 * 1024, 1),
    boolean(QUIET, false),
    fixed("requireApiVersion", false),
    integer("scramIterationCount", 10_000, 5000),
    integer("scramSHA256IterationCount", 15_000, 5000),
    Parameter { name: SYNC_DELAY, initial: Setting::Double(60.0), changeable: true, lowest: 0 },
    integer("transactionLifetimeLimitSeconds", 60, 1),
    boolean("ttlMonitorEnabled", true),
    integer("ttlMonitorSleepSecs", 60, 1),
];

/// Those that may be set to what they are and to nothing else.
const ONLY_ONE_WAY: [&str; 2] = ["diagnosticDataCollectionEnabled", "internalQueryFrameworkControl"];

/// The words of `internalQueryFrameworkControl`; here there is one way to run queries.
const FRAMEWORKS: [&str; 3] = ["forceClassicEngine", "trySbeEngine", "trySbeRestricted"];

/// How many bytes of replaced documents are kept for old snapshots. MongoDB has no such parameter.
pub(crate) const HISTORY_BYTES: &str = "maxSnapshotHistoryBytes";

/// For how many seconds a snapshot read may name the time of an earlier one.
pub(crate) const HISTORY_AGE: &str = "minSnapshotHistoryWindowInSeconds";

/// For how long a cursor may lie unused, in milliseconds.
const CURSOR_TIMEOUT: &str = "cursorTimeoutMillis";

/// The share of what an operation may hold that one of its stages holds before it spills.
const SPILL_SHARE: usize = 8;

/// The most of one thing in a line of the log, in kilobytes; 0 is as much as there is.
const LOG_SIZE: &str = "maxLogSizeKB";

/// Refuses plans that scan whole collections.
const NO_TABLE_SCAN: &str = "notablescan";

/// Whether connections that come and go are told to nobody, even where the log tells much.
const QUIET: &str = "quiet";

/// How many seconds what is committed may lie in the journal alone; 0: until there is another reason.
pub(crate) const SYNC_DELAY: &str = "syncdelay";

/// How many milliseconds pass between two syncs of the journal that nobody asked for.
pub(crate) const SYNC_EVERY: &str = "journalCommitInterval";

/// The most of [`SYNC_EVERY`].
const SYNC_EVERY_MAX: i64 = 500;

/// The most of [`SYNC_DELAY`].
const SYNC_DELAY_MAX: f64 = 9_000_000.0;

/// The largest message of somebody who has to log in and hasn't, in bytes.
const STRANGER_MESSAGE_MAX: &str = "preAuthMaximumMessageSizeBytes";

/// The present values.
pub(crate) struct Parameters {
    values: RwLock<Vec<Setting>>,
    /// The limits among them, ready for every operation.
    limits: RwLock<Limits>,
    /// [`NO_TABLE_SCAN`] once more, asked for by every command.
    no_table_scan: AtomicBool,
    /// [`OPERATION_MEMORY`] once more, in bytes.
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
    /// The values at the start, where one operation may hold so many bytes and the journal is synced so often.
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

    /// What one operation may hold in memory, in bytes.
    pub(crate) fn operation_memory(&self) -> usize {
        self.operation_memory.load(Relaxed)
    }

    /// The value of a parameter, `None` where there is no such parameter.
    pub(crate) fn get(&self, name: &str) -> Option<Setting> {
        self.values.read().get(position(name)?).cloned()
    }

    /// Whether plans that scan whole collections are refused.
    pub(crate) fn no_table_scan(&self) -> bool {
        self.no_table_scan.load(Relaxed)
    }

    /// For how long a cursor may lie unused.
    pub(crate) fn cursor_timeout(&self) -> Duration {
        match self.get(CURSOR_TIMEOUT) {
            Some(Setting::Integer(millis)) => Duration::from_millis(u64::try_from(millis).unwrap_or(0)),
            _ => Duration::from_secs(600),
        }
    }

    /// The largest message that is taken from those who have to log in and haven't.
    pub(crate) fn stranger_message_max(&self) -> usize {
        match self.get(STRANGER_MESSAGE_MAX) {
            Some(Setting::Integer(bytes)) => usize::try_from(bytes).unwrap_or(0),
            _ => 16 * 1024,
        }
    }

    /// Every parameter with its value and whether it can be changed.
    pub(crate) fn all(&self) -> Vec<(&'static str, Setting, bool)> {
        let values = self.values.read();
        let with_value = PARAMETERS.iter().zip(values.iter());
        with_value.map(|(parameter, value)| (parameter.name, value.clone(), parameter.changeable)).collect()
    }

    /// How much blocking work may hold: what can be spilled stays well within what an operation may hold.
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

    /// Changes a parameter and returns what it was.
    ///
    /// Errors: InvalidOptions for an unknown name or one that is fixed at start, TypeMismatch,
    /// BadValue.
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
            return Err(err!(
                NotImplemented,
                "the parameter '{name}' can't be other than it is in this server"
            ));
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
            crate::logging::components::set_quiet(setting == Setting::Boolean(true));
        }
        if let (LOG_SIZE, Setting::Integer(kilobytes)) = (parameter.name, &setting) {
            crate::logging::set_longest(usize::try_from(*kilobytes).unwrap_or(0));
        }
        let place = values.get_mut(at).ok_or_else(unknown)?;
        Ok(std::mem::replace(place, setting))
    }
}

/// The refusal of what is decided at the start.
fn not_at_runtime(name: &str) -> base::Error {
    err!(IllegalOperation, "not allowed to change [{name}] at runtime")
}

/// Errors: BadValue for what is none of the words; NotImplemented for one that means nothing here.
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
        return Err(err!(
            BadValue,
            "Invalid value for parameter {}: {number} is not greater than or equal to {}",
            parameter.name,
            parameter.lowest
        ));
    }
    if parameter.name == SYNC_EVERY && number > SYNC_EVERY_MAX {
        return Err(err!(
            BadValue,
            "Invalid value for parameter {SYNC_EVERY}: {number} is not less than or equal to {SYNC_EVERY_MAX}"
        ));
    }
    Ok(number)
}

/// Errors: BadValue for what is no number, or not in the range.
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
