//! Changes as they are logged, and as clients are told of them: the oplog and change streams.
//!
//! | file | what |
//! |---|---|
//! | `diff` | what an update changed, as `{$v: 2}` has it: computed, applied |
//! | `description` | a diff as `updateDescription` |
//! | `entry` | how the changes of one commit are stored |
//! | `oplog` | an entry as the documents of `local.oplog.rs` |
//! | `token` | resume tokens |
//! | `spec` | what a stream was asked for |
//! | `event` | an operation as an event |
//! | `stream` | which events a stream shows, where it resumes, when it ends |
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
pub use entry::{Action, Change, Entry, Moment, Operation, Recorder, Session, Source};
pub use event::{Event, Surroundings};
pub use oplog::oplog_documents;
pub use spec::{BeforeChange, FullDocument, Scope, Spec};
pub use split::id_modified;
pub use stream::{ChangeStream, history_lost};
pub use token::{ResumeToken, TokenParts};
