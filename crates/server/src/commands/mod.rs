//! The handlers of the commands: one file for each command or for a few related commands, in a folder for each kind.
//!
//! # How to add a command
//!
//! 1. Write `commands/FOLDER/NAME.rs` with its row and its handler:
//!
//!    ```ignore
//!    //! `count`: the number of matching documents.
//!
//!    /// The row in the command table.
//!    pub(crate) const COUNT: Row = Row::read("count", count, Requirements::Collection(Action::Find))
//!        .help("Counts the documents that match.")
//!        .stable_api();
//!
//!    fn count(call: &mut Call<'_>) -> Result<HandlerStatus> {
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
//!    A write accepts a write concern. The third argument is the required privilege.
//!    [`Fields::required`](crate::protocol::fields::Fields::required) takes a mandatory field.
//!    [`Fields::sequence`](crate::protocol::fields::Fields::sequence) reads an array or a document sequence.
//!    [`Fields::of_document`](crate::protocol::fields::Fields::of_document) reads nested documents
//!    (`update.updates`).
//!
//! 2. Add `mod NAME;` to `FOLDER/mod.rs` and the row to [`ROWS`](table::ROWS) in its place. Add
//!    other spellings of the name to the aliases.
//!
//! An error returned with `?` becomes the reply of the failed command, labels included.
//! [`reply`](crate::protocol::reply) builds the elements of `writeErrors` and a `writeConcernError`. The
//! general arguments are in `call.arguments`. A handler that must wait returns the value of
//! [`Call::wait`](crate::call::Call::wait). The server then calls it again.

pub(crate) mod clean_slate;
pub(crate) mod crud;
pub(crate) mod cursors;
pub(crate) mod ddl;
pub(crate) mod diagnostics;
pub(crate) mod sessions;
pub(crate) mod sets;
pub(crate) mod settings;
pub(crate) mod table;
pub(crate) mod users;
