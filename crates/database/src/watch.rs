//! Tells those who wait for a collection to change (tailable cursors) that it did.

use base::Namespace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Called once for each commit that touches the namespace, outside the commit lock.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Keeps a watcher in place until it is dropped.
pub struct Watch {
    watchers: Arc<Watchers>,
    /// `None` is everything.
    namespace: Option<Namespace>,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        match &self.namespace {
            Some(namespace) => self.watchers.remove(namespace, self.number),
            None => self.watchers.remove_from_all(self.number),
        }
    }
}

/// Who waits for which collection.
#[derive(Default)]
pub(crate) struct Watchers {
    /// How many there are, so that commits need not look while nobody waits.
    count: AtomicUsize,
    next: AtomicU64,
    by_namespace: Mutex<HashMap<Namespace, Vec<(u64, Wake)>>>,
    /// Who waits for whatever changes.
    everything: Mutex<Vec<(u64, Wake)>>,
}

impl Watchers {
    /// Calls `wake` after every commit that touches the collection, until the watch is dropped.
    pub(crate) fn watch(self: &Arc<Self>, namespace: &Namespace, wake: Wake) -> Watch {
        let number = self.next.fetch_add(1, Relaxed);
        self.add(namespace, number, wake);
        Watch { watchers: self.clone(), namespace: Some(namespace.clone()), number }
    }

    /// Calls `wake` after every commit, and whenever the journal has been synced, until the watch is
    /// dropped.
    pub(crate) fn watch_all(self: &Arc<Self>, wake: Wake) -> Watch {
        let number = self.next.fetch_add(1, Relaxed);
        self.count.fetch_add(1, Relaxed);
        self.everything.lock().push((number, wake));
        Watch { watchers: self.clone(), namespace: None, number }
    }

    /// Calls `wake` at every change to the namespace until [`remove`](Self::remove) with the same
    /// number.
    fn add(&self, namespace: &Namespace, number: u64, wake: Wake) {
        self.count.fetch_add(1, Relaxed);
        self.by_namespace.lock().entry(namespace.clone()).or_default().push((number, wake));
    }

    /// Takes a watcher away.
    fn remove(&self, namespace: &Namespace, number: u64) {
        let mut map = self.by_namespace.lock();
        let Some(list) = map.get_mut(namespace) else { return };
        let before = list.len();
        list.retain(|(known, _)| *known != number);
        self.count.fetch_sub(before - list.len(), Relaxed);
        if list.is_empty() {
            map.remove(namespace);
        }
    }

    fn remove_from_all(&self, number: u64) {
        let mut everything = self.everything.lock();
        let before = everything.len();
        everything.retain(|(known, _)| *known != number);
        self.count.fetch_sub(before - everything.len(), Relaxed);
    }

    /// Whether anyone waits for anything.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// Tells all who wait for these namespaces, and those who wait for whatever changes.
    pub(crate) fn notify_all(&self, namespaces: &[Namespace]) {
        if !self.any() {
            return;
        }
        namespaces.iter().for_each(|namespace| self.notify(namespace));
        self.notify_everything();
    }

    /// Tells those who wait for whatever changes.
    pub(crate) fn notify_everything(&self) {
        let wakes: Vec<Wake> = self.everything.lock().iter().map(|(_, wake)| wake.clone()).collect();
        wakes.iter().for_each(|wake| wake());
    }

    fn notify(&self, namespace: &Namespace) {
        if !self.any() {
            return;
        }
        let wakes: Vec<Wake> = match self.by_namespace.lock().get(namespace) {
            Some(list) => list.iter().map(|(_, wake)| wake.clone()).collect(),
            None => return,
        };
        for wake in wakes {
            wake();
        }
    }
}
