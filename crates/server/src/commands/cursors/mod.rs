//! Commands on cursors, and the replies that contain one.

pub(crate) mod cursor_reply;
pub(crate) mod get_more;
