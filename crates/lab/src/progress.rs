//! Display of progress during a run, and its early end.

use crate::report::figures;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval of progress lines if standard error is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// A table on the terminal, or periodic lines in a file. Also holds the stop request.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    state: Arc<Mutex<State>>,
    stop: Arc<watch::Sender<bool>>,
}

struct State {
    began: Instant,
    /// Time of the next line; `None` without lines.
    due: Option<Instant>,
    target: String,
    activity: String,
    /// The last measurement of each target, with its figures.
    last: BTreeMap<String, String>,
}

impl Progress {
    /// Creates a display on standard error: a table on a terminal, otherwise lines. `quiet` disables it.
    pub(crate) fn new(quiet: bool) -> Progress {
        let draws = !quiet && stderr().is_terminal();
        let target = if draws { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{elapsed:>4} [{bar:24}] {pos}/{len} {prefix}\n{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        let began = Instant::now();
        let due = (!quiet && !draws).then_some(began);
        let state =
            State { began, due, target: String::new(), activity: String::new(), last: BTreeMap::new() };
        Progress { bar, state: Arc::new(Mutex::new(state)), stop: Arc::default() }
    }

    /// Adds a number of expected measurements.
    pub(crate) fn expect(&self, measurements: usize) {
        self.bar.inc_length(measurements as u64);
    }

    /// Marks the start of a measurement.
    pub(crate) fn begin(&self, target: &str, activity: String) {
        let mut state = self.state.lock();
        (state.target, state.activity) = (target.to_string(), activity);
        drop(state);
        self.show("");
    }

    /// Marks the end of a measurement, with its operations per second and its p99.
    pub(crate) fn end(&self, figures: Option<(f64, f64)>) {
        self.bar.inc(1);
        let mut state = self.state.lock();
        let figures = figures.map(|(rate, p99)| (figures::number(rate), figures::latency(p99)));
        let figures = figures.map_or(String::new(), |(rate, p99)| format!("  {rate}/s, p99 {p99}"));
        let line = format!("{}{figures}", state.activity);
        let target = state.target.clone();
        state.last.insert(target, line);
        let now = Instant::now();
        if state.due.is_some_and(|due| due <= now) {
            state.due = Some(now + EVERY);
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            let last = state.last.get(&state.target).map_or("", String::as_str);
            let _ = writeln!(stderr(), "{done}/{all}, {}: {}: {last}", self.estimate(&state), state.target);
        }
    }

    /// Returns the estimated remaining time.
    fn estimate(&self, state: &State) -> String {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let elapsed = state.began.elapsed().as_secs_f64();
        let left = || elapsed / done as f64 * all.saturating_sub(done) as f64;
        if done == 0 { "estimating".to_string() } else { format!("about {} left", figures::seconds(left())) }
    }

    /// Shows the state of the running measurement.
    pub(crate) fn show(&self, message: &str) {
        if self.bar.is_hidden() {
            return;
        }
        let state = self.state.lock();
        let wide = state.last.keys().chain([&state.target]).map(String::len).max().unwrap_or(0);
        let line = |name: &str, text: &str| format!("  {name:<wide$}  {text}");
        let others = state.last.iter().filter(|(name, _)| **name != state.target);
        let mut lines: Vec<String> = others.map(|(name, text)| line(name, text)).collect();
        lines.insert(0, line(&state.target, &format!("{}  {message}", state.activity)));
        self.bar.set_prefix(self.estimate(&state));
        self.bar.set_message(lines.join("\n"));
    }

    /// Removes the table before the report is printed.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Requests an early end. Results so far are kept.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns true if an early end was requested.
    pub(crate) fn stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits for a request to end early.
    pub(crate) async fn until_stopped(&self) {
        // Cannot fail: the sender lives as long as this value.
        let _ = self.stop.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Makes SIGINT and SIGTERM end the run early. The second signal ends the process.
    pub(crate) fn stop_on_signals(&self) {
        let progress = self.clone();
        tokio::spawn(async move {
            signal().await;
            progress.bar.println("stopping; press Ctrl-C again to stop at once");
            progress.stop();
            signal().await;
            std::process::exit(130);
        });
    }
}

/// Waits for SIGINT or SIGTERM.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_estimated() {
        let progress = Progress::new(true);
        progress.expect(4);
        assert_eq!(progress.estimate(&progress.state.lock()), "estimating");
        progress.begin("a", "insert".to_string());
        progress.end(Some((1234.0, 500.0)));
        progress.state.lock().began = Instant::now() - Duration::from_secs(100);
        assert_eq!(progress.estimate(&progress.state.lock()), "about 5.00 min left");
        assert_eq!(progress.state.lock().last["a"], "insert  1,230/s, p99 500 µs");
    }
}
