//! `suite`: duration of a command, such as an application's tests, with each target in turn as `MONGODB_URI`.

use super::Experiment;
use crate::Result;
use crate::histogram::Latencies;
use crate::load::Lab;
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind, Row};
use crate::target::{Protocol, Scratch, Target, Usage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The experiment `suite`.
pub(crate) struct Suite {
    /// The program and its arguments.
    command: Vec<String>,
}

/// Environment variable with the connection string.
const VARIABLE: &str = "MONGODB_URI";

/// Poll interval of the command, far below the time of a suite.
const STEP: Duration = Duration::from_millis(5);

const SECTION: &str = "suite";

impl Suite {
    /// Creates the experiment for a command.
    pub(crate) fn new(command: Vec<String>) -> Suite {
        Suite { command }
    }
}

impl Experiment for Suite {
    fn name(&self) -> &'static str {
        "suite"
    }

    fn title(&self) -> String {
        format!("How long {} takes", self.command.join(" "))
    }

    fn about(&self) -> String {
        format!(
            "The command runs against each target in turn, from its start to its end, with {VARIABLE} set to the target's \
             connection string. Its data stays in a target until the end of the run. In a target of --target the data stays."
        )
    }

    fn check(&self, common: &Common) -> Result<()> {
        let sizes = ["--rate", "--find-rate", "--duration", "--connections", "--scale"];
        common.refuse(&sizes, "the command determines the size of a suite")
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let about = "An operation is one run of the command.";
        let section = lab.section(SECTION, "Time of the suite", about, Kind::Times);
        let targets = lab.targets.clone();
        let case = self.command.join(" ");
        lab.report.sections[section].rows =
            targets.iter().map(|target| Row::new(&target.name, &case, 1)).collect();
        let scratch = Scratch::temporary()?;
        lab.progress.expect(targets.len() * lab.common.rounds as usize);
        for round in 0..lab.common.rounds {
            for turn in 0..targets.len() {
                let which = (turn + round as usize) % targets.len();
                self.visit(lab, (section, which), &targets[which], scratch.path()).await;
                lab.progress.end(None);
            }
        }
        Ok(())
    }
}

impl Suite {
    /// Runs the command once on a target. Records the duration, or the reason to skip the target.
    async fn visit(&self, lab: &mut Lab, (section, at): (usize, usize), target: &Target, scratch: &Path) {
        let unfit = match target.protocol {
            _ if target.is_null_server => Some("it stores nothing"),
            Protocol::Postgres => Some("a suite needs MongoDB's protocol"),
            Protocol::Mongo => lab.progress.stopped().then_some("the run was stopped early"),
        };
        let row = &mut lab.report.sections[section].rows[at];
        if let (None, Some(why)) = (&row.note, unfit) {
            row.partial = row.operations > 0;
            row.note = Some(why.to_string());
        }
        if row.note.is_some() {
            return;
        }
        lab.progress.begin(&target.name, self.command.join(" "));
        let (before, began) = (target.usage(), Instant::now());
        let ended = self.run(lab, target, &scratch.join(format!("output-{at}"))).await;
        let took = began.elapsed();
        let cpu = Usage::cpu_between(before, target.usage());
        let row = &mut lab.report.sections[section].rows[at];
        match ended {
            Ok(true) => row.add(&Latencies::from_iter([took]), took.as_secs_f64(), cpu, false),
            Ok(false) => row.note = Some("the run was stopped early".to_string()),
            Err(why) => {
                row.failures += 1;
                row.note = Some(why.clone());
                lab.fail(target.error(format!("the suite: {why}")));
            }
        }
        let row = &mut lab.report.sections[section].rows[at];
        row.partial = row.note.is_some() && row.operations > 0;
    }

    /// Runs the command once. Returns false if the run was stopped. An error contains the reason of a failure.
    async fn run(&self, lab: &Lab, target: &Target, output: &Path) -> std::result::Result<bool, String> {
        let (program, arguments) = self.command.split_first().ok_or("no command")?;
        let start_error = |error: std::io::Error| format!("{program} can't be run: {error}");
        let file = File::create(output).map_err(start_error)?;
        let mut command = Command::new(program);
        command.args(arguments).env(VARIABLE, &target.uri).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(start_error)?).stderr(file);
        let began = Instant::now();
        // A process group of its own, so that all its processes can be killed.
        let mut running = Running(command.process_group(0).spawn().map_err(start_error)?);
        while !lab.progress.stopped() {
            match running.0.try_wait().map_err(start_error)? {
                Some(status) if status.success() => return Ok(true),
                Some(status) => {
                    let took = figures::seconds(began.elapsed().as_secs_f64());
                    return Err(format!("it failed after {took} ({status}){}", last_line(output)));
                }
                None => tokio::time::sleep(STEP).await,
            }
        }
        Ok(false)
    }
}

/// A command that is killed with its children when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let (Ok(None), Ok(group)) = (self.0.try_wait(), i32::try_from(self.0.id())) {
            // The group id is still valid: the child has not been waited for.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Returns the last output line of a failed command, for its error text.
fn last_line(output: &Path) -> String {
    let text = std::fs::read(output).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line: String = line.trim().chars().take(200).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_reason() {
        let scratch = Scratch::temporary().unwrap();
        let path = scratch.path().join("x");
        std::fs::write(&path, "1 test\nFAILED b\n\n").unwrap();
        assert_eq!(last_line(&path), ": FAILED b");
        assert_eq!(last_line(Path::new("/nowhere")), "");
    }
}
