//! `vellum lab`: runs the program `vellum-lab` from the directory of this program or from the path.
//!
//! The lab is a separate program, because its drivers would enlarge each server.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs the lab with these arguments.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let executable = std::env::current_exe().ok();
    let program = program(executable.as_deref());
    let mut command = Command::new(&program);
    command.args(words);
    if let Some(executable) = executable.filter(|_| std::env::var_os("VELLUM_BINARY").is_none()) {
        // Default server to measure.
        command.env("VELLUM_BINARY", executable);
    }
    let error = exec_or_spawn(&mut command);
    let error = match error {
        Ok(code) => return code,
        Err(error) => error,
    };
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "the program vellum-lab is neither in the directory of this program nor on the path. The \
             tarball and the Debian package contain it; from source: cargo install --path crates/lab"
                .to_string()
        }
        _ => format!("{}: {error}", program.display()),
    };
    crate::print_error(&why);
    ExitCode::from(2)
}

fn program(executable: Option<&Path>) -> PathBuf {
    let name = format!("vellum-lab{EXE_SUFFIX}");
    let beside =
        executable.map(|executable| executable.with_file_name(&name)).filter(|beside| beside.is_file());
    beside.unwrap_or_else(|| name.into())
}

/// Replaces the process by the other program, which then receives signals and standard input.
#[cfg(unix)]
fn exec_or_spawn(command: &mut Command) -> io::Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    Err(command.exec())
}

#[cfg(not(unix))]
fn exec_or_spawn(command: &mut Command) -> io::Result<ExitCode> {
    let status = command.status()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
