//! State of the network: threads, requests in progress, and the end of the server.

use crate::state::tls::ReportedErrors;
use database::EventCount;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use wire::busy_poll::LatestConnection;

/// State of the network.
pub(crate) struct Network {
    /// Connection of the latest request.
    pub(crate) latest_connection: LatestConnection,
    /// Addresses and reasons that the log has already reported.
    pub(crate) reported: ReportedErrors,
    /// Network threads that handle a request.
    pub(crate) active_threads: AtomicUsize,
    /// Dedicated threads.
    #[cfg(unix)]
    pub(crate) dedicated_threads: crate::process::dedicated_threads::Threads,
    /// Requests in progress, from frame to reply.
    pub(crate) active_requests: AtomicUsize,
    /// Set when the server accepts no more requests.
    stopping: AtomicBool,
    /// Advances to stop the server.
    pub(crate) stop: Arc<EventCount>,
    message_ids: AtomicU64,
}

impl Network {
    /// Creates the state for a server with a shared store (`is_shared`) or with local data.
    pub(crate) fn new(is_shared: bool) -> Network {
        #[cfg(not(unix))]
        let _ = is_shared;
        Network {
            latest_connection: LatestConnection::default(),
            reported: ReportedErrors::default(),
            active_threads: AtomicUsize::new(0),
            #[cfg(unix)]
            dedicated_threads: crate::process::dedicated_threads::Threads::new(is_shared),
            active_requests: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            stop: Arc::default(),
            message_ids: AtomicU64::new(0),
        }
    }

    /// Accepts no more requests.
    pub(crate) fn refuse_requests(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns true if the server accepts no more requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Returns the id of the next message.
    pub(crate) fn next_message_id(&self) -> i32 {
        self.message_ids.fetch_add(1, Ordering::Relaxed) as i32
    }
}
