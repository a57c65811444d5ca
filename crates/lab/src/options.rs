//! The lab's command line.

use crate::{Error, Result};
use clap::{Args, Subcommand};
use replay::Speed;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

/// Measures a server: the experiments behind Vellum's claims, and load of your own. Times are of three rounds on the
/// five targets that the lab starts itself; each further target adds a fifth.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
        vellum lab all --report page.html                   everything, on one page\n  \
        vellum lab clean                                    Vellum at each durability level, and the null server\n  \
        vellum lab write-concern --target mine=mongodb://127.0.0.1:27017/ --report out.html\n  \
        vellum lab inserts --postgres-here                  beside PostgreSQL with fsync on, off and on a RAM disk\n  \
        vellum lab run orders.toml --rate 2000 --duration 60\n  \
        vellum lab record --upstream mongodb://db:27017/ monday.rec\n  \
        vellum lab replay monday.rec --speed max --check\n  \
        vellum lab replay monday.rec --start monday.backup    on the data of record --snapshot monday.backup\n  \
        vellum lab suite --rounds 3 -- npm test              with MONGODB_URI set to each target in turn\n  \
        vellum lab inserts --data-on /mnt/a --data-on /dev/shm\n  \
        vellum lab compare before.json after.json --fail-if 'p99>+10%'")]
pub struct Options {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Subcommands of the lab.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Verb {
    /// All of the next six, in one report (40 minutes)
    All(Common),
    /// Cleaning between tests: delete, drop and recreate, reset, fork, restore (4 minutes)
    Clean(Common),
    /// Latency by write concern: w 0, 1, 2, majority, with and without the journal (1 minute)
    WriteConcern(Common),
    /// 10,000 single inserts, on one connection and on eight (30 seconds)
    Inserts(Common),
    /// Gets by index with the focus on 1 %, 10 % and all of collections of growing size (20 minutes)
    WorkingSet(Common),
    /// An error tracker: creates and searches, in blocks, as the data grows (8 minutes)
    ErrorTracker(Common),
    /// Point reads and writes, batches, scans, group, sort, index build, connections, start-up (6 minutes)
    Micro(Common),
    /// A workload described by a file (time of its cases, times targets and rounds)
    Run {
        /// The workload: see docs/lab.md
        workload: PathBuf,
        #[command(flatten)]
        common: Common,
    },
    /// Print the workload file of an experiment, as a template for your own
    Workload {
        /// clean, error-tracker, inserts, micro, working-set or write-concern
        name: String,
    },
    /// Record the traffic between an application and a server, as a proxy
    Record(Record),
    /// Send a recording to each target, and compare times and answers
    Replay {
        /// A file written by `record`
        recording: PathBuf,
        #[command(flatten)]
        replay: ReplayOptions,
        #[command(flatten)]
        common: Common,
    },
    /// Time of a command, such as a test suite, with each target in turn as MONGODB_URI
    Suite {
        #[command(flatten)]
        common: Common,
        /// The command, after `--`
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Differences between two runs, with confidence; or several runs side by side
    Compare(Compare),
}

/// Options of all experiments.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// A server to measure, as NAME=URI (mongodb:// or postgresql://); may be given several times
    #[arg(long = "target", value_name = "NAME=URI", value_parser = parse_target)]
    pub(crate) targets: Vec<TargetArgument>,
    /// Start temporary PostgreSQL clusters from the installed version: fsync on, off, on a RAM disk
    #[arg(long)]
    pub(crate) postgres_here: bool,
    /// Data directory of the servers that the lab starts; may be given several times, such as once for each file
    /// system, and each is measured
    #[arg(long, value_name = "DIR")]
    pub(crate) data_on: Vec<PathBuf>,
    /// Journal directory of the servers that the lab starts, instead of the data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) journal_on: Option<PathBuf>,
    /// The mongod to start in addition to Vellum; the default is the one in PATH, if any; `none` starts none
    #[arg(long, value_name = "PATH")]
    pub(crate) mongod: Option<PathBuf>,
    /// The FerretDB 2 to start over a temporary PostgreSQL with the DocumentDB extension; the default is the one in
    /// PATH, if the extension is installed; `none` starts none
    #[arg(long, value_name = "PATH")]
    pub(crate) ferretdb: Option<PathBuf>,
    /// Start a server with members, for w 2 and majority: a Vellum front over a PostgreSQL with one standby
    #[arg(long)]
    pub(crate) members_here: bool,
    /// Offered operations per second, each timed from its intended start; several, such as 500,1000,2000, are measured
    /// in turn. Without it, each connection sends its next operation after each answer
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = parse_positive)]
    pub(crate) rate: Vec<f64>,
    /// Search for the highest rate whose p99 stays within this many milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_positive, conflicts_with = "rate")]
    pub(crate) find_rate: Option<f64>,
    /// Duration of each case, such as 3s, 500ms or 2m; a plain number is seconds
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// Number of concurrent connections, instead of the experiment's own numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) connections: Option<u32>,
    /// Size of the work relative to the experiment's own: 0.01 is a smoke test
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_positive)]
    pub(crate) scale: f64,
    /// Number of rounds; the targets alternate within each round
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Write one self-contained HTML file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
    /// Write all results as JSON, histograms included, for compare
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables as Markdown
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Seed of the documents and of the order of operations, to repeat a run
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Print no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Options of `record`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Record {
    /// The file to write; it must not exist
    pub(crate) file: PathBuf,
    /// Connection string of the server, without a user: the recorder forwards the users of the application
    #[arg(long, value_name = "URI")]
    pub(crate) upstream: String,
    /// Listen address for the application; port 0 chooses a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:27018")]
    pub(crate) listen: String,
    /// Size limit of the file, such as 500MB; at the limit recording stops, and the traffic continues
    #[arg(long, value_name = "SIZE", default_value = "1GB", value_parser = parse_size)]
    pub(crate) max_size: u64,
    /// A field to redact, such as contact.email: its values are replaced by others of the same type and length; may be
    /// given several times
    #[arg(long, value_name = "FIELD", value_parser = parse_field)]
    pub(crate) redact: Vec<String>,
    /// Back up the server, a Vellum, into this directory first, for replay --start
    #[arg(long, value_name = "DIR")]
    pub(crate) snapshot: Option<PathBuf>,
    /// End when standard input closes
    #[arg(long)]
    pub(crate) parent_pipe: bool,
}

