//! What a person sees while it runs, and how a person ends it.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;
use tokio::sync::watch;

/// The line of progress on the terminal, and the wish to stop.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    stop: watch::Receiver<bool>,
    // Kept so that the receiver never finds its sender gone.
    _sender: std::sync::Arc<watch::Sender<bool>>,
}

impl Progress {
    /// Draws on the terminal's error stream, if it is one; `quiet`: nothing.
    pub(crate) fn new(quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{elapsed:>4} [{bar:24}] {pos}/{len} {prefix} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        let (sender, stop) = watch::channel(false);
        Progress { bar, stop, _sender: std::sync::Arc::new(sender) }
    }

    /// So many measurements are still to come, beside those told before.
    pub(crate) fn expect(&self, measurements: usize) {
        self.bar.inc_length(measurements as u64);
    }

    /// One of them begins.
    pub(crate) fn begin(&self, what: String) {
        self.bar.set_prefix(what);
        self.bar.set_message("");
    }

    /// One of them is over.
    pub(crate) fn end(&self) {
        self.bar.inc(1);
    }

    /// How the one that runs is doing.
    pub(crate) fn show(&self, message: String) {
        self.bar.set_message(message);
    }

    /// Takes the line away, before tables are printed.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Asks everything to end early, keeping what there is.
    pub(crate) fn stop(&self) {
        self._sender.send_replace(true);
    }

    /// Whether that was asked.
    pub(crate) fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Returns when that is asked.
    pub(crate) async fn until_stopped(&self) {
        let mut stop = self.stop.clone();
        // Fails only if there is no sender, which lives as long as this.
        let _ = stop.wait_for(|stopped| *stopped).await;
    }

    /// Lets an interrupt or a request to terminate end the run with what there is; the second one
    /// ends the process.
    pub(crate) fn stop_on_signals(&self) {
        let progress = self.clone();
        tokio::spawn(async move {
            signal().await;
            progress.bar.println("ending, with what was measured; once more: at once");
            progress.stop();
            signal().await;
            std::process::exit(130);
        });
    }
}

/// Returns when the process is asked to end.
#[cfg(unix)]
pub(crate) async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

/// Returns when the process is asked to end.
#[cfg(not(unix))]
pub(crate) async fn signal() {
    drop(tokio::signal::ctrl_c().await);
}

/// A rate for people: three digits.
pub(crate) fn rate_text(operations: u64, elapsed: Duration) -> String {
    let rate = operations as f64 / elapsed.as_secs_f64().max(1e-9);
    match rate {
        _ if rate >= 100_000.0 => format!("{:.0}k/s", rate / 1000.0),
        _ if rate >= 1000.0 => format!("{:.1}k/s", rate / 1000.0),
        _ => format!("{rate:.0}/s"),
    }
}
