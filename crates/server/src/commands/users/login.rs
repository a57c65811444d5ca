//! Authentication commands: saslStart, saslContinue, `authenticate`, logout, and the login part of hello.
//!
//! `authenticate` checks the client certificate of the connection (MONGODB-X509). The user is the certificate's
//! subject on `$external`, without a password. A client may send a user name, which then must equal the subject.

use crate::access::Requirements;
use crate::auth::login::{self, Failure, Login};
use crate::auth::{self, ClientFirst, EXTERNAL, X509};
use crate::call::{Call, HandlerStatus, Row};
use crate::protocol::fields::Fields;
use crate::protocol::names::UserName;
use crate::state::connection::{Conversation, Step};
use base::bson::{Builder, Document, Value};
use base::{Error, Result, bail, err};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use database::time;
use std::time::Duration;

/// Id of each conversation. A connection has one conversation at a time.
const CONVERSATION_ID: i32 = 1;

/// The row of `saslStart`.
pub(crate) const START: Row = Row::admin("saslStart", start, Requirements::Nothing)
    .help("Starts a SASL authentication.")
    .without_auth()
    .stable_api()
    .has_secrets();

fn start(call: &mut Call<'_>) -> Result<HandlerStatus> {
    if auth::is_pointless(&call.server.auth) {
        return Err(no_users());
    }
    let requested = Start::read(&mut call.fields(), true)?;
    let opening = requested.open(call, call.request.database, false)?;
    let server_message = opening.begin(&call.server.auth, &call.server.parameters, call.connection)?;
    append_server_message(call.reply, server_message.done, &server_message.message, requested.is_text);
    Ok(HandlerStatus::Done)
}

/// Fields of a `saslStart` command or of its form in hello.
struct Start<'a> {
    mechanism: &'a str,
    message: Vec<u8>,
    is_text: bool,
    skips_empty: bool,
}

