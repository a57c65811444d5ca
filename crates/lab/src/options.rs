//! The lab's command line.

use crate::error::{Error, Result};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measures a server: the experiments behind Vellum's claims, and load of your own.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
        vellum lab clean                                    Vellum at each notch of its dial, against the floor\n  \
        vellum lab write-concern --target mine=mongodb://127.0.0.1:27017/ --report out.html\n  \
        vellum lab inserts --postgres-here                  beside PostgreSQL with fsync on, off and on a RAM disk\n  \
        vellum lab run orders.toml --rate 2000 --duration 60\n  \
        vellum lab compare before.json after.json --fail-if 'p99>+10%'")]
pub struct Options {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What the lab can do.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Verb {
    /// Cleaning between tests: delete, drop and recreate, reset, fork, restore; per second
    Clean(Common),
    /// Latency by write concern: w 0, 1, 2, majority, with and without the journal
    WriteConcern(Common),
    /// 10,000 single inserts, on one connection and on eight
    Inserts(Common),
    /// Gets by index with the focus on 1 %, 10 % and all of collections of growing size
    WorkingSet(Common),
    /// An error tracker's life: creates and searches, in blocks, as the data grows
    ErrorTracker(Common),
    /// Point reads and writes, batches, scans, group, sort, index build, connections, start-up
    Micro(Common),
    /// A mix of operations that a file describes
    Run {
        /// The workload: see docs/lab.md
        workload: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Differences between two runs, with their confidence
    Compare(Compare),
}

/// What all experiments take.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// A server to measure, as NAME=URI (mongodb:// or postgresql://); may be given several times
    #[arg(long = "target", value_name = "NAME=URI", value_parser = parse_target)]
    pub(crate) targets: Vec<Given>,
    /// Start temporary PostgreSQL clusters from the installed version: fsync on, off, on a RAM disk
    #[arg(long)]
    pub(crate) postgres_here: bool,
    /// Operations per second to offer, each timed from its intended start; without it, each
    /// connection sends its next operation when the last one is answered
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub(crate) rate: Option<f64>,
    /// Search for the highest rate whose p99 stays within this many milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_positive, conflicts_with = "rate")]
    pub(crate) find_rate: Option<f64>,
    /// Time to measure each case, such as 3s, 500ms or 2m; a number alone is seconds
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// Connections that send at the same time, instead of the experiment's own numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: Option<u32>,
    /// Size of the work relative to the experiment's own: 0.01 is a smoke test
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_positive)]
    pub(crate) scale: f64,
    /// Rounds, in which the targets take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// One self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Everything as JSON, histograms included: what compare reads
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The tables as Markdown
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Makes the same documents and the same order of operations again
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// No progress bars
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// What `compare` takes.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// The run of before, JSON
    pub(crate) before: PathBuf,
    /// The run of after, JSON
    pub(crate) after: PathBuf,
    /// Exit with 1 if any row got worse by more, such as 'p99>+10%' or 'rate<-5%'; may be given several times
    #[arg(long, value_name = "LIMIT")]
    pub(crate) fail_if: Vec<String>,
    /// Draw the differences into an HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// A target of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) uri: String,
}

fn parse_target(text: &str) -> std::result::Result<Given, String> {
    let (name, uri) = text.split_once('=').ok_or("say NAME=URI, such as mine=mongodb://127.0.0.1:27017/")?;
    let known = ["mongodb://", "postgresql://", "postgres://"].iter().any(|scheme| uri.starts_with(scheme));
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(format!("'{name}' is no name for a target: it needs letters and no spaces or slashes"));
    }
    if !known {
        return Err(format!("'{uri}' begins with neither mongodb:// nor postgresql://"));
    }
    Ok(Given { name: name.to_string(), uri: uri.to_string() })
}

fn parse_positive(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("must be more than 0".to_string()) }
}

/// A length of time, in seconds.
fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1.0));
    parse_positive(number)
        .map(|number| number * seconds)
        .map_err(|_| format!("'{text}' is no length of time: say 3s, 500ms or 2m"))
}

impl Common {
    /// What can be told wrong before anything is started.
    ///
    /// # Errors
    /// Two targets of one name.
    pub(crate) fn check(&self) -> Result<()> {
        for (index, target) in self.targets.iter().enumerate() {
            if self.targets[..index].iter().any(|other| other.name == target.name) {
                return Err(Error::Input(format!("two targets are named {}", target.name)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn common(arguments: &[&str]) -> std::result::Result<Common, String> {
        let line = Line::try_parse_from(["lab", "inserts"].iter().chain(arguments));
        match line.map_err(|error| error.to_string())?.options.verb {
            Verb::Inserts(common) => Ok(common),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn targets_have_a_name_and_an_address() {
        let targets = common(&["--target", "a=mongodb://h/?w=1"]).unwrap().targets;
        assert_eq!(targets, [Given { name: "a".to_string(), uri: "mongodb://h/?w=1".to_string() }]);
        for wrong in ["mongodb://h/", "a=http://h", "=mongodb://h", "a b=mongodb://h"] {
            assert!(common(&["--target", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_targets_of_one_name_are_refused() {
        let twice = common(&["--target", "a=mongodb://h/", "--target", "a=mongodb://i/"]).unwrap();
        assert_eq!(twice.check(), Err(Error::Input("two targets are named a".to_string())));
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in [("3", 3.0), ("3s", 3.0), ("500ms", 0.5), ("1.5m", 90.0), ("1h", 3600.0)] {
            assert_eq!(common(&["--duration", text]).unwrap().duration, Some(seconds), "{text}");
        }
        for wrong in ["s", "3 days", "-1s", "0ms"] {
            assert!(common(&["--duration", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nonsense_numbers_are_refused() {
        for wrong in [["--rate", "0"], ["--rate", "fast"], ["--duration", "-1"], ["--connections", "0"]] {
            assert!(common(&wrong).is_err(), "{wrong:?}");
        }
    }
}
