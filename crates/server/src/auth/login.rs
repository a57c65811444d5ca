//! Completion of logins, authentication by a plain password, refresh of identities, and log entries for successes and
//! failures.

use super::conversation::dummy_credential;
use super::restrictions::{self, Ends};
use super::user::User;
use super::{role, store};
use crate::access::Identity;
use crate::process::blocking::in_place;
use crate::protocol::names::UserName;
use crate::protocol::session_id::digest_of;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use crate::state::parameters::Parameters;
use base::bson::{Document, Value};
use base::{Error, Result, bail, err};
use database::time;
use std::sync::Arc;
use wire::scram::{Credential, Mechanism};
use wire::secret;

/// A successful proof of identity.
pub(crate) struct Login<'a> {
    /// Authenticated user.
    pub(crate) user: &'a UserName,
    pub(crate) mechanism: &'static str,
    /// True if the login began inside a hello.
    pub(crate) is_speculative: bool,
    /// True if only the stable API is allowed. It forbids a second login.
    pub(crate) api_strict: bool,
}

/// A failed login.
pub(crate) struct Failure<'a> {
    /// Requested user.
    pub(crate) user: &'a UserName,
    pub(crate) mechanism: &'static str,
    /// True if the login began inside a hello.
    pub(crate) is_speculative: bool,
    /// Reason of the failure. It appears only in the log.
    pub(crate) why: &'a str,
}

/// Authenticates a user if `is_proven` holds for the present document.
///
/// Errors: AuthenticationFailed; 5626701 to 5626703 if the connection already has a user; the
/// store's errors.
pub(crate) fn authenticate(
    auth: &Auth,
    state: &mut ConnectionState,
    login: &Login<'_>,
    is_proven: impl FnOnce(&User) -> bool,
) -> Result<()> {
    let generation = auth.database.access_generation();
    let Login { user, mechanism, is_speculative, .. } = *login;
    let fail = |state: &ConnectionState, why: &str| {
        failed(auth, state, &Failure { user, mechanism, is_speculative, why })
    };
    let Some(document) = store::user(&auth.database, user)? else {
        return Err(fail(state, "the user does not exist any more"));
    };
    let Some(account) = User::read(document.view()) else {
        return Err(fail(state, "the user's document is invalid"));
    };
    if !is_proven(&account) {
        return Err(fail(state, "the user's credentials changed during the login"));
    }
    auth.delays.succeeded(user, state.activity.client.ip());
    let count = || auth.logins.count(mechanism, is_speculative, |tries| &tries.successful);
    if let Some(known) = &state.identity {
        return authenticate_again(known, login).inspect(|()| count());
    }
    let Some(identity) = identify(auth, state, document.view(), account, mechanism, generation)? else {
        return Err(fail(state, "an authentication restriction of the user refuses this address"));
    };
    state.identity = Some(Arc::new(identity));
    count();
    log::info!(
        id = 5286306, c = "ACCESS", client = state.activity.client.to_string().as_str(),
        isSpeculative = is_speculative, isClusterMember = false, mechanism = mechanism,
        user = user.name.as_str(), db = user.db.as_str(), result = 0; "Successfully authenticated"
    );
    Ok(())
}

/// Decides about a second login on a connection.
fn authenticate_again(known: &Identity, login: &Login<'_>) -> Result<()> {
    if known.user == *login.user {
        log::warn!(
            id = 5626700, c = "ACCESS", user = login.user.to_string().as_str();
            "Client has attempted to reauthenticate as a single user"
        );
        return match login.api_strict {
            true => Err(err!(5626703, "Each client connection may only be authenticated once")),
            false => Ok(()),
        };
    }
    if known.user.db == login.user.db {
        bail!(
            5626701,
            "Each client connection may only be authenticated once. Previously authenticated as: {}",
            known.user
        );
    }
    Err(err!(
        5626702,
        "Client has attempted to authenticate on multiple databases.Already authenticated as: {}",
        known.user
    ))
}

/// Reads the identity of a connection again if users or roles have changed. A dropped user, or a
/// user that may no longer connect from this address, is logged out.
///
/// Errors: the store's errors.
pub(crate) fn refresh(auth: &Auth, state: &mut ConnectionState) -> Result<()> {
    let Some(known) = &state.identity else { return Ok(()) };
    let generation = auth.database.access_generation();
    let is_old = auth.is_shared && time::since(known.read) > super::SHARED_MEMORY;
    if known.generation == generation && !is_old {
        return Ok(());
    }
    // A shared store may take long.
    in_place(|| reread(auth, state, generation))
}

