//! Authentication by a plain password, compared with the stored SCRAM keys.

use super::conversation::dummy_credential;
use super::login::{self, Failure, Login};
use super::store;
use super::user::User;
use crate::protocol::names::UserName;
use crate::state::auth::Auth;
use crate::state::connection::ConnectionState;
use crate::state::parameters::Parameters;
use base::Result;
use wire::scram::{Credential, Mechanism};
use wire::secret;

/// Authenticates a user by password. An unknown user takes the same time as a known user.
///
/// Errors: AuthenticationFailed; the store's errors.
pub(crate) fn authenticate(
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
        Err(login::failed(auth, state, &Failure { user, mechanism: name, is_speculative: false, why }))
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
    login::authenticate(auth, state, &login, |user| user.credential(mechanism) == Some(&credential))
}
