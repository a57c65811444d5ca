//! Users: the logins of the clients, and guests whose users are created and dropped.
//!
//! In seeds with logins the server begins without a user. All clients then try to create the first one by the localhost
//! exception, and log in as that user afterwards.

use crate::action::{USERS, cursor, failure, user_name};
use crate::world::World;
use base::bson::{Builder, DocumentBuf, Value};
use server::{Advance, Server, SimulatedConnection};
use std::sync::Arc;
use wire::scram::{Client, Mechanism};

impl World {
    /// Connects a client, and logs in if the server has a user. Returns true after a login.
    pub(crate) fn connect(&self, server: &Arc<Server>) -> Result<(SimulatedConnection, bool), String> {
        let mut connection = SimulatedConnection::new(server);
        let Some(user) = self.first_user() else { return Ok((connection, false)) };
        self.mark("logins");
        match self.log_in(&mut connection, user)? {
            Some(true) => Ok((connection, true)),
            _ if self.has_stopped() => Ok((connection, false)),
            other => Err(format!("the login of user{user} is answered by {other:?}")),
        }
    }

    /// Logs in as a user who may exist. Errors: the server and the model differ, or the user may do too much.
    fn try_guest(&self, server: &Arc<Server>) -> Result<(), String> {
        let user = 1 + self.random.below(2) as i64;
        let mut connection = SimulatedConnection::new(server);
        let Some(is_in) = self.log_in(&mut connection, user)? else { return Ok(()) };
        let exists = self.model.borrow().state().get(USERS).is_some_and(|users| users.contains_key(&user));
        if is_in != exists {
            return Err(format!("user{user} exists: {exists}, logs in: {is_in}"));
        }
        self.mark(if is_in { "logins of guests" } else { "refused logins" });
        let mut find = Builder::new();
        find.append(c"find", "a").append(c"$db", "test");
        let found = self.call(&mut connection, find)?.is_some_and(|reply| cursor(reply.view()).is_ok());
        let mut drop = Builder::new();
        drop.append(c"drop", "a").append(c"$db", "test");
        let dropped = self.call(&mut connection, drop)?.is_some_and(|reply| failure(reply.view()).is_none());
        match found == is_in && !dropped {
            true => Ok(()),
            false => Err(format!("user{user}, logged in: {is_in}, reads: {found}, drops: {dropped}")),
        }
    }

    /// Checks the login of a guest.
    pub(crate) fn check_guest(&self) {
        if let Some(server) = self.server()
            && let Err(violation) = self.try_guest(&server)
            && !self.has_stopped()
        {
            self.fail(violation);
        }
    }

    /// Logs in. Returns `None` if the server delays the login.
    fn log_in(&self, connection: &mut SimulatedConnection, user: i64) -> Result<Option<bool>, String> {
        let name = user_name(user);
        let client = Client::new(Mechanism::Sha1, &name, &name).map_err(|error| error.to_string())?;
        let mut start = Builder::new();
        start.append(c"saslStart", 1).append(c"mechanism", Mechanism::Sha1.name());
        start.append(c"payload", Value::Binary { subtype: 0, bytes: client.first().as_bytes() });
        start.begin_document(c"options").append(c"skipEmptyExchange", true).end().append(c"$db", "admin");
        let Some(reply) = self.call(connection, start)? else { return Ok(None) };
        let Some(first) = payload(&reply) else { return Ok(Some(false)) };
        let (verifier, proof) = client.reply(&first).map_err(|error| error.to_string())?;
        let mut go_on = Builder::new();
        go_on.append(c"saslContinue", 1).append(c"conversationId", 1);
        go_on.append(c"payload", Value::Binary { subtype: 0, bytes: proof.as_bytes() });
        go_on.append(c"$db", "admin");
        let Some(reply) = self.call(connection, go_on)? else { return Ok(None) };
        let Some(last) = payload(&reply) else { return Ok(Some(false)) };
        verifier.check(&last).map(|()| Some(true)).map_err(|error| error.to_string())
    }

    /// Runs a command that does not wait. Returns `None` if it waits.
    fn call(
        &self,
        connection: &mut SimulatedConnection,
        command: Builder,
    ) -> Result<Option<DocumentBuf>, String> {
        connection.receive(&wire::message::encode(1, 0, command.finish().view()));
        // No client runs meanwhile.
        let before = self.current.replace(None);
        let advance = connection.advance();
        self.current.set(before);
        match advance {
            Advance::Waiting => Ok(None),
            Advance::Reply(bytes) => wire::message::document(&bytes).map(Some).ok_or("no reply".to_string()),
            other => Err(format!("a login gets {other:?}")),
        }
    }
}

/// Returns the payload of a reply of the login; `None` after an error.
fn payload(reply: &DocumentBuf) -> Option<Vec<u8>> {
    match reply.view().get("payload") {
        Some(Value::Binary { bytes, .. }) => Some(bytes.to_vec()),
        _ => None,
    }
}
