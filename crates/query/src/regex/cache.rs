//! Cache of compiled patterns across commands.
//!
//! Compilation, including machine code, costs five to ten microseconds, more than parsing the remaining filter. The
//! cache is bounded in patterns and in their length. It evicts the least recently used pattern.

use super::Flags;
use super::bounded::Compiled;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Maximum number of cached patterns.
const CAPACITY: usize = 256;

/// Longer patterns are not cached, because they are rare and their code is large.
const PATTERN_BYTES_MAX: usize = 1024;

/// The cache of the process.
static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(|| Mutex::new(Cache::default()));

/// Compiled patterns by pattern and options.
#[derive(Default)]
struct Cache {
    entries: HashMap<(Box<str>, Flags), Entry>,
    /// Number of look-ups, the time unit of `used`.
    clock: u64,
}

/// A compiled pattern and the time of its last use, in look-ups.
struct Entry {
    compiled: Arc<Compiled>,
    used: u64,
}

/// Returns the cached code of a pattern.
pub(super) fn get(pattern: &str, flags: Flags) -> Option<Arc<Compiled>> {
    let mut cache = CACHE.lock();
    cache.clock += 1;
    let now = cache.clock;
    let entry = cache.entries.get_mut(&(Box::from(pattern), flags))?;
    entry.used = now;
    Some(entry.compiled.clone())
}

/// Caches the code of a pattern and evicts the least recently used pattern if the cache is full.
pub(super) fn put(pattern: &str, flags: Flags, compiled: &Arc<Compiled>) {
    if pattern.len() > PATTERN_BYTES_MAX {
        return;
    }
    let mut cache = CACHE.lock();
    if cache.entries.len() >= CAPACITY {
        let oldest = cache.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            cache.entries.remove(&key);
        }
    }
    let used = cache.clock;
    cache.entries.insert((pattern.into(), flags), Entry { compiled: compiled.clone(), used });
    debug_assert!(cache.entries.len() <= CAPACITY);
}

#[cfg(test)]
mod tests {
    use super::super::Regex;

    #[test]
    fn the_same_pattern_is_compiled_once_and_the_cache_stays_bounded() {
        let first = Regex::new("cached once", "i").unwrap();
        let second = Regex::new("cached once", "i").unwrap();
        assert!(std::sync::Arc::ptr_eq(&first.compiled, &second.compiled));
        let other = Regex::new("cached once", "").unwrap();
        assert!(!std::sync::Arc::ptr_eq(&first.compiled, &other.compiled));
        for number in 0..super::CAPACITY * 2 {
            Regex::new(&format!("filler {number}"), "").unwrap();
        }
        assert!(super::CACHE.lock().entries.len() <= super::CAPACITY);
    }
}
