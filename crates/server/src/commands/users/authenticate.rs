//! `authenticate`: authentication by the client certificate of the connection (MONGODB-X509).
//!
//! The user is the certificate's subject on `$external`, without a password. A client may send a
//! user name, which then must equal the subject.

use super::login::no_users;
use crate::access::Requirements;
use crate::access::command::Kind;
use crate::auth::login::{self, Failure, Login};
use crate::auth::{self, EXTERNAL, X509};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::protocol::fields::Fields;
use crate::protocol::names::UserName;
use base::bson::Document;
use base::{Result, bail};

/// The row of `authenticate`.
pub(crate) const AUTHENTICATE: Row = Row::new(
    "authenticate",
    Kind::Admin,
    "Authenticates with a certificate.",
    authenticate,
    Requirements::Nothing,
)
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
    let login = Login { user: &user, mechanism: X509, is_speculative, api_strict: call.arguments.api_strict };
    login::authenticate(&call.server.auth, call.connection, &login, |user| user.is_external)?;
    Ok(user.name)
}

/// Handles the `speculativeAuthenticate` of a hello. After a failure the client sends
/// `authenticate` and gets the error.
pub(super) fn begin_early(call: &mut Call<'_>, requested: Document<'_>) {
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
