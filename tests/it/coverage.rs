//! Every command, stage and operator has a golden script of its name.
//!
//! The names come from the server and the language themselves, so a new name needs a script. Incomplete families state
//! the number of missing scripts, which may only fall.

use crate::root;
use crate::server::Server;
use base::bson::extended_json::parse;
use std::collections::BTreeSet;

/// Scripts with many refused names in a row. A command in them needs no script of its own.
const TABLES: &[&str] = &[
    "refused.script",
    "alone.script",
    "replication.script",
    "../users/users.script",
    "../users/login.script",
    "../users/roles.script",
    "../users/_mergeAuthzCollections.script",
];

/// Returns the names without a script in the folder.
fn without_script<'n>(folder: &str, names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let folder = root().join("tests/scripts").join(folder);
    let read = |name: &&str| std::fs::read_to_string(folder.join(name)).ok();
    let tables: Vec<_> = TABLES.iter().filter_map(read).collect();
    let has_script = |name: &str| {
        let row = format!("{{{name}:");
        folder.join(format!("{name}.script")).exists() || tables.iter().any(|table| table.contains(&row))
    };
    names.filter(|name| !has_script(name)).map(str::to_string).collect()
}

/// Fails if more than `missing_max` names have no script.
fn check<'n>(folder: &str, names: impl Iterator<Item = &'n str>, missing_max: usize) {
    let missing = without_script(folder, names);
    assert!(
        missing.len() <= missing_max,
        "without a script in tests/scripts/{folder}, of which {missing_max} may be missing: {}",
        missing.join(" ")
    );
}

#[test]
fn every_command_has_a_script() {
    let Some(server) = Server::start() else { return };
    let command = parse("{listCommands: 1, $db: 'admin'}").unwrap();
    let reply = server.connect().unwrap().command(&command).unwrap();
    let commands = reply.view().get("commands").and_then(|commands| commands.as_document()).unwrap();
    let names: BTreeSet<_> = commands.iter().map(|command| command.name()).collect();
    assert!(names.contains("insert"));
    check("commands", names.into_iter(), 1);
}

#[test]
fn every_update_operator_has_a_script() {
    check("updates", query::update::operators::names(), 0);
}

#[test]
fn every_filter_operator_has_a_script() {
    let names = query::matcher::operators::OPERATORS.iter().map(|operator| operator.name);
    // Internal results of JSON schemas, and fields of a reference that the script of `$ref` covers.
    let apart = |name: &&str| name.starts_with("$_internal") || matches!(*name, "$db" | "$id");
    check("filters", names.filter(|name| !apart(name)), 0);
}

#[test]
fn every_stage_has_a_script() {
    let names = query::pipeline::stages().map(|stage| stage.name);
    // Internal stages of MongoDB's own tests have no effect.
    check("stages", names.filter(|name| !name.starts_with("$_internal")), 0);
}

#[test]
fn every_expression_operator_has_a_script() {
    check("expressions", query::expression::OPERATORS.iter().map(|operator| operator.name), 0);
}

#[test]
fn every_accumulator_has_a_script() {
    check("accumulators", query::accumulator::accumulators(), 0);
}

#[test]
fn every_window_function_has_a_script() {
    // A name that is also an accumulator is covered by two scripts together.
    let accumulators: BTreeSet<_> = query::accumulator::accumulators().collect();
    let names = query::window::window_functions().filter(|name| !accumulators.contains(name));
    check("window", names, 0);
}
