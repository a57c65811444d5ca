//! An embeddable document database without sockets or commands.
//!
//! [`Database`] stores documents in an engine, keeps the catalog and the indexes, finds documents
//! through plans and changes them through transactions. It knows BSON and the query language and
//! nothing of the wire: every call is synchronous and returns values or MongoDB's errors.

mod access;
mod cached_plans;
pub mod catalog;
mod catalog_change;
mod catalog_read;
mod change_stream;
mod changes;
mod clock;
pub mod collection;
mod commit;
mod cursor;
mod database;
mod ddl;
mod duplicate;
mod exec;
mod explain;
mod history;
pub mod index;
pub mod keys;
mod logged;
mod memory;
mod open;
mod open_transaction;
mod operation;
mod oplog;
mod option_field;
mod options;
mod plan;
mod plan_cache;
mod read;
mod retry_record;
mod scope;
mod statistics;
mod strict;
mod transaction;
mod upkeep;
mod validator;
mod watch;
mod write;
mod write_lock;
mod write_queues;

pub use cached_plans::{IndexFilter, IndexFilters};
pub use catalog::{SavedState, StateName};
pub use clock::{Clock, ManualClock, SettableClock, SystemClock};
pub use commit::uuid_text;
pub use cursor::{Cursor, CursorTag, Cursors, FIRST_BATCH, IdleCursor};
pub use database::{Counters, Database};
pub use ddl::{CreateIndexesOutcome, RenameRequest, Resolved, check_writable};
pub use exec::RecordStream;
pub use explain::Verbosity;
pub use history::View;
pub use memory::OPERATION_MEMORY;
pub use open_transaction::OpenTransaction;
pub use operation::{
    BlockingHook, IndexHint, Operation, Progress, QuerySettings, Ready, RecordTicket, Suspension,
};
pub use plan::{Hint, Read};
pub use plan_cache::ShapeRequest;
pub use read::{AggregateRequest, FindRequest, MeasuredRange, ServerSource, Sources};
pub use retry_record::{NO_USER, RetryKey, SessionId, StoredRetry};
pub use scope::Scope;
pub use statistics::{CollectionStatistics, WorkingSets};
pub use storage::store::{
    AcknowledgmentLevel, Committed, Member, MemberPreference, StandbyRead, WriteConcernStatus,
};
pub use storage::{
    EventCount, JournalWait, Listener, Position, Queue, Reads, Span, Ticket, cancellation, mark, mutant,
    threads, time,
};
pub use strict::{StrictReport, filter_shape};
pub use upkeep::difference::Since;
pub use upkeep::{repair, validate};
pub use validator::{ValidatorChange, unknown_level};
pub use watch::{Interest, Watch};
pub use write::{
    Action, DeleteRequest, FindAndModifyOutcome, FindAndModifyRequest, InsertProgress, InsertRequest,
    Inserted, Insertion, ReplyBuilder, UpdateOutcome, UpdateRequest, delete_answer,
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
        // A cursor of a shared store reads on after its collection or index has been dropped.
        storage::Error::NoSuchIdent(_) => err!(QueryPlanKilled, "the collection or index was dropped"),
        other @ storage::Error::Corrupted(_) => err!(DataCorruptionDetected, "storage engine: {other}"),
        other => err!(InternalError, "storage engine: {other}"),
    }
}
