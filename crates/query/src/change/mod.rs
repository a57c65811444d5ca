//! Changes as they are logged, and as clients are told of them: the oplog and change streams.

mod description;
pub(crate) mod diff;
mod token;

pub use description::describe;
pub use diff::{apply, between};
pub use token::{ResumeToken, TokenParts};
