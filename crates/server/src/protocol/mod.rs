//! Parts of requests and replies: fields, names, session ids, API parameters, concerns, read preference, errors.

pub(crate) mod api;
pub(crate) mod fields;
pub(crate) mod names;
pub(crate) mod read_concern;
pub(crate) mod reply;
pub(crate) mod session_id;
pub(crate) mod write_concern;
