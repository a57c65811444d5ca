//! `suite`: duration of a command, such as an application's tests, with each target in turn as `MONGODB_URI`.

use super::Experiment;
use crate::load::measure::{Bench, Case, Prepared, RoundSpec};
use crate::load::{Lab, LoadEnd, Worker};
use crate::options::Common;
use crate::report::figures;
use crate::result::{Kind, Part, Row};
use crate::target::{Protocol, Scratch, Target};
use crate::{Error, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The experiment `suite`.
#[derive(Clone)]
pub(crate) struct Suite {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
}

/// Environment variable with the connection string.
const VARIABLE: &str = "MONGODB_URI";

/// Poll interval of the command, far below the time of a suite.
const STEP: Duration = Duration::from_millis(5);

impl Experiment for Suite {
    fn describe(&self) -> Part {
        let about = format!(
            "The command runs against each target in turn, from its start to its end, with {VARIABLE} set to the target's \
             connection string. Its data stays in a target until the end of the run. In a target of --target the data stays."
        );
        Part::new("suite", format!("How long {} takes", self.command.join(" ")), about)
    }

    fn check(&self, common: &Common) -> Result<()> {
        let sizes = ["--rate", "--find-rate", "--duration", "--connections", "--scale"];
        common.refuse(&sizes, "the command determines the size of a suite")
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let about = "An operation is one run of the command.";
        let section = lab.section("suite", "Time of the suite", about, Kind::Times);
        let case = Case::new(self.command.join(" "), LoadEnd::Operations(1), self.clone());
        let cases = [case.with_fixed_operations(1, 0)];
        lab.progress.expect(lab.measurements(&cases));
        lab.measure(section, &cases).await;
        Ok(())
    }
}

impl Bench for Suite {
    type Worker = SuiteWorker;

    async fn prepare(&self, target: &Target, _: &RoundSpec) -> Result<Prepared<SuiteWorker>> {
        Ok(match target.protocol {
            _ if target.is_null_server => Prepared::Unsupported("it stores nothing".to_string()),
            Protocol::Postgres => Prepared::Unsupported("a suite needs MongoDB's protocol".to_string()),
            Protocol::Mongo => {
                let (command, uri) = (self.command.clone(), target.uri.clone());
                Prepared::Ready(vec![SuiteWorker { command, uri, scratch: Scratch::temporary()? }])
            }
        })
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        // A course over time has a single point.
        row.timeline.clear();
        row.first_error.as_ref().map_or(Ok(()), |why| Err(target.error(why)))
    }
}

/// Runs the command as an operation.
pub(crate) struct SuiteWorker {
    command: Vec<String>,
    uri: String,
    scratch: Scratch,
}

impl Worker for SuiteWorker {
    const SILENCE_MAX: Duration = Duration::MAX;

    async fn operation(&mut self, _: u64) -> Result<()> {
        let (program, arguments) =
            self.command.split_first().ok_or(Error::Input("no command".to_string()))?;
        let start_error = |error: io::Error| Error::Input(format!("{program} can't be run: {error}"));
        let output = self.scratch.path().join("output");
        let file = File::create(&output).map_err(start_error)?;
        let mut command = Command::new(program);
        command.args(arguments).env(VARIABLE, &self.uri).stdin(Stdio::null());
        command.stdout(file.try_clone().map_err(start_error)?).stderr(file);
        let began = Instant::now();
        // A process group of its own, so that all its processes can be killed.
        let mut running = Running(command.process_group(0).spawn().map_err(start_error)?);
        let status = loop {
            match running.0.try_wait().map_err(start_error)? {
                Some(status) => break status,
                None => tokio::time::sleep(STEP).await,
            }
        };
        if status.success() {
            return Ok(());
        }
        let took = figures::seconds(began.elapsed().as_secs_f64());
        Err(Error::Input(format!("it failed after {took} ({status}){}", last_line(&output))))
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
