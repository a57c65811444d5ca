//! How long whoever a thread works for is willing to wait.
//!
//! A store that is far away waits in places that know nothing of statements: for a connection that others use, for
//! a server that is being replaced. What the thread does there is somebody's command, which has a time limit and may
//! be ended, and whoever runs it says so here.

use std::cell::RefCell;
use std::rc::Rc;

/// Why somebody doesn't wait any longer: a number that means something to him.
pub type Reason = i32;

type Asked = Rc<dyn Fn() -> Option<Reason>>;

thread_local! {
    static CURRENT: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Puts back whoever was asked before, however the work ends.
struct Before(Option<Asked>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.with(|current| *current.borrow_mut() = self.0.take());
    }
}

/// Runs work on this thread, whose waits end once `over` gives a reason.
pub fn within<T>(over: impl Fn() -> Option<Reason> + 'static, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.with(|current| current.borrow_mut().replace(Rc::new(over)));
    let _before = Before(before);
    work()
}

/// Whether anybody has said how long he waits.
pub fn is_limited() -> bool {
    CURRENT.with(|current| current.borrow().is_some())
}

/// Why this thread's wait is to end, if it is.
pub fn over() -> Option<Reason> {
    let asked = CURRENT.with(|current| current.borrow().clone());
    asked.and_then(|asked| asked())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_innermost_that_is_asked() {
        assert!(!is_limited() && over().is_none());
        within(
            || Some(1),
            || {
                assert_eq!(over(), Some(1));
                within(|| None, || assert!(is_limited() && over().is_none()));
                assert_eq!(over(), Some(1));
            },
        );
        assert!(!is_limited());
    }
}
