//! What has changed while transactions are open, so that a transaction which would change the same is refused
//! even where the old value is back: what it has read beside that value may have changed in between.
//!
//! Nothing is kept while no transaction is open. What one commit changes is kept up to a bound; beyond it the
//! oldest transactions are left with comparing values.
//!
//! Keys that transactions are going to change, and trees that they rely on.

use super::{Claim, Owner};
use crate::{Batch, Ident, Key, Op};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// How many changed keys are kept, unless a test says less.
const KEYS_MAX: usize = 1 << 16;

/// Keys, by tree, and the times of their latest changes.
type Keys = HashMap<Ident, BTreeMap<Key, u64>>;

/// The keys changed since the oldest open transaction began, with the times of the latest changes.
pub(super) struct Recent {
    /// The open transactions, and the times of their sights.
    open: HashMap<Owner, u64>,
    keys: Keys,
    /// Trees that were emptied or taken away.
    trees: HashMap<Ident, u64>,
    count: usize,
    count_max: usize,
    /// From when on nothing is missing.
    since: u64,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent {
            open: HashMap::new(),
            keys: HashMap::new(),
            trees: HashMap::new(),
            count: 0,
            count_max: KEYS_MAX,
            since: 0,
        }
    }
}

/// A place that a batch changes: a key, or a whole tree.
type Place = (Ident, Option<Key>);

impl Recent {
    /// Notes a transaction whose sight has this time.
    pub(super) fn begin(&mut self, owner: Owner, time: u64) {
        if self.open.is_empty() {
            self.since = time;
        }
        self.open.insert(owner, time);
    }

    /// Forgets a transaction. Gives what is no longer needed, to be freed without the lock.
    #[must_use]
    pub(super) fn end(&mut self, owner: Owner) -> Option<Keys> {
        let was_open = self.open.remove(&owner).is_some();
        (was_open && self.open.is_empty()).then(|| self.forget())
    }

    fn forget(&mut self) -> Keys {
        (self.trees, self.count) = (HashMap::new(), 0);
        std::mem::take(&mut self.keys)
    }

    /// What a batch is going to change, as far as anybody wants to know.
    pub(super) fn places(&self, batch: &Batch) -> Vec<Place> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let place = |op: &Op| match op {
            Op::Put { ident, key, .. } | Op::Delete { ident, key } => Some((*ident, Some(key.clone()))),
            Op::Clear(ident) | Op::Drop(ident) => Some((*ident, None)),
            Op::Create(_) | Op::Fork { .. } => None,
        };
        batch.ops().iter().filter_map(place).collect()
    }

    /// Notes that these places have changed.
    pub(super) fn note(&mut self, places: Vec<Place>, time: u64) {
        if self.count + places.len() > self.count_max {
            self.make_room(time);
        }
        for (ident, key) in places {
            match key {
                Some(key) => {
                    let before = self.keys.entry(ident).or_default().insert(key, time);
                    self.count += usize::from(before.is_none());
                }
                None => _ = self.trees.insert(ident, time),
            }
        }
    }

    /// Lets go of what no open transaction asks for, or else of everything.
    fn make_room(&mut self, time: u64) {
        let oldest = self.open.values().min().copied().unwrap_or(time);
        self.keys.retain(|_, keys| {
            keys.retain(|_, changed| *changed > oldest);
            !keys.is_empty()
        });
        self.count = self.keys.values().map(BTreeMap::len).sum();
        if self.count > self.count_max / 2 {
            self.forget();
            self.since = time;
        }
    }

    /// Whether what a transaction would claim is known to have changed since its sight, which `was_there` in it
    /// or not.
    pub(super) fn has_changed(&self, owner: Owner, claim: &Claim, was_there: bool) -> bool {
        let Some(began) = self.open.get(&owner).filter(|began| **began >= self.since) else { return false };
        let (ident, place) = claim.place();
        // A tree that was emptied has changed where there was something.
        if was_there && self.trees.get(&ident).is_some_and(|changed| changed > began) {
            return true;
        }
        let Some(keys) = self.keys.get(&ident) else { return false };
        match claim {
            Claim::Key(..) => keys.get(place).is_some_and(|changed| changed > began),
            Claim::Under(..) => keys
                .range::<[u8], _>((Bound::Included(&**place), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(place))
                .any(|(key, changed)| key.len() == place.len() + 8 && changed > began),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Ident = Ident(1);

    fn batch(keys: &[&[u8]]) -> Batch {
        let mut batch = Batch::new();
        keys.iter().for_each(|key| batch.put(TREE, *key, b""));
        batch
    }

    fn commit(recent: &mut Recent, batch: &Batch, time: u64) {
        let places = recent.places(batch);
        recent.note(places, time);
    }

    #[test]
    fn what_changed_since_a_transaction_began_is_known_while_it_is_open() {
        let mut recent = Recent::default();
        let (early, late) = (Owner(1), Owner(2));
        let (a, b) = (Claim::Key(TREE, Key::from(b"a")), Claim::Key(TREE, Key::from(b"b")));
        commit(&mut recent, &batch(&[b"a"]), 1);
        recent.begin(early, 1);
        commit(&mut recent, &batch(&[b"b", b"k00000001"]), 2);
        recent.begin(late, 2);
        assert!(!recent.has_changed(early, &a, true) && recent.has_changed(early, &b, true));
        assert!(!recent.has_changed(late, &b, true));
        let under = |prefix: &[u8]| Claim::Under(TREE, Key::from(prefix));
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
    fn beyond_its_bound_the_oldest_transactions_are_told_nothing() {
        let mut recent = Recent { count_max: 4, ..Recent::default() };
        let (early, late) = (Owner(1), Owner(2));
        recent.begin(early, 1);
        commit(&mut recent, &batch(&[b"a", b"b", b"c", b"d"]), 2);
        assert!(recent.has_changed(early, &Claim::Key(TREE, Key::from(b"a")), true));
        commit(&mut recent, &batch(&[b"e"]), 3);
        recent.begin(late, 3);
        commit(&mut recent, &batch(&[b"f"]), 4);
        assert!(!recent.has_changed(early, &Claim::Key(TREE, Key::from(b"f")), true));
        assert!(recent.has_changed(late, &Claim::Key(TREE, Key::from(b"f")), true));
        assert!(recent.count <= 4);
    }
}
