//! Keys that transactions are going to change, and trees that they rely on.

use super::{Claim, Owner};
use crate::{Batch, Ident, Key, Op};
use std::collections::HashMap;

/// Who has claimed what. Changed under the commit lock.
#[derive(Default)]
pub(super) struct Claims {
    keys: HashMap<Ident, HashMap<Key, Owner>>,
    /// How many transactions rely on a tree, and one of them.
    held: HashMap<Ident, Vec<Owner>>,
    owners: HashMap<Owner, Claimed>,
}

/// What one transaction has claimed.
#[derive(Default)]
struct Claimed {
    keys: Vec<(Ident, Key)>,
    held: Vec<Ident>,
}

impl Claims {
    /// Whether nobody claims anything, as is most often so.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Whether a transaction has any claims left.
    pub(super) fn has(&self, owner: Owner) -> bool {
        self.owners.contains_key(&owner)
    }

    /// Who has claimed a key, or all that begin with it.
    pub(super) fn holder(&self, (ident, key): (Ident, &Key)) -> Option<Owner> {
        self.keys.get(&ident)?.get(key).copied()
    }

    /// A transaction other than `own` that relies on a tree.
    pub(super) fn relies(&self, ident: Ident, own: Option<Owner>) -> Option<Owner> {
        self.held.get(&ident)?.iter().copied().find(|owner| Some(*owner) != own)
    }

    /// The first transaction other than `own` in whose way a batch stands: by a key that it has claimed, or
    /// by a tree that it relies on and that the batch would take away or empty.
    pub(super) fn in_the_way(&self, batch: &Batch, own: Option<Owner>) -> Option<Owner> {
        if self.is_empty() {
            return None;
        }
        batch.ops().iter().find_map(|op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } => {
                let holder = self.holder((*ident, key));
                holder.filter(|holder| Some(*holder) != own)
            }
            Op::Drop(ident) | Op::Clear(ident) => self.relies(*ident, own),
            Op::Create(_) | Op::Fork { .. } => None,
        })
    }

    /// Claims what nobody else has claimed.
    pub(super) fn claim(&mut self, owner: Owner, claim: &Claim) {
        let (ident, key) = claim.place();
        if self.keys.entry(ident).or_default().insert(key.clone(), owner).is_none() {
            self.owners.entry(owner).or_default().keys.push((ident, key.clone()));
        }
    }

    /// Notes that a transaction relies on a tree.
    pub(super) fn hold(&mut self, owner: Owner, ident: Ident) {
        let holders = self.held.entry(ident).or_default();
        if !holders.contains(&owner) {
            holders.push(owner);
            self.owners.entry(owner).or_default().held.push(ident);
        }
    }

    /// Gives up all that a transaction has claimed.
    pub(super) fn release(&mut self, owner: Owner) {
        let Some(claimed) = self.owners.remove(&owner) else { return };
        for (ident, key) in claimed.keys {
            if let Some(keys) = self.keys.get_mut(&ident) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.keys.remove(&ident);
                }
            }
        }
        for ident in claimed.held {
            if let Some(holders) = self.held.get_mut(&ident) {
                holders.retain(|holder| *holder != owner);
                if holders.is_empty() {
                    self.held.remove(&ident);
                }
            }
        }
    }
}