/// Reads the user of a connection again.
fn reread(auth: &Auth, state: &mut ConnectionState, generation: u64) -> Result<()> {
    let Some(known) = &state.identity else { return Ok(()) };
    let document = store::user(&auth.database, &known.user)?;
    let account = document.and_then(|document| Some((User::read(document.view())?, document)));
    let identity = match account.filter(|(account, _)| account.id == known.user_id) {
        Some((account, document)) => {
            identify(auth, state, document.view(), account, known.mechanism, generation)?
        }
        None => None,
    };
    if identity.is_none() {
        log::info!(
            id = 20245, c = "ACCESS", user = known.user.to_string().as_str();
            "Removed user from session cache of user information: the user was dropped, or a restriction \
             now refuses the address"
        );
    }
    state.identity = identity.map(Arc::new);
    Ok(())
}

/// Returns the identity for a user's document; `None` if restrictions of the user or a role refuse
/// the address.
///
/// Errors: the store's errors.
fn identify(
    auth: &Auth,
    state: &ConnectionState,
    document: Document<'_>,
    user: User,
    mechanism: &'static str,
    generation: u64,
) -> Result<Option<Identity>> {
    let (privileges, restrictions) = role::privileges_of(&auth.database, &user.roles)?;
    let ends = Ends { client: state.activity.client.ip(), server: state.local.ip() };
    let allows = |list: Value<'_>| list.as_array().is_some_and(|list| restrictions::allow(list, ends));
    let user_restrictions = document.get("authenticationRestrictions");
    if !user_restrictions.is_none_or(allows) || !restrictions.iter().all(|list| allows(list.view())) {
        return Ok(None);
    }
    Ok(Some(Identity {
        digest: digest_of(&user.name.name, &user.name.db),
        user: user.name,
        user_id: user.id,
        roles: user.roles,
        mechanism,
        privileges,
        generation,
        read: time::now(),
    }))
}

/// Logs a failed login. Returns the same error for all reasons.
pub(crate) fn failed(auth: &Auth, state: &ConnectionState, failure: &Failure<'_>) -> Error {
    let Failure { user, mechanism, is_speculative, why } = *failure;
    if !user.name.is_empty() {
        auth.delays.failed(user, state.activity.client.ip(), time::now());
    }
    log::info!(
        id = 5286307, c = "ACCESS", client = state.activity.client.to_string().as_str(),
        isSpeculative = is_speculative, isClusterMember = false, mechanism = mechanism,
        user = user.name.as_str(), db = user.db.as_str(), error = why, result = 18; "Failed to authenticate"
    );
    err!(AuthenticationFailed, "Authentication failed.")
}

/// Authenticates a user by password. An unknown user takes the same time as a known user.
///
/// Errors: AuthenticationFailed; the store's errors.
pub(crate) fn authenticate_by_password(
    auth: &Auth,
    parameters: &Parameters,
    state: &mut ConnectionState,
    user: &UserName,
    password: &str,
) -> Result<()> {
    let known = store::user(&auth.database, user)?.and_then(|found| User::read(found.view()));
    let takes = |mechanism: &Mechanism| auth.takes(mechanism.name());
    let found = Mechanism::ALL.into_iter().filter(takes).find_map(|mechanism| {
        let credential = known.as_ref()?.credential(mechanism)?;
        Some((mechanism, credential.clone()))
    });
    let mechanism = match &found {
        Some((mechanism, _)) => Some(*mechanism),
        None => Mechanism::ALL.into_iter().find(takes),
    };
    let fail = |why: &str| {
        let name = mechanism.map_or("", Mechanism::name);
        Err(failed(auth, state, &Failure { user, mechanism: name, is_speculative: false, why }))
    };
    let Some(mechanism) = mechanism else { return fail("the user has no password mechanism") };
    auth.logins.count(mechanism.name(), false, |tries| &tries.received);
    let shown = match &found {
        Some((_, credential)) => Ok(credential.clone()),
        None => dummy_credential(auth, parameters, mechanism, user),
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(why) => return fail(&why),
    };
    let Ok(tried) = Credential::new(mechanism, &user.name, password, shown.salt.clone(), shown.iterations)
    else {
        return fail("the password contains prohibited characters");
    };
    let is_right = secret::equal(&tried.stored_key, &shown.stored_key);
    let Some((_, credential)) = found else { return fail("the user has no password credentials") };
    if !is_right {
        return fail("the password is wrong");
    }
    let login = Login { user, mechanism: mechanism.name(), is_speculative: false, api_strict: false };
    // The password may have changed since the read.
    authenticate(auth, state, &login, |user| user.credential(mechanism) == Some(&credential))
}