/// Options of `replay`, in addition to those of all experiments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReplayOptions {
    /// Multiple of the recorded pace, such as 4, or max: as fast as answers come
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = parse_speed)]
    pub(crate) speed: Speed,
    /// Compare answers with the recorded ones; a request sent after an answer is then sent after it again
    #[arg(long)]
    pub(crate) check: bool,
    /// Use the existing databases of the given targets, and leave the results there
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Initial data of the recording: a backup (such as of record --snapshot), or a server. The databases that the
    /// recording uses are copied to each target before each round
    #[arg(long, value_name = "DIR|URI")]
    pub(crate) start: Option<String>,
}

/// Options of `compare`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// JSON of the earlier run
    pub(crate) before: PathBuf,
    /// JSON of the later run
    pub(crate) after: PathBuf,
    /// Further runs, such as of other machines: all runs are shown side by side, one column each
    pub(crate) more: Vec<PathBuf>,
    /// Exit with 1 if any row but the null server's is certainly worse and beyond this limit, such as 'p99>+10%' or
    /// 'rate<-5%'; needs three rounds, may be given several times
    #[arg(long, value_name = "LIMIT")]
    pub(crate) fail_if: Vec<String>,
    /// Write an HTML file with charts of the differences
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// A target of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetArgument {
    pub(crate) name: String,
    pub(crate) uri: String,
}

fn parse_target(text: &str) -> std::result::Result<TargetArgument, String> {
    let (name, uri) =
        text.split_once('=').ok_or("expected NAME=URI, such as mine=mongodb://127.0.0.1:27017/")?;
    let known = ["mongodb://", "postgresql://", "postgres://"].iter().any(|scheme| uri.starts_with(scheme));
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(format!("'{name}' is not a target name: use letters, and no spaces or slashes"));
    }
    if !known {
        return Err(format!("'{uri}' begins with neither mongodb:// nor postgresql://"));
    }
    Ok(TargetArgument { name: name.to_string(), uri: uri.to_string() })
}

fn parse_positive(text: &str) -> std::result::Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("must be more than 0".to_string()) }
}

