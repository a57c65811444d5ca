//! Changes as they are logged, and as clients are told of them: the oplog and change streams.

mod description;
pub(crate) mod diff;

pub use description::describe;
pub use diff::{apply, between};
