//! Shared parts of the commands on documents: operation, context, common fields.

use crate::call::{Call, DurabilityWait, HandlerStatus};
use crate::process::blocking;
use crate::protocol::fields::Fields;
use crate::protocol::read_concern::{Mode, ReadConcern, ReadPreference};
use crate::protocol::reply;
use crate::protocol::write_concern::{Effective, WriteConcern};
use base::bson::Document;
use base::{Error, Namespace, Result, bail, err};
use database::language::{Collation, Context, Interrupt};
use database::{
    AcknowledgmentLevel, Committed, Hint, MemberPreference, Operation, Position, Scope, StandbyRead,
    WriteConcernStatus, time,
};
use std::sync::Arc;

impl Call<'_> {
    /// Returns the scope of a command that reads documents. The read preference may choose a
    /// standby.
    ///
    /// Errors: as [`Database::scope_to_read`](database::Database::scope_to_read) and
    /// [`choose_member`](Self::choose_member); a snapshot that no longer exists.
    pub(crate) fn scope_to_read(
        &self,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
    ) -> Result<Scope> {
        let operation = self.operation();
        self.choose_member(&operation)?;
        self.read_by(operation, namespace, collation, variables)
    }

    /// Returns the scope of a command that reads from the primary, for example a tailable cursor.
    ///
    /// Errors: as [`scope_to_read`](Self::scope_to_read).
    pub(crate) fn scope_to_read_here(
        &self,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
    ) -> Result<Scope> {
        self.read_by(self.operation(), namespace, collation, variables)
    }

    fn read_by(
        &self,
        operation: Arc<Operation>,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
    ) -> Result<Scope> {
        if self.arguments.read_concern.level == Some(ReadConcern::Snapshot) && self.transaction.is_none() {
            let (time, view) = self.server.database.snapshot_at(self.arguments.read_concern.at)?;
            operation.set_snapshot(time, view);
        }
        let context = self.context(&operation);
        self.server.database.scope_to_read(operation, namespace, collation, variables, context)
    }

    /// Returns the scope of a command that writes documents.
    ///
    /// Errors: as [`Database::scope_to_write`](database::Database::scope_to_write).
    pub(crate) fn scope_to_write(
        &self,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
    ) -> Result<Scope> {
        let operation = self.operation();
        let context = self.context(&operation);
        self.server.database.scope_to_write(operation, namespace, collation, variables, context)
    }

    /// Returns the scope of a command that does not use a collection's collation.
    pub(crate) fn scope(&self, namespace: Namespace) -> Scope {
        let operation = self.operation();
        let context = Arc::new(self.context(&operation));
        Scope::new(&operation, &namespace, &context)
    }

    /// Returns the context in which the query language is parsed and evaluated: the operation's cancellation, the time,
    /// randomness, limits, the user.
    #[inline]
    pub(crate) fn context(&self, operation: &Arc<Operation>) -> Context {
        let database = &self.server.database;
        let (times, spills) = (database.timestamps.clone(), database.spill_folder());
        let random = self.server.random();
        let mut context = Context::sharing(database.now_millis(), random, operation.clone(), times, spills);
        context.helpers = self.server.helpers.get().cloned();
        context.limits = self.server.parameters.limits();
        context.compatible_with = self.server.settings.compatible_with;
        if let Some(identity) = &self.connection.identity {
            context.user_roles = identity.privileges.user_roles();
        }
        if self.server.is_replica_set() || self.server.is_front_with_log() {
            context.cluster_time = Some(self.server.database.cluster_time());
        }
        context
    }

    /// Returns the write concern of this command, with defaults.
    pub(crate) fn write_concern(&self) -> Effective {
        let default = self.server.set_settings.default_concerns.write(self.server.is_replicated());
        Effective::new(self.arguments.write_concern.as_ref(), default)
    }

    /// Returns true if the write concern is `w: 0`. The reply of insert, update and delete then has no results and no
    /// errors of statements, as in MongoDB. Drivers read no reply at `w: 0`, except old ones.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.arguments.write_concern.as_ref().is_some_and(WriteConcern::is_unacknowledged)
    }

    /// Waits for the write concern and appends `writeConcernError` if it fails. The write stays
    /// committed.
    ///
    /// A command without a commit of its own waits for all earlier commits, as in MongoDB. Examples
    /// are an update without changes and a retry that the retry record answers.
    ///
    /// The wait for the journal starts after the handler returns and before the reply is sent. It
    /// holds no thread. A command inside of another command does not wait: the other command does. The result is the
    /// status of a handler that ends here.
    pub(crate) fn acknowledge(&mut self, committed: Option<Committed>) -> Result<HandlerStatus> {
        // A statement of a transaction does not wait. The commit of the transaction waits.
        if self.transaction.is_none() {
            let concern = self.write_concern();
            self.acknowledge_as(&concern, committed)?;
        }
        Ok(HandlerStatus::Done)
    }

    /// Holds the reply until the journal has all commits so far, if the commits of all commands wait for it. For
    /// settings, which the server stores without a write concern.
    pub(crate) fn wait_for_settings(&mut self) {
        let database = &self.server.database;
        if database.always_journals() {
            let position = database.latest_position();
            DurabilityWait { position, timeout: None }.join(&mut self.durability_wait);
        }
    }

    /// Does the work of `acknowledge` for a write concern that was read earlier.
    pub(crate) fn acknowledge_as(&mut self, concern: &Effective, committed: Option<Committed>) -> Result<()> {
        if self.connection.is_inner {
            return Ok(());
        }
        let (database, settings) = (&self.server.database, &self.server.settings);
        let waits = concern.waits_for_journal(settings.syncs) || database.always_journals();
        let by = match settings.shared {
            true => concern.by_members(),
            false => (waits && !settings.ephemeral).then_some(AcknowledgmentLevel::Journal),
        };
        let unsatisfiable = concern.unsatisfiable(|| self.server.members());
        if settings.shared {
            let position =
                committed.map_or_else(|| database.latest_position(), |committed| committed.position);
            let failure = match (by, &unsatisfiable) {
                (Some(by), None) | (Some(by @ AcknowledgmentLevel::Journal), _) => {
                    self.wait_for_members(concern, position, by)?
                }
                _ => None,
            };
            if let Some(error) = failure.or(unsatisfiable) {
                reply::write_concern_error(self.reply, &error);
            }
            return Ok(());
        }
        if let Some(error) = &unsatisfiable {
            reply::write_concern_error(self.reply, error);
        }
        if by.is_some() {
            let position =
                committed.map_or_else(|| database.latest_position(), |committed| committed.position);
            // The reply already reports an unsatisfiable concern, so only the journal is awaited.
            let timeout = concern.timeout().filter(|_| unsatisfiable.is_none());
            let timeout = timeout.map(|timeout| (time::now() + timeout, concern.timed_out()));
            DurabilityWait { position, timeout }.join(&mut self.durability_wait);
        }
        Ok(())
    }

    /// Waits for other members, at most for `wtimeout` and `maxTimeMS` and until the operation is
    /// interrupted.
    ///
    /// Returns the error for the reply if the members lack the write by then. The write stays
    /// committed.
    ///
    /// Errors: the store's errors if the write may be lost.
    fn wait_for_members(
        &self,
        concern: &Effective,
        position: Position,
        by: AcknowledgmentLevel,
    ) -> Result<Option<Error>> {
        let end = concern.timeout().map(|timeout| time::now() + timeout);
        let operation = self.operation();
        let mut interruption = None;
        let status = blocking::in_place(|| {
            let mut should_continue = || {
                interruption = operation.check_now(false).err();
                interruption.is_none() && end.is_none_or(|end| time::now() < end)
            };
            self.server.database.wait_acknowledged(position, by, &mut should_continue)
        });
        Ok(match (status?, interruption) {
            (WriteConcernStatus::Satisfied, _) => None,
            (WriteConcernStatus::Interrupted, Some(error)) => Some(error),
            (WriteConcernStatus::Interrupted, None) => Some(concern.timed_out()),
            (WriteConcernStatus::Cancelled(why), _) => Some(concern.cancelled(&why)),
        })
    }

    /// Waits until the commits that a read may have seen are durable, if its read concern requires
    /// this and the store is shared. A read then never returns a commit that is lost later.
    /// `before` is the latest position before the read.
    ///
    /// Errors: the store's errors; interruption.
    pub(crate) fn confirm_read(&self, before: Position) -> Result<()> {
        let must_be_durable = self.arguments.read_concern.level.is_some_and(ReadConcern::is_durable);
        if !must_be_durable || !self.server.settings.shared || self.transaction.is_some() {
            return Ok(());
        }
        match self.wait_for_members(&Effective::majority(), before, AcknowledgmentLevel::Majority)? {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Makes an operation read from a standby if the read preference requests it. Must run before
    /// the first read.
    ///
    /// Errors: FailedToSatisfyReadPreference if the preference requires a secondary and none is
    /// available; NotWritablePrimary for a linearizable read of a secondary; InvalidOptions in a
    /// transaction.
    fn choose_member(&self, operation: &Operation) -> Result<()> {
        let ReadPreference { mode, has_tags } = self.arguments.read_preference;
        if !self.server.settings.shared {
            return Ok(());
        }
        if self.transaction.is_some() && mode != Mode::Primary {
            bail!(InvalidOptions, "read preference in a transaction must be primary");
        }
        let preference = match mode {
            Mode::Primary => return Ok(()),
            Mode::PrimaryPreferred => MemberPreference::PrimaryPreferred,
            Mode::Secondary => MemberPreference::Secondary,
            Mode::SecondaryPreferred => MemberPreference::SecondaryPreferred,
            Mode::Nearest => MemberPreference::Nearest,
        };
        let concern = self.arguments.read_concern;
        match concern.level {
            // This preference allows the primary, and only the primary supports these levels.
            Some(ReadConcern::Linearizable | ReadConcern::Snapshot) if preference.allows_primary() => {
                return Ok(());
            }
            Some(ReadConcern::Linearizable) => {
                bail!(NotWritablePrimary, "cannot satisfy linearizable read concern on non-primary node");
            }
            Some(ReadConcern::Snapshot) => {
                bail!(
                    FailedToSatisfyReadPreference,
                    "readConcern snapshot is read from the primary, and the read preference is secondary"
                );
            }
            _ => {}
        }
        let requested = StandbyRead { after: concern.after, preference };
        if !has_tags && self.server.database.read_standby(operation, requested)? {
            return Ok(());
        }
        // No member has tags. Tags restrict only secondaries, except for `nearest`.
        if preference.allows_primary() && !(has_tags && mode == Mode::Nearest) {
            return Ok(());
        }
        Err(err!(
            FailedToSatisfyReadPreference,
            "Could not find host matching read preference {{ mode: \"{}\" }} among the PostgreSQL servers",
            mode.name()
        ))
    }
}

impl<'a> Fields<'a> {
    /// Takes `hint`: a key pattern or the name of an index.
    ///
    /// Errors: an invalid hint.
    pub(crate) fn hint(&mut self) -> Result<Option<Hint>> {
        match self.any("hint")? {
            Some(value) => Hint::parse(value),
            None => Ok(None),
        }
    }

    /// Takes `collation`. An empty document is `None`.
    ///
    /// Errors: an invalid collation.
    pub(crate) fn collation(&mut self) -> Result<Option<Collation>> {
        match self.document("collation")?.filter(|collation| !collation.is_empty()) {
            Some(collation) => Collation::parse(collation, "collation").map(Some),
            None => Ok(None),
        }
    }

    /// Takes `arrayFilters`.
    pub(crate) fn array_filters(&mut self) -> Result<Vec<Document<'a>>> {
        Ok(self.documents("arrayFilters")?.map(|filters| filters.iter().collect()).unwrap_or_default())
    }
}
