//! `vellum-lab`: the lab as a program of its own, so that the drivers it measures with make no
//! server larger. `vellum lab` runs it.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "vellum-lab", bin_name = "vellum lab", version)]
struct Cli {
    #[command(flatten)]
    options: lab::Options,
}

fn main() -> ExitCode {
    // Not a verb of the command line, which would suggest it to whoever mistypes another.
    if std::env::args().skip(1).eq(["floor"]) {
        return lab::floor();
    }
    lab::run(Cli::parse().options)
}