fn parse_speed(text: &str) -> std::result::Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        factor => parse_positive(factor).map(Speed::Times).map_err(|why| format!("{why}; or use max")),
    }
}

/// Parses a number with a unit. The unit is optional.
fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> std::result::Result<f64, String> {
    let unit = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((text, 1.0));
    parse_positive(number.trim_end()).map(|number| number * size)
}

/// Parses a number of bytes.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let size = parse_with_unit(text, &[("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("B", 1.0)]);
    let size = size.map_err(|_| format!("'{text}' is not a size, such as 500MB or 2GB"))?;
    if size < 10_000.0 { Err("the minimum is 10kB".to_string()) } else { Ok(size as u64) }
}

fn parse_field(text: &str) -> std::result::Result<String, String> {
    let is_invalid =
        |name: &str| name.is_empty() || name.starts_with('$') || name.bytes().all(|b| b.is_ascii_digit());
    if text.split('.').any(is_invalid) {
        return Err("expected field names separated by dots, such as contact.email".to_string());
    }
    Ok(text.to_string())
}

/// Parses a duration into seconds.
fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    parse_with_unit(text, &[("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)])
        .map_err(|_| format!("'{text}' is not a duration, such as 3s, 500ms or 2m"))
}

impl Common {
    /// Options that determine the size of an experiment, and whether each was given.
    fn sizes(&self) -> [(&'static str, bool); 6] {
        [
            ("--rate", !self.rate.is_empty()),
            ("--find-rate", self.find_rate.is_some()),
            ("--duration", self.duration.is_some()),
            ("--connections", self.connections.is_some()),
            ("--scale", self.scale != 1.0),
            ("--postgres-here", self.postgres_here),
        ]
    }

    /// Refuses options that an experiment does not support.
    ///
    /// # Errors
    /// One of these options was given, or is none of them.
    pub(crate) fn refuse(&self, options: &[&str], why: &str) -> Result<()> {
        let given = self.sizes();
        if let Some(other) = options.iter().find(|option| given.iter().all(|(known, _)| known != *option)) {
            let known = given.map(|(option, _)| option).join(", ");
            return Err(Error::Input(format!("'refuse' has {other}, which is not one of {known}")));
        }
        let refused = given.iter().find(|(option, is_given)| *is_given && options.contains(option));
        refused.map_or(Ok(()), |(option, _)| Err(Error::Input(format!("{why}: omit {option}"))))
    }

    /// Checks the options before any server is started.
    ///
    /// # Errors
    /// Two targets have the same name, a directory is missing, or an output cannot be written.
    pub(crate) fn check(&self) -> Result<()> {
        check_unique_names(self.targets.iter().map(|target| target.name.as_str()))?;
        let started = self.targets.is_empty()
            || self.postgres_here
            || self.members_here
            || self.mongod.is_some()
            || self.ferretdb.is_some();
        let own = [("--data-on", !self.data_on.is_empty()), ("--journal-on", self.journal_on.is_some())];
        if let Some((option, _)) = own.iter().find(|(_, given)| *given && !started) {
            return Err(Error::Input(format!(
                "{option} applies to servers that the lab starts, and --target starts none"
            )));
        }
        for directory in self.data_on.iter().chain(&self.journal_on) {
            if !directory.is_dir() {
                return Err(Error::Input(format!("{} is not a directory", directory.display())));
            }
        }
        [&self.json, &self.markdown, &self.report]
            .into_iter()
            .flatten()
            .try_for_each(|path| check_writable(path))
    }
}

/// Checks that an output file can be written. A file that exists keeps its content, and no new file stays.
///
/// # Errors
/// The file cannot be opened or created.
fn check_writable(path: &Path) -> Result<()> {
    let is_new = path.symlink_metadata().is_err();
    // The end of a pipe would be seen by its reader.
    if path.exists() && !path.is_file() && !path.is_dir() {
        return Ok(());
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    opened.map_err(|error| Error::Input(format!("{} can't be written: {error}", path.display())))?;
    // A link to a file that does not exist stays.
    if is_new {
        // A leftover is empty, and the run overwrites it.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Checks the names of targets.
///
/// # Errors
/// Two targets have the same name. The lab itself starts one of them, if the options are right.
pub(crate) fn check_unique_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut known = BTreeSet::new();
    let twice = names.into_iter().find(|name| !known.insert(*name));
    twice.map_or(Ok(()), |name| Err(Error::Input(format!("two targets are named {name}"))))
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
        assert_eq!(targets, [TargetArgument { name: "a".to_string(), uri: "mongodb://h/?w=1".to_string() }]);
        for invalid in ["mongodb://h/", "a=http://h", "=mongodb://h", "a b=mongodb://h"] {
            assert!(common(&["--target", invalid]).is_err(), "{invalid}");
        }
    }

    #[test]
    fn two_targets_of_one_name_are_refused() {
        let twice = common(&["--target", "a=mongodb://h/", "--target", "a=mongodb://i/"]).unwrap();
        assert_eq!(twice.check(), Err(Error::Input("two targets are named a".to_string())));
    }

    #[test]
    fn places_are_for_servers_that_are_started() {
        let given = common(&["--target", "a=mongodb://h/", "--data-on", "/tmp"]).unwrap();
        assert!(given.check().unwrap_err().to_string().starts_with("--data-on applies to servers"));
        let nowhere = common(&["--journal-on", "/nowhere"]).unwrap();
        assert_eq!(nowhere.check(), Err(Error::Input("/nowhere is not a directory".to_string())));
        assert_eq!(common(&["--data-on", "/tmp", "--data-on", "/"]).unwrap().check(), Ok(()));
    }

    #[test]
    fn outputs_that_cannot_be_written_are_refused() {
        let directory = std::env::temp_dir().join(format!("vellum-lab-outputs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (old, new) = (directory.join("old"), directory.join("new"));
        std::fs::write(&old, "content").unwrap();
        for option in ["--json", "--markdown", "--report"] {
            let check = |path: &Path| common(&[option, path.to_str().unwrap()]).unwrap().check();
            let refused = check(&directory.join("nowhere").join("out"));
            assert!(
                matches!(&refused, Err(Error::Input(why)) if why.contains("can't be written")),
                "{refused:?}"
            );
            assert!(check(&directory).is_err());
            assert_eq!((check(&old), check(&new)), (Ok(()), Ok(())));
        }
        let content = (std::fs::read_to_string(&old).unwrap(), new.exists());
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(content, ("content".to_string(), false));
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        let given = common(&["--rate", "5", "--scale", "0.5"]).unwrap();
        assert_eq!(given.refuse(&["--duration", "--connections"], "it counts"), Ok(()));
        let refused = given.refuse(&["--duration", "--scale"], "it counts");
        assert_eq!(refused, Err(Error::Input("it counts: omit --scale".to_string())));
        let unknown = common(&[]).unwrap().refuse(&["rate"], "it counts").unwrap_err().to_string();
        assert!(
            unknown.starts_with("'refuse' has rate, which is not one of --rate, --find-rate"),
            "{unknown}"
        );
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in [("3", 3.0), ("3s", 3.0), ("500ms", 0.5), ("1.5m", 90.0), ("1h", 3600.0)] {
            assert_eq!(common(&["--duration", text]).unwrap().duration, Some(seconds), "{text}");
        }
        for invalid in ["s", "3 days", "-1s", "0ms"] {
            assert!(common(&["--duration", invalid]).is_err(), "{invalid}");
        }
    }

    #[test]
    fn recordings_have_sizes_speeds_and_fields() {
        for (text, size) in [("500MB", 500_000_000), ("1.5 GB", 1_500_000_000), ("20000", 20_000)] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        assert!(parse_size("1kB").is_err() && parse_size("big").is_err());
        assert_eq!((parse_speed("max"), parse_speed("0.5")), (Ok(Speed::Max), Ok(Speed::Times(0.5))));
        assert!(parse_speed("fast").is_err() && parse_speed("0").is_err());
        assert!(parse_field("a.b").is_ok());
        for invalid in ["", "a.", "$a", "a.0"] {
            assert!(parse_field(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn nonsense_numbers_are_refused() {
        for invalid in [["--rate", "0"], ["--rate", "fast"], ["--duration", "-1"], ["--connections", "0"]] {
            assert!(common(&invalid).is_err(), "{invalid:?}");
        }
    }
}
