//! Experiments against fakes in this process.

use crate::options::Common;
use crate::options::Options;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// The options that a command line of these arguments makes.
pub(crate) fn common(arguments: &[&str]) -> Common {
    let line = Line::try_parse_from(["lab", "clean"].iter().chain(arguments)).unwrap();
    match line.options.verb {
        crate::options::Verb::Clean(common) => common,
        other => panic!("{other:?}"),
    }
}
