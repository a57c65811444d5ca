//! `vellum-lab`: the lab as a separate program, which keeps its drivers out of the server's binary. `vellum lab` runs
//! it.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "vellum-lab", bin_name = "vellum lab", version)]
struct Cli {
    #[command(flatten)]
    options: lab::Options,
}

fn main() -> ExitCode {
    // Not a subcommand: a misspelled subcommand would get it as a suggestion.
    if std::env::args().skip(1).eq(["null-server"]) {
        return lab::null_server();
    }
    lab::run(Cli::parse().options)
}