impl<'a> Start<'a> {
    fn read(fields: &mut Fields<'a>, is_command: bool) -> Result<Start<'a>> {
        if is_command {
            fields.command_value();
        } else {
            fields.any("saslStart")?;
        }
        let mechanism = fields.required("mechanism", Fields::string)?;
        let (message, is_text) = payload(fields)?;
        let options = fields.document("options")?;
        let skips_empty = match options {
            None => false,
            Some(options) => {
                let mut options = Fields::of_document("saslStart.options", options);
                let skips = options.boolean("skipEmptyExchange")?.unwrap_or(false);
                options.finish()?;
                skips
            }
        };
        fields.any("autoAuthorize")?;
        fields.finish()?;
        Ok(Start { mechanism, message, is_text, skips_empty })
    }

    fn open(&self, call: &Call<'_>, db: &str, is_speculative: bool) -> Result<ClientFirst> {
        let manner = (is_speculative, self.skips_empty);
        ClientFirst::read(&call.server.auth, call.connection, (self.mechanism, db), &self.message, manner)
    }
}

/// Takes a payload: bytes, or base64 text from some clients. Returns true for text, since the reply
/// uses the same form.
fn payload(fields: &mut Fields<'_>) -> Result<(Vec<u8>, bool)> {
    match fields.required("payload", Fields::any)? {
        Value::Binary { bytes, .. } => Ok((bytes.to_vec(), false)),
        Value::String(text) => match BASE64_STANDARD.decode(text) {
            Ok(bytes) => Ok((bytes, true)),
            Err(_) => Err(err!(FailedToParse, "the payload is not base64")),
        },
        other => Err(fields.wrong_type("payload", other.kind(), "binData")),
    }
}

fn append_server_message(reply: &mut Builder, done: bool, message: &str, is_text: bool) {
    reply.append(c"conversationId", CONVERSATION_ID).append(c"done", done);
    match is_text {
        true => reply.append(c"payload", &BASE64_STANDARD.encode(message)),
        false => reply.append(c"payload", Value::Binary { subtype: 0, bytes: message.as_bytes() }),
    };
}

/// The row of `saslContinue`.
pub(crate) const CONTINUE: Row = Row::admin("saslContinue", sasl_continue, Requirements::Nothing)
    .help("Continues a SASL authentication.")
    .without_auth()
    .stable_api()
    .has_secrets();

fn sasl_continue(call: &mut Call<'_>) -> Result<HandlerStatus> {
    if auth::is_pointless(&call.server.auth) {
        return Err(no_users());
    }
    let mut fields = call.fields().after_name();
    let id = fields.required("conversationId", Fields::integer)?;
    let (message, is_text) = payload(&mut fields)?;
    fields.finish()?;
    if let Some(answer) = delay(call)? {
        return Ok(answer);
    }
    let conversation = call.connection.conversation.take();
    let conversation = conversation.ok_or_else(|| err!(ProtocolError, "No SASL session state found"))?;
    if id != i64::from(CONVERSATION_ID) {
        bail!(ProtocolError, "sasl: Mismatched conversation id");
    }
    let server_message = conversation.sasl_continue(
        &call.server.auth,
        call.connection,
        &message,
        call.arguments.api.is_strict(),
    )?;
    append_server_message(call.reply, server_message.done, &server_message.message, is_text);
    Ok(HandlerStatus::Done)
}

/// Waits before a proof of the password is checked, if logins of this user from this address have failed. A wait
/// before saslStart would not delay the proofs of conversations that began before the failures.
///
/// Errors: AuthenticationFailed if too many proofs already wait.
fn delay(call: &mut Call<'_>) -> Result<Option<HandlerStatus>> {
    let Some(Conversation { user, step: Step::Proof(..), .. }) = call.connection.conversation.as_deref()
    else {
        return Ok(None);
    };
    let is_first = call.progress.waiting_until.is_none();
    let client = call.connection.activity.client;
    let delay = match is_first {
        true => call.server.auth.delays.reserve(user, client.ip(), time::now()),
        false => Some(Duration::ZERO),
    };
    let Some(delay) = delay else {
        log::info!(
            id = 5286307, c = "ACCESS", client = client.to_string().as_str(), user = user.to_string().as_str(),
            result = 18;
            "Failed to authenticate: too many logins of this user from this address are waiting"
        );
        call.connection.conversation = None;
        bail!(AuthenticationFailed, "Authentication failed.");
    };
    Ok(if is_first && delay.is_zero() { None } else { call.wait(delay, |_| false) })
}

/// Handles the `speculativeAuthenticate` of a hello. After a failure the client sends `saslStart`
/// and gets the error.
pub(crate) fn begin_early(call: &mut Call<'_>, requested: Document<'_>) {
    if auth::is_pointless(&call.server.auth) {
        return;
    }
    if requested.get("authenticate").is_some() {
        return begin_early_by_certificate(call, requested);
    }
    let mut fields = Fields::of_document("speculative saslStart", requested);
    let Ok(Some(db)) = fields.string("db") else { return };
    let Ok(start) = Start::read(&mut fields, false) else { return };
    let Ok(opening) = start.open(call, db, true) else { return };
    if let Ok(server_message) = opening.begin(&call.server.auth, &call.server.parameters, call.connection) {
        call.reply.begin_document(c"speculativeAuthenticate");
        append_server_message(call.reply, server_message.done, &server_message.message, start.is_text);
        call.reply.end();
    }
}

/// Appends the mechanisms of a user for the `saslSupportedMechs` of a hello.
///
/// An unknown user gets all mechanisms, so the reply does not reveal which users exist.
///
/// Errors: BadValue for a string that is not a user name; the store's errors.
pub(crate) fn append_mechanisms(call: &mut Call<'_>, user: &str) -> Result<()> {
    let Some((db, name)) = user.split_once('.') else {
        bail!(BadValue, "UserName must contain a '.' separated database.user pair");
    };
    call.server.auth.logins.mechanisms_asked.add(1);
    call.reply.begin_array(c"saslSupportedMechs");
    if !auth::is_pointless(&call.server.auth) {
        let user = UserName::new(name, db);
        for mechanism in auth::mechanisms_of(&call.server.auth, &user)? {
            call.reply.push(mechanism);
        }
    }
    call.reply.end();
    Ok(())
}

/// The row of `logout`.
pub(crate) const LOGOUT: Row = Row::admin("logout", logout, Requirements::Nothing)
    .help("Logs out the users of this connection.")
    .stable_api()
    .without_auth();

fn logout(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    if call.connection.identity.as_ref().is_some_and(|identity| identity.user.db == call.request.database) {
        call.connection.identity = None;
    }
    Ok(HandlerStatus::Done)
}

/// Returns the error for a login while no users exist. The text explains what to do.
///
/// Drivers show this error to their users, who have no other hint about the credentials in the
/// connection string.
pub(crate) fn no_users() -> Error {
    err!(
        AuthenticationFailed,
        "Authentication failed: this server has no users yet. Connect without user and password: remove \
         USER:PASSWORD@ and authSource from the connection string"
    )
}

/// The row of `authenticate`.
pub(crate) const AUTHENTICATE: Row = Row::admin("authenticate", authenticate, Requirements::Nothing)
    .help("Authenticates with a certificate.")
    .without_auth()
    .has_secrets();

fn authenticate(call: &mut Call<'_>) -> Result<HandlerStatus> {
    if auth::is_pointless(&call.server.auth) {
        return Err(no_users());
    }
    let requested = Parts::read(call.fields().after_name(), call.request.database)?;
    let name = enter(call, &requested, false)?;
    call.reply.append(c"dbname", EXTERNAL).append(c"user", &name);
    Ok(HandlerStatus::Done)
}

/// Parsed fields of the request.
struct Parts<'a> {
    mechanism: &'a str,
    user: Option<&'a str>,
    db: &'a str,
}

