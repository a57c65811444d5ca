//! `setUserWriteBlockMode`: refuses user writes, except from users with the bypass privilege.
//!
//! The state is stored in `config.user_writes_critical_sections`, as in MongoDB.

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

/// Reasons of a block. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No reason given.
    Unspecified = 0,
    /// The cluster is being copied to another cluster.
    ClusterToClusterMigrationInProgress = 1,
    /// The disk is full.
    DiskUseThresholdExceeded = 2,
}

const REASONS: [Reason; 3] =
    [Reason::Unspecified, Reason::ClusterToClusterMigrationInProgress, Reason::DiskUseThresholdExceeded];

impl Reason {
    /// Parses the name of a reason.
    ///
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

/// State of the block.
#[derive(Default)]
pub(crate) struct UserWriteBlock {
    /// Zero if writes are allowed, otherwise the number of the reason plus one. Each command reads
    /// it.
    state: AtomicU8,
    /// Held during changes of the state.
    changing: Mutex<()>,
}

impl UserWriteBlock {
    /// Returns the reason of the block, if any.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let before = self.state.load(Relaxed).checked_sub(1)?;
        REASONS.get(usize::from(before)).copied()
    }

    fn set(&self, reason: Option<Reason>) {
        self.state.store(reason.map_or(0, |reason| reason as u8 + 1), Relaxed);
    }
}

impl Server {
    /// Loads the stored state. An unreadable document is logged and counts as unset.
    pub(crate) fn load_user_write_block(&self) {
        match PLACE.read(&self.database) {
            Ok(stored) => self.user_write_block.set(stored.and_then(|stored| reason_in(stored.view()))),
            Err(error) => log::warn!("reading whether the writes of users are blocked: {error}"),
        }
    }

    /// Blocks user writes for a reason, or allows them.
    ///
    /// Errors: IllegalOperation if another reason blocks them; errors of the write.
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

/// Refuses a command that writes to a blocked user database.
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

/// Returns true if a command writes to a user database.
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
        // Users and roles are stored in `admin`.
        name if name.contains("User") || name.contains("Role") => false,
        _ => command.kind == Kind::Write && command.takes_write_concern && is_of_user(request.database),
    }
}

fn is_of_user(database: &str) -> bool {
    !is_internal_database(database)
}

/// Returns true if a namespace is in a user database.
fn names_user(namespace: Option<Value<'_>>) -> bool {
    let database = namespace.and_then(|namespace| namespace.as_str()?.split('.').next());
    database.is_some_and(is_of_user)
}

fn documents(array: Option<Value<'_>>) -> impl Iterator<Item = Document<'_>> {
    let array = array.and_then(|array| array.as_array());
    array.into_iter().flat_map(|array| array.iter()).filter_map(|value| value.as_document())
}

/// Returns the target database of a pipeline's last stage.
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
