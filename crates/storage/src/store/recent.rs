//! Recent changes, stored while transactions are open. A transaction that changes a recently
//! changed key is refused, even if the old value is back: other data that it read may have changed
//! in between.
//!
//! Nothing is stored without an open transaction. The number of stored keys is limited. Beyond the
//! limit, the oldest transactions only compare values.
//!
//! This module also stores write intents: keys that transactions will change, and trees that they rely on.

use super::{TransactionId, WriteIntent};
use crate::{Batch, Ident, Key, Op, mark, mutant};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Most stored keys; tests use fewer.
const KEYS_MAX: usize = 1 << 16;

/// Keys by tree, and the times of their latest changes.
type Keys = HashMap<Ident, BTreeMap<Key, u64>>;

/// Keys changed since the oldest open transaction began, with the times of their latest changes.
pub(super) struct RecentWrites {
    /// The open transactions, and the times of their views.
    open: HashMap<TransactionId, u64>,
    keys: Keys,
    /// Trees that were emptied or dropped.
    trees: HashMap<Ident, u64>,
    count: usize,
    count_max: usize,
    /// Time from which on the keys are complete.
    since: u64,
}

impl Default for RecentWrites {
    fn default() -> RecentWrites {
        RecentWrites {
            open: HashMap::new(),
            keys: HashMap::new(),
            trees: HashMap::new(),
            count: 0,
            count_max: KEYS_MAX,
            since: 0,
        }
    }
}

/// A key that a batch changes; `None` for all keys of the tree.
type ChangedKey = (Ident, Option<Key>);

impl RecentWrites {
    /// Adds a transaction whose view has this time.
    pub(super) fn begin(&mut self, owner: TransactionId, time: u64) {
        if self.open.is_empty() {
            debug_assert!(self.count == 0 && self.keys.is_empty(), "changes without an open transaction");
            self.since = time;
        }
        debug_assert!(time >= self.since, "the view at {time} is older than {}", self.since);
        let before = self.open.insert(owner, time);
        debug_assert!(before.is_none(), "{owner:?} began before");
    }

    /// Removes a transaction. Returns unused keys, to be freed without the lock.
    #[must_use]
    pub(super) fn end(&mut self, owner: TransactionId) -> Option<Keys> {
        let was_open = self.open.remove(&owner).is_some();
        (was_open && self.open.is_empty()).then(|| self.forget())
    }

    fn forget(&mut self) -> Keys {
        debug_assert_eq!(self.count, self.keys.values().map(BTreeMap::len).sum::<usize>(), "counted keys");
        (self.trees, self.count) = (HashMap::new(), 0);
        std::mem::take(&mut self.keys)
    }

    /// Returns the keys that a batch will change; none without an open transaction.
    pub(super) fn changed_keys(&self, batch: &Batch) -> Vec<ChangedKey> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let changed_key = |op: &Op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } => Some((*ident, Some(key.clone()))),
            Op::Clear(ident) | Op::Drop(ident) => Some((*ident, None)),
            Op::Create(_) | Op::Fork { .. } => None,
        };
        batch.ops().iter().filter_map(changed_key).collect()
    }

    /// Records changes of these keys.
    pub(super) fn note(&mut self, changed_keys: Vec<ChangedKey>, time: u64) {
        debug_assert!(changed_keys.is_empty() || !self.open.is_empty(), "changes that no transaction needs");
        if self.count + changed_keys.len() > self.count_max {
            self.evict(time);
            debug_assert!(self.count <= self.count_max / 2, "{} keys after the cleanup", self.count);
        }
        for (ident, key) in changed_keys {
            match key {
                Some(key) => {
                    let before = self.keys.entry(ident).or_default().insert(key, time);
                    debug_assert!(before.is_none_or(|before| before <= time), "{before:?} before {time}");
                    self.count += usize::from(before.is_none());
                }
                None => _ = self.trees.insert(ident, time),
            }
        }
    }

    /// Removes keys that no open transaction needs, or else all keys.
    fn evict(&mut self, time: u64) {
        mark!("changed keys of open transactions are forgotten");
        let oldest = self.open.values().min().copied().unwrap_or(time);
        self.keys.retain(|_, keys| {
            keys.retain(|_, changed| *changed > oldest);
            !keys.is_empty()
        });
        self.count = self.keys.values().map(BTreeMap::len).sum();
        if self.count > self.count_max / 2 {
            self.forget();
            debug_assert!(time >= self.since, "the keys were complete from {} on", self.since);
            self.since = time;
        }
    }

    /// Returns true if the key of an intent is known to have changed since the transaction's view.
    /// `was_there` means that the view has the key.
    pub(super) fn has_changed(&self, owner: TransactionId, intent: &WriteIntent, was_there: bool) -> bool {
        let Some(began) = self.open.get(&owner).filter(|began| **began >= self.since) else { return false };
        let (ident, key_or_prefix) = intent.tree_and_key();
        // Emptying a tree changes existing keys only.
        if was_there && self.trees.get(&ident).is_some_and(|changed| changed > began) {
            return true;
        }
        let Some(keys) = self.keys.get(&ident) else { return false };
        match intent {
            WriteIntent::Key(..) => keys.get(key_or_prefix).is_some_and(|changed| changed > began),
            WriteIntent::Under(..) => keys
                .range::<[u8], _>((Bound::Included(&**key_or_prefix), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(key_or_prefix))
                .any(|(key, changed)| key.len() == key_or_prefix.len() + 8 && changed > began),
        }
    }
}

