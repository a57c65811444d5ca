//! Log levels of components: `logLevel` and `logComponentVerbosity`.
//!
//! A record names its component by the key `c`, as in mongod's lines. A single component can have a
//! higher level for debugging. Records without a component use the default level.

use super::line::component;
use base::bson::{Builder, Document, FieldName, Value};
use base::{Result, bail, err};
use log::{Level, LevelFilter, Record};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A component: its name in `logComponentVerbosity`, its name in log lines, and its parent.
struct Component {
    name: &'static str,
    short: &'static str,
    parent: usize,
}

const fn component_of(parent: usize, name: &'static str, short: &'static str) -> Component {
    Component { name, short, parent }
}

/// mongod's components in its order. The first is the root.
const COMPONENTS: &[Component] = &[
    component_of(0, "default", "-"),
    component_of(0, "accessControl", "ACCESS"),
    component_of(0, "assert", "ASSERT"),
    component_of(0, "command", "COMMAND"),
    component_of(0, "control", "CONTROL"),
    component_of(0, "executor", "EXECUTOR"),
    component_of(0, "geo", "GEO"),
    component_of(0, "globalIndex", "GBL_IDX"),
    component_of(0, "index", "INDEX"),
    component_of(0, "network", "NETWORK"),
    component_of(9, "asio", "ASIO"),
    component_of(9, "bridge", "BRIDGE"),
    component_of(9, "connectionPool", "CONNPOOL"),
    component_of(0, "processHealth", "HEALTH"),
    component_of(0, "query", "QUERY"),
    component_of(0, "replication", "REPL"),
    component_of(15, "election", "ELECTION"),
    component_of(15, "heartbeats", "REPL_HB"),
    component_of(15, "initialSync", "INITSYNC"),
    component_of(15, "rollback", "ROLLBACK"),
    component_of(0, "sharding", "SHARDING"),
    component_of(20, "rangeDeleter", "RDELETER"),
    component_of(20, "shardingCatalogRefresh", "SH_REFR"),
    component_of(20, "migration", "MIGRATE"),
    component_of(20, "reshard", "RESHARD"),
    component_of(20, "migrationPerf", "MIG_PERF"),
    component_of(0, "storage", "STORAGE"),
    component_of(26, "recovery", "RECOVERY"),
    component_of(26, "journal", "JOURNAL"),
    component_of(26, "wt", "WT"),
    component_of(29, "wtBackup", "WTBACKUP"),
    component_of(29, "wtCheckpoint", "WTCHKPT"),
    component_of(29, "wtCompact", "WTCMPCT"),
    component_of(29, "wtEviction", "WTEVICT"),
    component_of(29, "wtHS", "WTHS"),
    component_of(29, "wtRecovery", "WTRECOV"),
    component_of(29, "wtRTS", "WTRTS"),
    component_of(29, "wtSalvage", "WTSLVG"),
    component_of(29, "wtTiered", "WTTIER"),
    component_of(29, "wtTimestamp", "WTTS"),
    component_of(29, "wtTransaction", "WTTXN"),
    component_of(29, "wtVerify", "WTVRFY"),
    component_of(29, "wtWriteLog", "WTWRTLOG"),
    component_of(0, "write", "WRITE"),
    component_of(0, "ftdc", "FTDC"),
    component_of(0, "tracking", "TRACKING"),
    component_of(0, "transaction", "TXN"),
    component_of(0, "tenantMigration", "TENANT_M"),
    component_of(0, "test", "TEST"),
    component_of(0, "resourceConsumption", "RES_CONS"),
];

/// Marks a component without its own level. It uses the level of its parent.
const INHERITED: i32 = -1;

/// Level of each component: 0 for important messages, higher for debugging.
static LEVELS: Mutex<[i32; COMPONENTS.len()]> = Mutex::new({
    let mut levels = [INHERITED; COMPONENTS.len()];
    levels[0] = 0;
    levels
});

/// True if opened and closed connections are never logged, at any level.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets the initial level.
pub(super) fn begin(filter: LevelFilter) {
    LEVELS.lock()[0] = match filter {
        LevelFilter::Debug => 1,
        LevelFilter::Trace => 2,
        _ => 0,
    };
    log::set_max_level(filter);
}

/// Returns the default level (`logLevel`).
pub(crate) fn level() -> i32 {
    LEVELS.lock()[0]
}

/// Sets [`level`]. Returns the earlier value.
pub(crate) fn set_level(level: i32) -> i32 {
    let mut levels = LEVELS.lock();
    let was = std::mem::replace(&mut levels[0], level);
    adjust(&*levels);
    was
}

/// Sets if opened and closed connections are never logged.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Limits the `log` crate to the highest level of all components.
fn adjust(levels: &[i32]) {
    log::set_max_level(match levels.iter().max() {
        Some(2..) => LevelFilter::Trace,
        Some(1) => LevelFilter::Debug,
        _ => LevelFilter::Info,
    });
}

