//! docs/options.md: every option of every subcommand, generated from the definition of the command line.
//!
//! `VELLUM_BLESS=1 cargo test --test it options` writes the page. The test fails while the page differs.

#[allow(dead_code)]
#[path = "../../src/cli.rs"]
mod cli;

use crate::{bless, root};
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const INTRODUCTION: &str = "# Options

<!-- Made by tests/it/options.rs from src/cli.rs. Do not edit: VELLUM_BLESS=1 cargo test --test it options -->

This page is for users who configure a Vellum server or run its other verbs.

`vellum --help-all` prints the options of the server, and `vellum VERB --help` prints the options of another verb. `vellum
help` and `vellum version` work like `--help` and `--version`. The Debian package and the tarball have man pages with
this text.

Each option of the server can also be set in the environment or in the file of `--config`, which cannot name another file.
`--cache-size 4G` is `VELLUM_CACHE_SIZE=4G` there, or a line `cache-size = \"4G\"`. Precedence: command line, then environment, then file.

A size is a number of bytes, or a number with K, M or G for powers of 1,024, and at least 16M. A time is a number with s, m, h or d.
`--allow-other-files`, `--durability`, `--cache-size`, `--compression`, `--journal-…`, `--init-scripts` and `--repair` need `--data`.

Each verb exits with 0 on success, with 1 on failure, and with 2 for a wrong option or value. `vellum verify`, `vellum mongod` and `vellum
lab` have their own codes: see [backup.md](backup.md#checking), [mongod.md](mongod.md#exit-codes) and [lab.md](lab.md#output).
";

/// Subcommands that forward their arguments, and the page with their options.
const ELSEWHERE: [(&str, &str); 2] = [("mongod", "mongod.md"), ("lab", "lab.md")];

#[test]
fn options_page_is_up_to_date() {
    let page = page();
    let path = root().join("docs/options.md");
    if bless() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/options.md differs. VELLUM_BLESS=1 cargo test --test it options writes this page:\n{page}"
    );
}

fn page() -> String {
    let mut command = cli::Cli::command();
    command.build();
    let mut page = INTRODUCTION.to_string();
    for verb in command.get_subcommands() {
        let name = verb.get_name();
        let title =
            if name == "serve" { "vellum, vellum serve".to_string() } else { format!("vellum {name}") };
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = write!(page, "\n## {title}\n\n{about}.");
        match ELSEWHERE.iter().find(|(verb, _)| *verb == name) {
            Some((_, file)) => {
                let _ = writeln!(page, " The options are in [{file}]({file}).");
            }
            None => table(verb, &mut page),
        }
    }
    page
}

fn table(verb: &Command, page: &mut String) {
    if verb.get_positionals().next().is_some() {
        let usage = verb.clone().render_usage().to_string().replace("Usage: ", "").replace("\n       ", "\n");
        let _ = write!(page, "\n\n```\n{usage}\n```");
    }
    page.push_str("\n\n| option | default | description |\n|---|---|---|\n");
    for argument in verb.get_arguments() {
        let default: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        // The default of a flag only means its absence.
        let default = if takes_value(argument) { default.join(" ") } else { String::new() };
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{}` | {default} | {} |", spelling(argument), explanation(argument));
    }
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values()
}

/// Returns the option and its value as typed.
fn spelling(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    match argument.get_long() {
        None => value,
        Some(long) if argument.is_require_equals_set() => format!("{short}--{long}[={value}]"),
        Some(long) if takes_value(argument) => format!("{short}--{long} {value}"),
        Some(long) => format!("{short}--{long}"),
    }
}

/// Returns the help of an option with its values, for one table cell.
fn explanation(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<&str> = help.split("\n\n").map(|paragraph| paragraph.trim_end_matches('.')).collect();
    let mut text = paragraphs.join(". ").replace('\n', " ") + ".";
    let values = argument.get_possible_values();
    if takes_value(argument) && !values.is_empty() {
        let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        let _ = write!(text, " Values: {}.", names.join(", "));
    }
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}