/// Write intents of transactions. Changed under the commit lock.
#[derive(Default)]
pub(super) struct WriteIntents {
    keys: HashMap<Ident, HashMap<Key, TransactionId>>,
    /// Transactions that rely on a tree.
    relying: HashMap<Ident, Vec<TransactionId>>,
    owners: HashMap<TransactionId, HeldIntents>,
}

/// Write intents of one transaction.
#[derive(Default)]
struct HeldIntents {
    keys: Vec<(Ident, Key)>,
    /// Trees that the transaction relies on.
    trees: Vec<Ident>,
}

impl WriteIntents {
    /// Returns true if no intents exist, which is the usual case.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Returns true if a transaction has intents.
    pub(super) fn has(&self, owner: TransactionId) -> bool {
        self.owners.contains_key(&owner)
    }

    /// Returns the transaction that has an intent of a key.
    pub(super) fn holder(&self, (ident, key): (Ident, &Key)) -> Option<TransactionId> {
        self.keys.get(&ident)?.get(key).copied()
    }

    /// Returns a transaction other than `except` that relies on a tree.
    pub(super) fn transaction_relying_on(
        &self,
        ident: Ident,
        except: Option<TransactionId>,
    ) -> Option<TransactionId> {
        self.relying.get(&ident)?.iter().copied().find(|owner| Some(*owner) != except)
    }

