//! What the cursor of a change stream is told of the stream.

use base::bson::DocumentBuf;
use parking_lot::Mutex;
use query::change::ResumeToken;
use std::sync::Arc;

/// What a stream's cursor is told of it.
#[derive(Clone)]
pub(crate) struct Progress(pub(crate) Arc<Mutex<State>>);

/// How far a stream has come.
pub(crate) struct State {
    /// Behind all events made so far, and all that the stream doesn't show.
    pub(crate) reached: ResumeToken,
    /// The event in the hands of the pipeline's later stages.
    pub(crate) current: Option<ResumeToken>,
    /// Whether the stream has ended, its last event being an invalidation.
    pub(crate) ended: bool,
}

impl Progress {
    /// Where a client resumes that has got everything so far.
    pub(crate) fn reached(&self) -> DocumentBuf {
        self.0.lock().reached.to_document()
    }

    /// Whether there will be no more events.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.lock().ended
    }
}
