//! Writes the man pages and the shells' completions of all packages into a folder: `cargo run --package pages -- OUT`.
//! packaging/build runs it. This crate is separate from `vellum`, so that cargo compiles clap for it, but no server.

#[allow(dead_code)]
#[path = "../src/cli.rs"]
mod cli;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let out =
        std::env::args_os().nth(1).map(PathBuf::from).ok_or_else(|| io::Error::other("usage: pages OUT"))?;
    std::fs::create_dir_all(&out)?;
    let command = cli::Cli::command();
    page(&command, "vellum", &out)?;
    for verb in command.get_subcommands() {
        page(verb, &format!("vellum-{}", verb.get_name()), &out)?;
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut cli::Cli::command(), "vellum", &out)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, out: &Path) -> io::Result<()> {
    // clap needs static names. The process ends soon.
    let name: &'static str = name.to_string().leak();
    let command = command.clone().name(name).bin_name(name.replacen('-', " ", 1)).display_name(name);
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    std::fs::write(out.join(format!("{name}.1")), text)
}
