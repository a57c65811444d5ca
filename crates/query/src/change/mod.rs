//! Changes in the log and in change streams.
//!
//! | file | content |
//! |---|---|
//! | `diff` | diffs of updates in the format of `{$v: 2}`: computed, applied |
//! | `description` | a diff as `updateDescription` |
//! | `entry` | the stored form of a commit's changes |
//! | `oplog` | an entry as documents of `local.oplog.rs` |
//! | `token` | resume tokens |
//! | `spec` | the options of a stream |
//! | `event` | an operation as an event |
//! | `stream` | the selection of events, resumption, the end of a stream |
//! | `split` | events too large for one document |

mod description;
pub(crate) mod diff;
mod entry;
mod event;
mod oplog;
mod spec;
pub(crate) mod split;
mod stream;
#[cfg(test)]
mod tests;
mod token;

pub use description::describe;
pub use diff::{apply, between, same_value};
pub use entry::{
    Action, Change, Entry, EntryPosition, EntryTime, Operation, Recorder, Session, Source, unreadable,
};
pub use event::{Event, EventContext};
pub use oplog::oplog_documents;
pub use spec::{BeforeChange, FullDocument, Scope, Spec};
pub use split::id_modified;
pub use stream::{ChangeStream, history_lost};
pub use token::{ResumeToken, TokenParts};
