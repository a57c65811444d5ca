//! Locks, conditions and counters for what many threads share on the write path.
//!
//! They are parking_lot's and the standard library's. With the feature `shuttle`, which only tests have, they
//! are those of a scheduler that decides by a seed which thread goes on at each of them: then threads have to
//! be shuttle's as well, and a wait that only a timeout would end doesn't end.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;

#[cfg(feature = "shuttle")]
pub use scheduled::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;

/// Shuttle's own in the shape of parking_lot's.
#[cfg(feature = "shuttle")]
mod scheduled {
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    /// A mutex that the scheduler knows.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// A mutex held.
    pub struct MutexGuard<'a, T> {
        lock: &'a Mutex<T>,
        /// There but while the condition is waited for.
        guard: Option<shuttle::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        /// A mutex around a value.
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        /// Waits for the mutex.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard { lock: self, guard: Some(self.raw()) }
        }

        fn raw(&self) -> shuttle::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<T> fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Mutex")
        }
    }

    impl<T> MutexGuard<'_, T> {
        /// Runs something without the mutex.
        pub fn unlocked<R>(held: &mut Self, run: impl FnOnce() -> R) -> R {
            held.guard = None;
            let result = run();
            held.guard = Some(held.lock.raw());
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.guard {
                Some(guard) => guard,
                None => unreachable!("the guard is away only while nobody can use it"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.guard {
                Some(guard) => guard,
                None => unreachable!("the guard is away only while nobody can use it"),
            }
        }
    }

    /// A condition that the scheduler knows.
    #[derive(Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// A condition.
        pub fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        /// Waits until somebody notifies.
        pub fn wait<T>(&self, held: &mut MutexGuard<'_, T>) {
            if let Some(guard) = held.guard.take() {
                held.guard = Some(self.0.wait(guard).unwrap_or_else(PoisonError::into_inner));
            }
        }

        /// The same: here no time passes.
        pub fn wait_for<T>(&self, held: &mut MutexGuard<'_, T>, _most: Duration) {
            self.wait(held);
        }

        /// Wakes one who waits.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all who wait.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A lock for readers or one writer that the scheduler knows.
    #[derive(Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// A lock around a value.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        /// Waits to read.
        pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits to write.
        pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
