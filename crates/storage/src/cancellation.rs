//! Deadlines of waits, for the work of the current thread.
//!
//! A remote store waits in places that do not know the statement: for a free connection, for the
//! replacement of a server. The thread runs a command with a time limit, which may also be killed.
//! The caller that runs the command sets the end of its waits here.

use crate::time;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Reason for the end of a wait: a number with a meaning for the caller.
pub type Reason = i32;

type Check = Rc<dyn Fn() -> Option<Reason>>;

thread_local! {
    static CURRENT: RefCell<Option<Check>> = const { RefCell::new(None) };
}

/// Restores the previous check when the work ends.
struct RestoreOnDrop(Option<Check>);

impl Drop for RestoreOnDrop {
    fn drop(&mut self) {
        CURRENT.with(|current| *current.borrow_mut() = self.0.take());
    }
}

/// Runs work on this thread. Its waits end once `reason` returns a reason.
pub fn within<T>(reason: impl Fn() -> Option<Reason> + 'static, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.with(|current| current.borrow_mut().replace(Rc::new(reason)));
    let _before = RestoreOnDrop(before);
    work()
}

/// Runs work on this thread. Its waits end after `limit` with the reason `late`, or earlier with the present check.
pub fn within_time<T>(limit: Duration, late: Reason, work: impl FnOnce() -> T) -> T {
    let (end, outer) = (time::now() + limit, CURRENT.with(|current| current.borrow().clone()));
    let is_late = move || (time::now() >= end).then_some(late);
    within(move || outer.as_ref().and_then(|outer| outer()).or_else(&is_late), work)
}

/// Returns true if the thread's waits have a limit.
pub fn is_limited() -> bool {
    CURRENT.with(|current| current.borrow().is_some())
}

/// Returns the reason to end this thread's wait, if any.
pub fn reason() -> Option<Reason> {
    let requested = CURRENT.with(|current| current.borrow().clone());
    requested.and_then(|requested| requested())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_innermost_that_is_asked() {
        assert!(!is_limited() && reason().is_none());
        within(
            || Some(1),
            || {
                assert_eq!(reason(), Some(1));
                within(|| None, || assert!(is_limited() && reason().is_none()));
                assert_eq!(reason(), Some(1));
            },
        );
        assert!(!is_limited());
    }

    #[test]
    fn the_earlier_of_two_checks_ends_a_wait() {
        within_time(Duration::from_secs(600), 2, || assert!(is_limited() && reason().is_none()));
        within_time(Duration::ZERO, 2, || {
            assert_eq!(reason(), Some(2));
            within_time(Duration::from_secs(600), 3, || assert_eq!(reason(), Some(2)));
        });
    }
}