impl<'a> Parts<'a> {
    fn read(mut fields: Fields<'a>, db: &'a str) -> Result<Parts<'a>> {
        let mechanism = fields.string("mechanism")?.unwrap_or(X509);
        let user = fields.string("user")?.filter(|user| !user.is_empty());
        // Other mechanisms have other fields. The error below refuses the mechanism, not its
        // fields.
        match mechanism {
            X509 => fields.finish()?,
            _ => drop(fields.rest()),
        }
        Ok(Parts { mechanism, user, db })
    }
}

/// Authenticates the certificate's user. Returns the user's name.
///
/// Errors: MechanismUnavailable, ProtocolError, AuthenticationFailed; errors if the connection
/// already has a user.
fn enter(call: &mut Call<'_>, requested: &Parts<'_>, is_speculative: bool) -> Result<String> {
    let Parts { mechanism, db, .. } = *requested;
    if mechanism != X509 || !call.server.auth.takes(X509) {
        bail!(MechanismUnavailable, "Received authentication for mechanism {mechanism} which is not enabled");
    }
    call.server.auth.logins.count(X509, is_speculative, |tries| &tries.received);
    if call.connection.peer.is_none() {
        bail!(ProtocolError, "SSL support is required for the MONGODB-X509 mechanism.");
    }
    if db != EXTERNAL {
        bail!(ProtocolError, "X.509 authentication must always use the $external database.");
    }
    let subject = call.connection.peer.as_ref().and_then(|peer| peer.subject.clone());
    let (name, why) = match (subject, requested.user) {
        (None, _) => (String::new(), Some("No verified subject name available from client")),
        (Some(subject), Some(user)) if user != subject => {
            (subject, Some("There is no x.509 client certificate matching the user."))
        }
        (Some(subject), _) => (subject, None),
    };
    let user = UserName::new(name, EXTERNAL);
    if let Some(why) = why {
        let failure = Failure { user: &user, mechanism: X509, is_speculative, why };
        // The holder of a certificate may see the reason: it reveals nothing about users.
        login::failed(&call.server.auth, call.connection, &failure);
        bail!(AuthenticationFailed, "{why}");
    }
    let login =
        Login { user: &user, mechanism: X509, is_speculative, api_strict: call.arguments.api.is_strict() };
    login::authenticate(&call.server.auth, call.connection, &login, |user| user.is_external)?;
    Ok(user.name)
}

/// Handles the `speculativeAuthenticate` of a hello. After a failure the client sends
/// `authenticate` and gets the error.
fn begin_early_by_certificate(call: &mut Call<'_>, requested: Document<'_>) {
    let mut fields = Fields::of_document("speculative authenticate", requested);
    // PyMongo sends no database.
    let Ok(db) = fields.string("db").map(|db| db.unwrap_or(EXTERNAL)) else { return };
    let Ok(_) = fields.any("authenticate") else { return };
    let Ok(requested) = Parts::read(fields, db) else { return };
    if let Ok(name) = enter(call, &requested, true) {
        call.reply.begin_document(c"speculativeAuthenticate");
        call.reply.append(c"dbname", EXTERNAL).append(c"user", &name).end();
    }
}
