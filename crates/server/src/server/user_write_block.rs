//! `setUserWriteBlockMode`: writes of users are refused, but for those who may bypass that.
//!
//! The state lies in `config.user_writes_critical_sections`, as MongoDB keeps it.

use crate::access::{self, Action};
use crate::command::{Command, Kind};
use crate::connection::ConnectionState;
use crate::server::Server;
use crate::system_collections::Place;
use base::bson::{Document, Value};
use base::namespace::is_internal_database;
use base::{Result, err};
use database::language::{Asker, Resource, stages_of};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use wire::request::Request;

const PLACE: Place = Place { database: "config", collection: "user_writes_critical_sections", id: "" };

/// Why writes are blocked; the numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No reason was given.
    Unspecified = 0,
    /// A cluster is copied to another.
    ClusterToClusterMigrationInProgress = 1,
    /// The disk is full.
    DiskUseThresholdExceeded = 2,
}

const REASONS: [Reason; 3] =
    [Reason::Unspecified, Reason::ClusterToClusterMigrationInProgress, Reason::DiskUseThresholdExceeded];

impl Reason {
    /// Errors: BadValue for an unknown name.
    pub(crate) fn parse(name: &str) -> Result<Reason> {
        let found = REASONS.into_iter().find(|reason| format!("{reason:?}") == name);
        found.ok_or_else(|| {
            err!(
                BadValue,
                "Enumeration value '{name}' for field 'setUserWriteBlockMode.reason' is not a valid value."
            )
        })
    }
}

/// The present state.
#[derive(Default)]
pub(crate) struct UserWriteBlock {
    /// Zero if writes are allowed, and else the number of the reason and one: each command looks at it.
    state: AtomicU8,
    /// Held while the state changes.
    changing: Mutex<()>,
}

impl UserWriteBlock {
    /// Why writes are blocked, if they are.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let before = self.state.load(Relaxed).checked_sub(1)?;
        REASONS.get(usize::from(before)).copied()
    }

    fn set(&self, reason: Option<Reason>) {
        self.state.store(reason.map_or(0, |reason| reason as u8 + 1), Relaxed);
    }
}

impl Server {
    /// Takes up what an earlier process stored. What can't be read counts as never set, and is told.
    pub(crate) fn load_user_write_block(&self) {
        match PLACE.read(&self.database) {
            Ok(stored) => self.user_write_block.set(stored.and_then(|stored| reason_in(stored.view()))),
            Err(error) => log::warn!("reading whether the writes of users are blocked: {error}"),
        }
    }

    /// Blocks the writes of users for a reason, or allows them.
    ///
    /// Errors: IllegalOperation if they are blocked for another reason; those of the write.
    pub(crate) fn block_user_writes(&self, blocks: bool, reason: Reason) -> Result<()> {
        let _changing = self.user_write_block.changing.lock();
        match self.user_write_block.reason() {
            Some(before) if before != reason => {
                let verb = if blocks { "enable" } else { "disable" };
                return Err(err!(
                    IllegalOperation,
                    "Cannot {verb} user write blocking with reason {reason:?}: it is enabled with reason {before:?}"
                ));
            }
            before if before.is_some() == blocks => return Ok(()),
            _ => {}
        }
        PLACE.write(&self.database, |document| {
            document.append(c"blockNewUserShardedDDL", false).append(c"blockUserWrites", blocks);
            document.append(c"blockUserWritesReason", reason as i32);
        })?;
        self.user_write_block.set(blocks.then_some(reason));
        Ok(())
    }
}

fn reason_in(stored: Document<'_>) -> Option<Reason> {
    let number = stored.get("blockUserWritesReason").and_then(|reason| reason.as_i64()).unwrap_or(0);
    let blocks = stored.get("blockUserWrites").and_then(|blocks| blocks.as_bool()) == Some(true);
    let reason = REASONS.into_iter().find(|reason| *reason as i64 == number);
    blocks.then(|| reason.unwrap_or(Reason::Unspecified))
}

/// Refuses a command that writes to a user's database while that is blocked.
///
/// Errors: UserWritesBlocked.
pub(crate) fn check(
    server: &Server,
    state: &ConnectionState,
    command: &Command,
    request: &Request<'_>,
) -> Result<()> {
    if server.user_write_block.reason().is_none() || state.is_system || !writes_for_user(command, request) {
        return Ok(());
    }
    let bypasses = access::is_asked(server, state)
        && access::may(server, state, access::Resource::Cluster, Action::BypassWriteBlockingMode);
    match bypasses {
        true => Ok(()),
        false => Err(err!(UserWritesBlocked, "User writes blocked")),
    }
}

/// Whether a command writes to a database that isn't the server's own.
fn writes_for_user(command: &Command, request: &Request<'_>) -> bool {
    let own = request.body.first().map(|first| first.value());
    match command.name {
        "aggregate" => output(request).is_some_and(is_of_user),
        "bulkWrite" => {
            let listed = request.sequences.iter().flat_map(|sequence| sequence.documents.iter());
            documents(request.body.get("nsInfo")).chain(listed).any(|info| names_user(info.get("ns")))
        }
        "renameCollection" => names_user(own) || names_user(request.body.get("to")),
        "applyOps" => documents(own).any(|operation| names_user(operation.get("ns"))),
        // Users and roles lie in `admin`.
        name if name.contains("User") || name.contains("Role") => false,
        _ => command.kind == Kind::Write && command.takes_write_concern && is_of_user(request.database),
    }
}

fn is_of_user(database: &str) -> bool {
    !is_internal_database(database)
}

/// Whether a namespace lies in a user's database.
fn names_user(namespace: Option<Value<'_>>) -> bool {
    let database = namespace.and_then(|namespace| namespace.as_str()?.split('.').next());
    database.is_some_and(is_of_user)
}

fn documents(array: Option<Value<'_>>) -> impl Iterator<Item = Document<'_>> {
    let array = array.and_then(|array| array.as_array());
    array.into_iter().flat_map(|array| array.iter()).filter_map(|value| value.as_document())
}

/// The database that the last stage of a pipeline writes to.
fn output<'a>(request: &Request<'a>) -> Option<&'a str> {
    let pipeline = request.body.get("pipeline")?.as_array()?;
    let (stage, spec) = stages_of(pipeline).last().filter(|(stage, _)| stage.writes())?;
    let asker = Asker { database: request.database, collection: None, is: &|_| false };
    let mut targets = stage.rights(spec.value(), &asker).into_iter().filter_map(|right| match right.on {
        Resource::Target(target) => target.as_document()?.get("db")?.as_str(),
        _ => None,
    });
    Some(targets.next_back().unwrap_or(request.database))
}