/// Returns true if a record is written.
pub(super) fn shows(record: &Record<'_>) -> bool {
    let needed = match record.level() {
        Level::Error | Level::Warn | Level::Info => return true,
        Level::Debug => 1,
        Level::Trace => 2,
    };
    let name = component(record).unwrap_or_default();
    if name == "NETWORK" && QUIET.load(Ordering::Relaxed) {
        return false;
    }
    let mut at = COMPONENTS.iter().position(|component| component.short == name).unwrap_or(0);
    let levels = LEVELS.lock();
    while at != 0 && levels.get(at) == Some(&INHERITED) {
        at = COMPONENTS.get(at).map_or(0, |component| component.parent);
    }
    levels.get(at).is_some_and(|level| *level >= needed)
}

/// Appends the levels of all components: `logComponentVerbosity`.
pub(crate) fn append_to(out: &mut Builder, name: &str) {
    let levels = *LEVELS.lock();
    append_part(out, name, 0, &levels);
}

fn append_part(out: &mut Builder, name: &str, at: usize, levels: &[i32]) {
    out.begin_document(FieldName::trusted(name))
        .append(c"verbosity", levels.get(at).copied().unwrap_or(INHERITED));
    for (part, component) in COMPONENTS.iter().enumerate().skip(1).filter(|(_, part)| part.parent == at) {
        append_part(out, component.name, part, levels);
    }
    out.end();
}

/// Sets the levels in a document, which may nest components. An error changes nothing.
///
/// Errors: BadValue for an unknown component or an invalid level.
pub(crate) fn set(requested: Document<'_>) -> Result<()> {
    let mut changes = Vec::new();
    gather(requested, 0, &mut changes)?;
    let mut levels = LEVELS.lock();
    for (at, level) in changes {
        // The root has no parent, so it cannot inherit.
        if let Some(slot) = levels.get_mut(at) {
            *slot = if at == 0 { level.max(0) } else { level };
        }
    }
    adjust(&*levels);
    Ok(())
}

/// Collects the levels of a component and of its children. Components bound the recursion.
fn gather(requested: Document<'_>, parent: usize, changes: &mut Vec<(usize, i32)>) -> Result<()> {
    let path = dotted(parent);
    for element in requested {
        let name = element.name();
        if name == "verbosity" {
            changes.push((parent, verbosity(&path, name, element.value())?));
            continue;
        }
        let mut parts = COMPONENTS.iter().enumerate().skip(1);
        let found = parts.find(|(_, part)| part.name == name && part.parent == parent);
        let (at, _) = found.ok_or_else(|| err!(BadValue, "Invalid component name {path}.{name}"))?;
        match element.value() {
            Value::Document(inner) => gather(inner, at, changes)?,
            value if value.as_number().is_some() => changes.push((at, verbosity(&path, name, value)?)),
            value => {
                bail!(BadValue, "Invalid type {} for component {path}.{name}", value.kind().alias());
            }
        }
    }
    Ok(())
}

/// Returns the dotted path of a component.
fn dotted(at: usize) -> String {
    match COMPONENTS.get(at) {
        Some(component) if component.parent != 0 => {
            format!("{}.{}", dotted(component.parent), component.name)
        }
        Some(component) => component.name.to_string(),
        None => String::new(),
    }
}

fn verbosity(path: &str, name: &str, value: Value<'_>) -> Result<i32> {
    let level = value.as_i64().and_then(|level| i32::try_from(level).ok());
    match level
        .ok_or_else(|| err!(BadValue, "Expected {path}.{name} to be safely cast to integer, but could not"))?
    {
        level if level < INHERITED => {
            Err(err!(BadValue, "Expected {path}.{name} to be greater than or equal to -1, but found {level}"))
        }
        level => Ok(level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_precede_their_children() {
        for (at, component) in COMPONENTS.iter().enumerate().skip(1) {
            assert!(component.parent < at, "{}", component.name);
        }
        assert_eq!(dotted(30), "storage.wt.wtBackup");
    }

    #[test]
    fn all_levels_are_checked_before_any_is_set() {
        let refused = |build: &dyn Fn(&mut Builder)| {
            let mut requested = Builder::new();
            requested.append(c"command", 1);
            build(&mut requested);
            set(requested.finish().view()).unwrap_err().to_string()
        };
        let unknown = refused(&|requested| {
            requested.append(c"wt", 2);
        });
        assert!(unknown.contains("Invalid component name default.wt"), "{unknown}");
        let low = refused(&|requested| {
            requested.begin_document(c"query").append(c"verbosity", -2).end();
        });
        assert!(
            low.contains("Expected query.verbosity to be greater than or equal to -1, but found -2"),
            "{low}"
        );
        assert!(LEVELS.lock().iter().skip(1).all(|level| *level == INHERITED));
    }
}
