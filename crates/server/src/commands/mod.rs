//! The handlers of the commands: one file for each command or for a few related commands.
//!
//! # How to add a command
//!
//! 1. Write `commands/NAME.rs` with its row and its handler:
//!
//!    ```ignore
//!    //! `count`: the number of matching documents.
//!
//!    /// The row in the command table.
//!    pub(crate) const COUNT: Row =
//!        Row::new(
//!            "count",
//!            Kind::Read,
//!            "Counts the documents that match.",
//!            count,
//!            Requirements::Collection(Action::Find),       // the required privilege
//!        )
//!        .stable_api();
//!
//!    fn count(call: &mut Call<'_>) -> Result<Answer> {
//!        let mut fields = call.fields();                   // without $db, lsid, maxTimeMS, …
//!        let namespace = fields.namespace()?;              // the command's own field
//!        let query = fields.document("query")?.unwrap_or(Document::EMPTY);
//!        let limit = fields.integer("limit")?.unwrap_or(0);
//!        let skip = fields.natural("skip")?.unwrap_or(0);
//!        fields.refuse_unless_default("fields")?;          // known, not implemented: 238
//!        fields.finish()?;                                 // anything else: 40415
//!
//!        let n = …one call into the database…;
//!        call.reply.append(c"n", n);                        // `ok` and the rest are appended later
//!        Ok(HandlerStatus::Done)
//!    }
//!    ```
//!
//!    `Kind` decides which concern the command accepts: reads accept a readConcern, writes a writeConcern.
//!    [`Fields::required`](crate::protocol::fields::Fields::required) takes a mandatory field.
//!    [`Fields::documents`](crate::protocol::fields::Fields::documents) reads an array or a document sequence.
//!    [`Fields::of_document`](crate::protocol::fields::Fields::of_document) reads nested documents
//!    (`update.updates`).
//!
//! 2. Add `mod NAME;` below and the row to [`ROWS`](table::ROWS) in its place. Add
//!    other spellings of the name to the aliases.
//!
//! An error returned with `?` becomes the reply of the failed command, labels included.
//! [`reply`](crate::protocol::reply) builds the elements of `writeErrors` and a `writeConcernError`. The
//! general arguments are in `call.arguments`. A handler that must wait returns the value of
//! [`Call::wait`](crate::call::Call::wait). The server then calls it again.

pub(crate) mod admin;
pub(crate) mod aggregate;
pub(crate) mod alone;
pub(crate) mod apply_ops;
pub(crate) mod authenticate;
pub(crate) mod backup;
pub(crate) mod bulk_write;
pub(crate) mod check_sharding_index;
pub(crate) mod clean_slate;
pub(crate) mod cluster_parameters;
pub(crate) mod collections;
pub(crate) mod count;
pub(crate) mod current_op;
pub(crate) mod cursor_reply;
pub(crate) mod data;
pub(crate) mod default_concerns;
pub(crate) mod delete;
pub(crate) mod diagnostics;
pub(crate) mod diff_database;
pub(crate) mod distinct;
pub(crate) mod explain;
pub(crate) mod fail_point;
pub(crate) mod find;
pub(crate) mod find_and_modify;
pub(crate) mod fsync;
pub(crate) mod get_more;
pub(crate) mod hello;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod kill_cursors;
pub(crate) mod listings;
pub(crate) mod login;
pub(crate) mod maintenance;
pub(crate) mod merge_users;
pub(crate) mod parameters;
pub(crate) mod plan_cache;
pub(crate) mod query_settings;
pub(crate) mod refused;
pub(crate) mod replication;
pub(crate) mod replication_changes;
pub(crate) mod replication_member;
pub(crate) mod retry;
pub(crate) mod roles;
pub(crate) mod roles_info;
pub(crate) mod search_indexes;
pub(crate) mod server_status;
pub(crate) mod sessions;
pub(crate) mod slow_queries;
pub(crate) mod sources;
pub(crate) mod statistics;
pub(crate) mod strict_report;
pub(crate) mod table;
pub(crate) mod transactions;
pub(crate) mod update;
pub(crate) mod user_roles;
pub(crate) mod user_write_block;
pub(crate) mod users;
pub(crate) mod users_info;
pub(crate) mod validate;
pub(crate) mod validate_metadata;
pub(crate) mod vellum_clock;
pub(crate) mod working_set;
pub(crate) mod write_batch;
