//! An embeddable document database without sockets or commands.
//!
//! [`Database`] stores documents in an engine, keeps the catalog and the indexes, finds documents
//! through plans and changes them through transactions. It knows BSON and the query language and
//! nothing of the wire: every call is synchronous and returns values or MongoDB's errors.

mod access;
pub mod catalog;
mod changes;
mod clock;
mod commit;
mod cursor;
mod database;
mod ddl;
mod exec;
mod explain;
pub mod index;
pub mod keys;
mod log;
mod memory;
mod open;
mod operation;
mod option_field;
mod plan;
mod read;
mod scope;
#[cfg(test)]
mod tests;
mod upkeep;
mod validator;
mod watch;
mod write;
mod write_queues;

pub use catalog::cached_plans::{IndexFilter, IndexFilters};
pub use catalog::collection::checked_age;
pub use catalog::history::View;
pub use catalog::options::check_capped;
pub use catalog::{SavedState, StateName};
pub use changes::open_transaction::OpenTransaction;
pub use changes::retry_record::{NO_USER, RetryKey, SessionId, StoredRetry};
pub use clock::{Clock, ManualClock, SettableClock, SystemClock};
pub use cursor::{Cursor, CursorTag, Cursors, FIRST_BATCH, IdleCursor};
pub use database::{Counters, Database, time_ahead};
pub use ddl::{
    BuildProgress, ChangedIndex, CollectionChange, CollectionChanged, CreateIndexesOutcome, IndexChange,
    IndexCreation, RenameRequest, Resolved, check_writable,
};
pub use exec::RecordStream;
pub use explain::Verbosity;
pub use memory::{LargePlace, OPERATION_MEMORY};
pub use operation::{
    BlockingHook, IndexHint, Operation, Progress, QuerySettings, Ready, RecordTicket, Suspension,
};
pub use plan::strict::{StrictReport, filter_shape};
pub use plan::{Hint, Read};
pub use read::{AggregateRequest, CappedCopy, FindRequest, MeasuredRange, ServerSource, Sources};
pub use scope::Scope;
pub use storage::store::{
    AcknowledgmentLevel, Committed, Member, MemberPreference, StandbyRead, WriteConcernStatus,
};
pub use storage::{
    EventCount, JournalWait, Listener, Position, Queue, Reads, Span, Ticket, cancellation, mark, mutant,
    threads, time,
};
pub use upkeep::constraint::CollModProgress;
pub use upkeep::difference::Since;
pub use upkeep::plan_cache::ShapeRequest;
pub use upkeep::statistics::{CollectionStatistics, WorkingSets};
pub use upkeep::{repair, validate};
pub use validator::{ValidatorChange, unknown_level};
pub use watch::{Interest, Watch};
pub use write::{
    Action, DeleteRequest, FindAndModifyOutcome, FindAndModifyRequest, InsertProgress, InsertRequest,
    Inserted, Insertion, ReplyBuilder, UpdateOutcome, UpdateRequest, WriteProgress, delete_answer,
};

/// The parts of the query language that this crate's calls take: a caller needs no other crate.
pub mod language {
    pub use query::expression::Expression;
    pub use query::limits::{DEFAULT_BYTES, Limits};
    pub use query::matcher::{Matcher, mentions_expr};
    pub use query::pipeline::{CollStats, External, Inputs, Requester, Resource, StageDefinition};
    pub use query::pipeline::{first_stage, from_documents, stages_of};
    pub use query::query_shape;
    pub use query::{Arena, Collation, Context, Helpers, Interrupt, Projection, SortPattern, Update};
}

/// The error of the storage engine as MongoDB would report it.
pub(crate) fn storage_error(error: storage::Error) -> base::Error {
    use base::err;
    use storage::store::{LOG, LOG_TREES};
    match error {
        storage::Error::WriteConflict => err!(WriteConflict, "WriteConflict"),
        storage::Error::Full(_) => err!(OutOfDiskSpace, "no space left for the write"),
        // The statement begins again, as on MongoDB's mongos: see `Database::by_latest_catalog`.
        storage::Error::CatalogChanged => err!(StaleConfig, "the catalog has changed"),
        storage::Error::SnapshotTooOld => {
            err!(SnapshotTooOld, "Read timestamp is older than the oldest available timestamp.")
        }
        storage::Error::Interrupted(reason) => operation::kill_error(base::ErrorCode::from_number(reason)),
        storage::Error::Closed => err!(ShutdownInProgress, "the storage engine is closed"),
        storage::Error::Unavailable(why) => err!(HostUnreachable, "{why}"),
        // A cursor of a shared store reads on after its part of the oplog, its collection or its index is gone.
        storage::Error::NoSuchIdent(ident) if (LOG_TREES..=LOG).contains(&ident) => {
            err!(CappedPositionLost, "CollectionScan died due to position in capped collection being deleted")
        }
        storage::Error::NoSuchIdent(_) => err!(QueryPlanKilled, "the collection or index was dropped"),
        other @ storage::Error::Corrupted(_) => err!(DataCorruptionDetected, "storage engine: {other}"),
        other => err!(InternalError, "storage engine: {other}"),
    }
}

/// Makes a report about the server. Its waits for a lost store end after a second.
pub fn within_report<T>(read: impl FnOnce() -> T) -> T {
    let late = base::ErrorCode::HostUnreachable.number();
    cancellation::within_time(std::time::Duration::from_secs(1), late, read)
}
