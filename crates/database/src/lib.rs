//! An embeddable document database without sockets or commands.
//!
//! [`Database`] stores documents in an engine, keeps the catalog and the indexes, finds documents
//! through plans and changes them through transactions. It knows BSON and the query language and
//! nothing of the wire: every call is synchronous and returns values or MongoDB's errors.

pub mod catalog;
mod catalog_change;
mod catalog_read;
mod change_stream;
mod changes;
mod clean_slate;
mod clock;
mod clustered;
mod collation;
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
mod index_filter;
pub mod keys;
mod operation;
mod oplog;
mod options;
mod plan;
mod read;
pub mod repair;
mod session_id;
mod statistics;
mod strict;
mod transaction;
mod ttl;
mod turns;
pub mod validate;
mod validator;
mod watch;
mod write;
mod write_lock;

pub use clean_slate::{SavedState, StateName};
pub use clock::{Clock, ManualClock, SettableClock, SystemClock};
pub use commit::{Committed, uuid_text};
pub use cursor::{Cursor, Cursors, FIRST_BATCH};
pub use database::{Counters, Database, View};
pub use ddl::{CreateIndexesOutcome, RenameRequest, Resolved};
pub use exec::{Record, RecordStream};
pub use explain::Verbosity;
pub use index_filter::{IndexFilter, IndexFilters, ShapeRequest};
pub use operation::{BlockingHook, Operation, Progress};
pub use plan::{Hint, Read};
pub use query::spill_into;
pub use read::{AggregateRequest, FindRequest, Sources};
pub use session_id::{NOBODY, SessionId};
pub use statistics::CollectionStatistics;
pub use strict::StrictReport;
pub use transaction::OpenTransaction;
pub use watch::{Wake, Watch};
pub use write::{
    Action, AnswerOf, DeleteRequest, FindAndModifyOutcome, FindAndModifyRequest, InsertRequest, Inserted,
    Insertion, RetryKey, StoredRetry, UpdateOutcome, UpdateRequest, delete_answer,
};

/// The parts of the query language that this crate's calls take: a caller needs no other crate.
pub mod language {
    pub use query::expression::Expression;
    pub use query::limits::{DEFAULT_BYTES, Limits};
    pub use query::matcher::Matcher;
    pub use query::pipeline::from_documents;
    pub use query::{Arena, Collation, Context, Projection, SortPattern, Update};
}

/// The error of the storage engine as MongoDB would report it.
pub(crate) fn storage_error(error: storage::Error) -> base::Error {
    use base::err;
    match error {
        storage::Error::WriteConflict => err!(WriteConflict, "WriteConflict"),
        storage::Error::Full(_) => err!(OutOfDiskSpace, "no space left for the write"),
        storage::Error::Closed => err!(ShutdownInProgress, "the storage engine is closed"),
        other @ storage::Error::Corrupted(_) => err!(DataCorruptionDetected, "storage engine: {other}"),
        other => err!(InternalError, "storage engine: {other}"),
    }
}
