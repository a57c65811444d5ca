//! Commands on databases, collections and indexes.

pub(crate) mod collections;
pub(crate) mod indexes;
pub(crate) mod listings;
pub(crate) mod validate;

use crate::call::Call;
use base::Result;
use database::Scope;

/// Runs a command that may wait after its first change. `begin` creates its scope and its progress. After a wait the
/// command continues with its progress, or begins again if `has_begun` returns false.
///
/// Errors: errors of `begin` and `run`.
fn in_steps<P: Send + 'static, T>(
    call: &mut Call<'_>,
    begin: impl FnOnce(&Call<'_>) -> Result<(Scope, P)>,
    has_begun: impl FnOnce(&P) -> bool,
    run: impl FnOnce(&Call<'_>, &Scope, &mut P) -> Result<T>,
) -> Result<T> {
    let (scope, mut progress) = match call.resume() {
        Some(kept) => kept,
        None => begin(call)?,
    };
    scope.operation.keep_progress();
    match run(call, &scope, &mut progress) {
        Err(error) if has_begun(&progress) => Err(call.keep((scope, progress), error)),
        outcome => outcome,
    }
}
