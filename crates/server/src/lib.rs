//! The MongoDB wire protocol and its commands.