    /// Returns the first transaction other than `except` that conflicts with a batch: it has an
    /// intent of a key of the batch, or relies on a tree that the batch would drop or empty.
    pub(super) fn conflicting_transaction(
        &self,
        batch: &Batch,
        except: Option<TransactionId>,
    ) -> Option<TransactionId> {
        if self.is_empty() {
            return None;
        }
        batch.ops().iter().find_map(|op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } => {
                let holder = self.holder((*ident, key));
                holder.filter(|holder| Some(*holder) != except)
            }
            Op::Drop(ident) | Op::Clear(ident) => self.transaction_relying_on(*ident, except),
            Op::Create(_) | Op::Fork { .. } => None,
        })
    }

    /// Adds an intent of a key without one.
    pub(super) fn acquire(&mut self, owner: TransactionId, intent: &WriteIntent) {
        let (ident, key) = intent.tree_and_key();
        let before = self.keys.entry(ident).or_default().insert(key.clone(), owner);
        let is_stolen = before.is_some_and(|holder| holder != owner);
        debug_assert!(
            !is_stolen || mutant!("transactions steal each other's write intents"),
            "{owner:?} takes the intent of {before:?}"
        );
        if before.is_none() {
            self.owners.entry(owner).or_default().keys.push((ident, key.clone()));
        }
        debug_assert!(self.has(owner) || is_stolen, "the intent has no owner");
    }

    /// Records that a transaction relies on a tree.
    pub(super) fn rely_on(&mut self, owner: TransactionId, ident: Ident) {
        let holders = self.relying.entry(ident).or_default();
        if !holders.contains(&owner) {
            holders.push(owner);
            self.owners.entry(owner).or_default().trees.push(ident);
        }
        debug_assert!(self.has(owner), "{owner:?} relies on {ident:?}, and has no entry");
    }

    /// Releases all intents of a transaction.
    pub(super) fn release(&mut self, owner: TransactionId) {
        let Some(intents) = self.owners.remove(&owner) else { return };
        for (ident, key) in intents.keys {
            if let Some(keys) = self.keys.get_mut(&ident) {
                let holder = keys.remove(&key);
                debug_assert!(
                    holder == Some(owner) || mutant!("transactions steal each other's write intents"),
                    "an intent of {owner:?} belongs to {holder:?}"
                );
                if keys.is_empty() {
                    self.keys.remove(&ident);
                }
            }
        }
        for ident in intents.trees {
            if let Some(holders) = self.relying.get_mut(&ident) {
                debug_assert!(holders.contains(&owner), "{owner:?} does not rely on {ident:?}");
                holders.retain(|holder| *holder != owner);
                if holders.is_empty() {
                    self.relying.remove(&ident);
                }
            }
        }
        debug_assert!(
            !self.is_empty() || self.keys.is_empty() && self.relying.is_empty(),
            "intents without owner"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Ident = Ident(1);

    fn batch(keys: &[&[u8]]) -> Batch {
        let mut batch = Batch::new();
        keys.iter().for_each(|key| batch.put(TREE, *key, b""));
        batch
    }

    fn commit(recent: &mut RecentWrites, batch: &Batch, time: u64) {
        let changed_keys = recent.changed_keys(batch);
        recent.note(changed_keys, time);
    }

    #[test]
    fn changes_since_the_start_of_an_open_transaction_are_known() {
        let mut recent = RecentWrites::default();
        let (early, late) = (TransactionId(1), TransactionId(2));
        let (a, b) = (WriteIntent::Key(TREE, Key::from(b"a")), WriteIntent::Key(TREE, Key::from(b"b")));
        commit(&mut recent, &batch(&[b"a"]), 1);
        recent.begin(early, 1);
        commit(&mut recent, &batch(&[b"b", b"k00000001"]), 2);
        recent.begin(late, 2);
        assert!(!recent.has_changed(early, &a, true) && recent.has_changed(early, &b, true));
        assert!(!recent.has_changed(late, &b, true));
        let under = |prefix: &[u8]| WriteIntent::Under(TREE, Key::from(prefix));
        assert!(
            recent.has_changed(early, &under(b"k"), true) && !recent.has_changed(early, &under(b""), true)
        );
        let mut clear = Batch::new();
        clear.clear(TREE);
        commit(&mut recent, &clear, 3);
        assert!(recent.has_changed(late, &a, true) && !recent.has_changed(late, &a, false));
        assert!(recent.end(early).is_none());
        assert!(recent.end(late).is_some());
        assert!(recent.keys.is_empty() && recent.trees.is_empty());
    }

    #[test]
    fn beyond_the_limit_the_oldest_transactions_have_no_history() {
        let mut recent = RecentWrites { count_max: 4, ..RecentWrites::default() };
        let (early, late) = (TransactionId(1), TransactionId(2));
        recent.begin(early, 1);
        commit(&mut recent, &batch(&[b"a", b"b", b"c", b"d"]), 2);
        assert!(recent.has_changed(early, &WriteIntent::Key(TREE, Key::from(b"a")), true));
        commit(&mut recent, &batch(&[b"e"]), 3);
        recent.begin(late, 3);
        commit(&mut recent, &batch(&[b"f"]), 4);
        assert!(!recent.has_changed(early, &WriteIntent::Key(TREE, Key::from(b"f")), true));
        assert!(recent.has_changed(late, &WriteIntent::Key(TREE, Key::from(b"f")), true));
        assert!(recent.count <= 4);
    }
}
