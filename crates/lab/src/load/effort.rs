//! Whether the generator itself was the bottleneck: how much processor time this process and the
//! whole machine used meanwhile. Linux tells; elsewhere nothing is said.

use std::time::Instant;

/// The state of the clocks at one moment.
pub(crate) struct Effort {
    at: Instant,
    own: Option<f64>,
    /// Of all processors: time in use, and all time, in ticks.
    machine: Option<(f64, f64)>,
}

/// Shares, 0 to 1, of all processors' time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    /// What this process used.
    pub(crate) own: f64,
    /// What anyone used.
    pub(crate) machine: f64,
}

/// Linux shows processes' times in hundredths of a second, whatever the kernel's own clock is.
const TICKS_PER_SECOND: f64 = 100.0;

impl Effort {
    /// Reads the clocks.
    pub(crate) fn now() -> Effort {
        let read = |path| std::fs::read_to_string(path).ok();
        Effort {
            at: Instant::now(),
            own: read("/proc/self/stat").and_then(|text| seconds(&text)),
            machine: read("/proc/stat").and_then(|text| machine_ticks(&text)),
        }
    }

    /// What was used since; nothing where it can't be told, or the time was too short to tell.
    pub(super) fn since(&self) -> Shares {
        let now = Effort::now();
        let elapsed = now.at.duration_since(self.at).as_secs_f64();
        if elapsed < 0.3 {
            return Shares::default();
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let own = self.own.zip(now.own).map_or(0.0, |(before, after)| (after - before) / elapsed / cores);
        let machine = self
            .machine
            .zip(now.machine)
            .map_or(0.0, |(before, after)| (after.0 - before.0) / (after.1 - before.1).max(1.0));
        Shares { own: own.clamp(0.0, 1.0), machine: machine.clamp(0.0, 1.0) }
    }
}

/// User and system time in /proc/PID/stat. The name before them may hold spaces.
fn seconds(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// The line "cpu": user, nice, system, idle, waiting for disks, and others.
fn machine_ticks(stat: &str) -> Option<(f64, f64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let all: f64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_read_from_their_places() {
        let stat = "12 (a name) (x) S 1 1 1 0 -1 4 9 0 0 0 250 150 30 20 20 0 3 0";
        assert_eq!(seconds(stat), Some(4.0));
        assert_eq!(machine_ticks("cpu  10 5 15 60 10 0 0 0 0 0\ncpu0 1"), Some((30.0, 100.0)));
        assert_eq!(seconds("nonsense"), None);
    }

    #[test]
    fn too_short_a_time_says_nothing() {
        assert_eq!(Effort::now().since(), Shares::default());
    }
}
