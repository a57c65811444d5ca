//! A SASL conversation: the steps of SCRAM, each a command, and the state between them.
//!
//! An unknown user gets the same replies as a known user with a wrong password. The salt depends
//! only on the name.

use super::login::{self, Failure, Login};
use super::user::User;
use super::{iterations, store};
use crate::protocol::names::UserName;
use crate::state::auth::Auth;
use crate::state::connection::{ConnectionState, Conversation, Step};
use crate::state::parameters::Parameters;
use base::{Result, bail};
use wire::scram::{self, Credential, Mechanism};
use wire::secret;

/// The first message of a client.
pub(crate) struct ClientFirst {
    mechanism: Mechanism,
    /// Requested user.
    pub(crate) user: UserName,
    /// True if the message came inside a hello.
    is_speculative: bool,
    /// True if the client skips the empty last message (`skipEmptyExchange`).
    skips_empty: bool,
    first: scram::ClientFirst,
}

/// The server's next message.
pub(crate) struct ServerMessage {
    /// True if the conversation is complete and the client is authenticated.
    pub(crate) done: bool,
    /// Text of the message.
    pub(crate) message: String,
}

impl ClientFirst {
    /// Parses the first message for a mechanism.
    ///
    /// Errors: MechanismUnavailable; AuthenticationFailed.
    pub(crate) fn read(
        auth: &Auth,
        state: &ConnectionState,
        (mechanism, db): (&str, &str),
        message: &[u8],
        (is_speculative, skips_empty): (bool, bool),
    ) -> Result<ClientFirst> {
        let enabled = Mechanism::of_name(mechanism).filter(|_| auth.takes(mechanism));
        let Some(found) = enabled else {
            let why = format!("Received authentication for mechanism {mechanism} which is not enabled");
            bail!(MechanismUnavailable, "{why}");
        };
        auth.logins.count(found.name(), is_speculative, |tries| &tries.received);
        let failure = |user: &str, why: &str| {
            let user = UserName::new(user, db);
            login::failed(auth, state, &Failure { user: &user, mechanism: found.name(), is_speculative, why })
        };
        let first = scram::ClientFirst::read(found, message).map_err(|refusal| failure("", &refusal.0))?;
        Ok(ClientFirst {
            mechanism: found,
            user: UserName::new(&first.user, db),
            is_speculative,
            skips_empty,
            first,
        })
    }

    /// Begins a conversation on a connection and replaces an earlier one.
    ///
    /// Errors: AuthenticationFailed; the store's errors.
    pub(crate) fn begin(
        self,
        auth: &Auth,
        parameters: &Parameters,
        state: &mut ConnectionState,
    ) -> Result<ServerMessage> {
        state.conversation = None;
        let known = store::user(&auth.database, &self.user)?.and_then(|found| User::read(found.view()));
        let is_there = known.is_some();
        let known = known.and_then(|user| user.credential(self.mechanism).cloned());
        if self.is_speculative && is_there && known.is_none() {
            // The client guessed the mechanism. The same hello requests the valid mechanisms.
            bail!(AuthenticationFailed, "Authentication failed.");
        }
        let shown = match &known {
            Some(credential) => Ok(credential.clone()),
            None => dummy_credential(auth, parameters, self.mechanism, &self.user),
        };
        let (mechanism, user) = (self.mechanism, self.user);
        let replied =
            shown.map_err(wire::scram::ScramError).and_then(|credential| self.first.reply(credential));
        let (scram, message) = replied.map_err(|refusal| {
            let is_speculative = self.is_speculative;
            let failure =
                Failure { user: &user, mechanism: mechanism.name(), is_speculative, why: &refusal.0 };
            login::failed(auth, state, &failure)
        })?;
        state.conversation = Some(Box::new(Conversation {
            mechanism,
            user,
            is_speculative: self.is_speculative,
            skips_empty: self.skips_empty,
            step: Step::Proof(Box::new(scram), known),
        }));
        Ok(ServerMessage { done: false, message })
    }
}

impl Conversation {
    /// Handles the client's next message. A failed or complete conversation is removed.
    ///
    /// Errors: AuthenticationFailed; errors if the connection already has a user.
    pub(crate) fn sasl_continue(
        self,
        auth: &Auth,
        state: &mut ConnectionState,
        message: &[u8],
        api_strict: bool,
    ) -> Result<ServerMessage> {
        let Conversation { mechanism, user, is_speculative, skips_empty, step } = self;
        let (credential, message) = match step {
            Step::Empty(credential) => (credential, None),
            Step::Proof(scram, known) => {
                let refused = match (scram.finish(message), known) {
                    (Ok(message), Some(credential)) => Ok((credential, message)),
                    (Ok(_), None) | (Err(_), None) => Err("the user has no credentials for it".to_string()),
                    (Err(refusal), Some(_)) => Err(refusal.0),
                };
                let (credential, message) = refused.map_err(|why| {
                    let failure =
                        Failure { user: &user, mechanism: mechanism.name(), is_speculative, why: &why };
                    login::failed(auth, state, &failure)
                })?;
                (credential, Some(message))
            }
        };
        if let Some(message) = message.as_ref().filter(|_| !skips_empty) {
            let step = Step::Empty(credential);
            state.conversation =
                Some(Box::new(Conversation { mechanism, user, is_speculative, skips_empty, step }));
            return Ok(ServerMessage { done: false, message: message.clone() });
        }
        let login = Login { user: &user, mechanism: mechanism.name(), is_speculative, api_strict };
        // The password may have changed since the conversation began.
        login::authenticate(auth, state, &login, |user| user.credential(mechanism) == Some(&credential))?;
        Ok(ServerMessage { done: true, message: message.unwrap_or_default() })
    }
}

/// Returns a credential for an unknown user: a constant salt for each name, as for a known
/// user. No proof matches it.
pub(super) fn dummy_credential(
    auth: &Auth,
    parameters: &Parameters,
    mechanism: Mechanism,
    user: &UserName,
) -> std::result::Result<Credential, String> {
    let secret = auth.secret()?;
    let mut salt = mechanism.hmac(secret, &[user.id().as_bytes()]);
    salt.truncate(mechanism.salt_size());
    let size = mechanism.key_size();
    let mut keys = secret::random::<64>()?.to_vec();
    keys.truncate(2 * size);
    let server_key = keys.split_off(size);
    Ok(Credential { iterations: iterations(parameters, mechanism), salt, stored_key: keys, server_key })
}
