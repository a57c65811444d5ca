//! Locks, condition variables and atomics of the write path.
//!
//! They come from parking_lot and the standard library. With the feature `shuttle`, which only
//! tests use, they belong to a scheduler that chooses the next thread by a seed. Threads must then
//! also be shuttle's, and a wait that only a timeout would end does not end.

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic;

#[cfg(feature = "shuttle")]
pub use scheduled::{Condvar, Mutex, MutexGuard, RwLock};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;

/// Shuttle's types with parking_lot's interface.
#[cfg(feature = "shuttle")]
mod scheduled {
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    /// A mutex known to the scheduler.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// A held mutex.
    pub struct MutexGuard<'a, T> {
        lock: &'a Mutex<T>,
        /// `None` while the condition is awaited.
        guard: Option<shuttle::sync::MutexGuard<'a, T>>,
    }

    impl<T> Mutex<T> {
        /// Returns a mutex around a value.
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

        /// Returns the value.
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
        /// Runs a function without the mutex.
        pub fn unlocked<R>(guard: &mut Self, run: impl FnOnce() -> R) -> R {
            guard.guard = None;
            let result = run();
            guard.guard = Some(guard.lock.raw());
            result
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            match &self.guard {
                Some(guard) => guard,
                None => unreachable!("the guard is absent only while it is not accessible"),
            }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            match &mut self.guard {
                Some(guard) => guard,
                None => unreachable!("the guard is absent only while it is not accessible"),
            }
        }
    }

    /// A condition variable known to the scheduler.
    #[derive(Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// Returns a condition variable.
        pub fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        /// Waits for a notification.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            if let Some(inner) = guard.guard.take() {
                guard.guard = Some(self.0.wait(inner).unwrap_or_else(PoisonError::into_inner));
            }
        }

        /// Waits for a notification without a timeout: no time passes here.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _most: Duration) {
            self.wait(guard);
        }

        /// Wakes one waiting thread.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A read-write lock known to the scheduler.
    #[derive(Default)]
    pub struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Returns a lock around a value.
        pub fn new(value: T) -> RwLock<T> {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        /// Waits for a read lock.
        pub fn read(&self) -> shuttle::sync::RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        /// Waits for a write lock.
        pub fn write(&self) -> shuttle::sync::RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
