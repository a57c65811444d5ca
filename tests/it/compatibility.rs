//! docs/compatibility.md, made from the tables themselves: every command with its fields, every
//! operator, stage and accumulator, and whether it works or is refused by name.
//!
//! What there is comes from the language's own tables and from `listCommands`; the fields come from
//! the handlers' sources, where each is declared by name; whether something is refused is asked of
//! the running server. `VELLUM_BLESS=1 cargo test --test it compatibility` writes the page, the test
//! fails while it differs.

use crate::ask::{code, number, run_on};
use crate::client::Client;
use crate::server::Server;
use crate::{bless, root, say};
use base::bson::{Builder, DocumentBuf, FieldName, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// What MongoDB calls a thing that a server knows and doesn't do.
const NOT_IMPLEMENTED: i64 = 238;
/// What it says of search, which it has only beside a process of its own.
const SEARCH_NOT_ENABLED: i64 = 31082;

#[test]
fn compatibility_page_is_up_to_date() {
    let Some(server) = Server::start() else { return say("compatibility: skipped, no server yet") };
    let page = page(&mut server.connect().unwrap());
    let path = root().join("docs/compatibility.md");
    if bless() {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/compatibility.md is out of date: VELLUM_BLESS=1 cargo test --test it compatibility"
    );
}

#[test]
fn one_option_chooses_the_version_that_is_presented() {
    let Some(default) = Server::start() else { return say("compatibility: skipped, no server yet") };
    let older = Server::start_with(&["--compatible-with", "8.0"]).unwrap();
    for (server, version, wire, feature) in [(&default, "8.2.0", 27, "8.2"), (&older, "8.0.0", 25, "8.0")] {
        let built = run_on(server, "{buildInfo: 1, $db: 'admin'}");
        assert_eq!(built.view().get("version").and_then(|text| text.as_str()), Some(version));
        assert_eq!(number(&run_on(server, "{hello: 1, $db: 'admin'}"), "maxWireVersion"), wire);
        let set = |feature: &str| {
            format!("{{setFeatureCompatibilityVersion: '{feature}', confirm: true, $db: 'admin'}}")
        };
        assert_eq!(code(&run_on(server, &set(feature))), 0);
        assert_eq!(code(&run_on(server, &set("7.0"))), 4_926_900);
    }
}

fn page(client: &mut Client) -> String {
    let mut page = String::from(
        "# Compatibility\n\nMade by `VELLUM_BLESS=1 cargo test --test it compatibility` from the tables of the \
         sources and the running\nserver; `./test` checks that it is up to date. The server \
         presents itself as MongoDB 8.2,\nor with `--compatible-with 8.0` as 8.0. Error codes and texts are those of \
         8.2 either way. The behaviour of\nMongoDB 9.0 cannot be chosen yet. What is not listed here MongoDB 8.0 \
         doesn't have, or it is unknown to this\nserver and refused as unknown.\n",
    );
    commands(client, &mut page);
    let filters = query::matcher::operators::OPERATORS;
    let public = |name: &&str| !name.starts_with("$_");
    let filters: Vec<&str> = filters.iter().map(|operator| operator.name).filter(public).collect();
    section(&mut page, "Filters", &filters, |name| is_refused(client, &filter_probe(name)));
    let updates: Vec<&str> = query::update::operators::names().collect();
    section(&mut page, "Update operators", &updates, |_| false);
    let stages: Vec<&str> = query::pipeline::stages().map(|stage| stage.name).filter(public).collect();
    section(&mut page, "Aggregation stages", &stages, |name| is_refused(client, &stage_probe(name)));
    let expressions: Vec<&str> = query::expression::OPERATORS.iter().map(|operator| operator.name).collect();
    section(&mut page, "Expressions", &expressions, |name| {
        expression_probes(name).iter().any(|probe| is_refused(client, probe))
    });
    let accumulators: Vec<&str> = query::accumulator::accumulators().collect();
    section(&mut page, "Accumulators and window operators", &accumulators, |name| {
        is_refused(client, &accumulator_probe(name))
    });
    parameters(client, &mut page);
    page.push_str(WITHOUT_EFFECT);
    page
}

/// What no table tells.
const WITHOUT_EFFECT: &str = "
## Taken without effect, as by MongoDB

- `find`: `allowPartialResults` and `oplogReplay`; `getMore`: `lastKnownCommittedOpTime`; `hello`: fields that it \
doesn't know; `delete`: `bypassDocumentValidation` and `bypassEmptyTsReplacement`; `createIndexes`: `background`, \
`dropDups`, `ns` and `v`; `fsync`: `async`; `validate`: `scandata`; `serverStatus`: names of sections that aren't here.
- With `w: 0` a write answers nothing, whatever became of it.

## Otherwise than MongoDB, and why

- A cursor reads one state of the data from its first batch to its last. So it goes on where MongoDB ends it \
because an index was dropped (175) or a capped collection has overwritten what comes next (136, which tailable \
cursors do get).
- Of cursors whose collections were dropped the latest 256 are told so (175); older ones are not found any more (43).
- A find by a collection's UUID is refused: it is what servers ask of one another.
- `hello` accepts empty client metadata (`client: {}`), and the server logs a warning about the first such client. MongoDB \
refuses it (ClientMetadataMissingField). MongoDB's Node driver 7 sends it inside Jest.
- `listCollections` doesn't show `system.views`, and views aren't documents of it.
- `$currentDate` with another `$type` is refused without the path, and a delete with a `limit` of 42.13 names that number: \
so do current_date_node.cpp and write_ops_parsers.cpp, though tests written against older versions expect otherwise. \
`testVersion2`, a command of MongoDB's test builds, is unknown.
- Stop words are Snowball's. MongoDB's lists for French and Romanian have more, its Turkish one has others, and a \
few words differ in Finnish, German, Hungarian, Norwegian and Russian: such words are found here.
- `$meta` in a filter's `$expr` is refused; what is asked for by `$set` may be filtered.
- A search for what is near reads rings that don't overlap, so that `searchIntervals` and the numbers of keys in its \
explain are others.
- A covered plan yields no null for what is missing: where a key has null, the document is read after all.
- `$group`s directly behind a plan are explained as MongoDB does, in `winningPlan.queryPlan` with `explainVersion` \"2\"; \
there are no slots, so that `slotBasedPlan` is left out and `executionStages` has the stages of the plan. All else that \
the plan doesn't do, `$lookup` among it, follows `$cursor` in `stages`. A projection to what these read is shown, though \
whole documents reach them; `$merge` is told as it was given.
- A find with `limit: 1` by an index that isn't unique is LIMIT over FETCH, where 8.0 may have EXPRESS_IXSCAN.
- Plans are chosen by rules; only where these leave indexes equal is there a trial, which counts keys. What trials came to \
is the plan cache: `works` in `$planCacheStats` are such keys, and there are no scores (`candidatePlanScores`).
- `logComponentVerbosity` knows all of MongoDB's components; lines that only a level above 0 shows are of `command`, \
`network` and `index`. `syncdelay` means nothing to the memory engine. `diagnosticDataCollectionEnabled` is false, since \
nothing is collected, and `internalQueryFrameworkControl` the one way that queries run here: either may be set to that, and to \
nothing else. `journalCommitInterval` means nothing where no journal is synced unasked.
- One node answers whatever `$readPreference` says, once that is checked. Fronts over PostgreSQL [read from standbys](postgres.md#reads-from-standbys).
- `serverStatus` has no `locks`, `wiredTiger` or `tcmalloc`: there are none. `dbStats` tells the sizes of the file system \
that data, or at least temporary files, lie on; not with PostgreSQL, which may be elsewhere. `getDiagnosticData` is empty. \
`compact` and `refreshLogicalSessionCacheNow` have nothing to do, `lockInfo` and `connPoolStats` nothing to tell, \
`collStats` nothing of one index but its size.
- `admin.system.version` and `local.startup_log` are empty; `getParameter` tells the feature compatibility version.
- MongoDB's database tools (mongodump and its kin) have not been run against it, but what they send: see \
tests/drivers/README.md.
- `$collStats` has no `queryExecStats`; `verbose`, `waitForLock` and `numericOnly` of its `storageStats` change nothing, since there are no sections of WiredTiger's. Entries of `system.profile` have an `_id`, and no `locks`, `execStats`, inserted keys or times spent waiting; `bulkWrite` has one entry.
";

/// Parameters: those that the server tells, and those that it knows from MongoDB and refuses.
fn parameters(client: &mut Client, page: &mut String) {
    let mut all = Builder::new();
    all.append(c"getParameter", "*").append(c"$db", "admin");
    let reply = client.command(&all.finish()).unwrap();
    let told: Vec<&str> = reply.view().iter().map(|parameter| parameter.name()).collect();
    let refused = std::fs::read_to_string(root().join("crates/server/src/parameters/elsewhere.rs")).unwrap();
    let tables = refused.split("/// Why").next().unwrap();
    let refused = tables.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    let names: Vec<&str> =
        told.into_iter().filter(|name| !matches!(*name, "ok" | "$clusterTime" | "operationTime")).collect();
    let refused: BTreeSet<&str> = refused.collect();
    let all: Vec<&str> = names.iter().copied().chain(refused.iter().copied()).collect();
    section(page, "Parameters", &all, |name| refused.contains(name));
}

/// A heading and the names, those refused apart.
fn section(page: &mut String, title: &str, names: &[&str], mut refused: impl FnMut(&str) -> bool) {
    let (no, yes): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| refused(name));
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
    let _ = write!(page, "\n## {title}\n\nWork ({}): {}\n", yes.len(), list(&yes));
    if !no.is_empty() {
        let _ = write!(page, "\nRefused by name ({}): {}\n", no.len(), list(&no));
    }
}

fn commands(client: &mut Client, page: &mut String) {
    let mut list = Builder::new();
    list.append(c"listCommands", 1i32).append(c"$db", "admin");
    let reply = client.command(&list.finish()).unwrap();
    let commands = reply.view().get("commands").and_then(|value| value.as_document()).unwrap();
    let fields = declared_fields();
    let mut refused = Vec::new();
    let _ = write!(
        page,
        "\n## Commands\n\n| command | fields | refused unless they have no effect |\n|---|---|---|\n"
    );
    for command in commands {
        let help = command.value().as_document().and_then(|about| about.get("help"));
        if help
            .and_then(|help| help.as_str())
            .is_none_or(|help| help.contains("Not implemented") || help.contains("refused"))
        {
            refused.push(command.name());
            continue;
        }
        let (taken, not_done) = fields.get(command.name()).cloned().unwrap_or_default();
        let list = |names: &BTreeSet<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
        };
        let _ = writeln!(page, "| `{}` | {} | {} |", command.name(), list(&taken), list(&not_done));
    }
    let list: Vec<String> = refused.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(page, "\nRefused by name ({}): {}\n", list.len(), list.join(" "));
}

/// Whether the server knows a thing and says that it doesn't do it.
fn is_refused(client: &mut Client, command: &DocumentBuf) -> bool {
    let reply = client.command(command).unwrap();
    let code = reply.view().get("code").and_then(|code| code.as_i64());
    let message = reply.view().get("errmsg").and_then(|message| message.as_str()).unwrap_or("");
    code == Some(NOT_IMPLEMENTED)
        || code == Some(SEARCH_NOT_ENABLED)
        || message.contains("not supported")
        || message.contains("text index required")
}

fn filter_probe(name: &str) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"find", "compatibility").begin_document(c"filter");
    let top = query::matcher::operators::OPERATORS.iter().any(|o| o.name == name && o.is_top_level());
    if !top {
        out.begin_document(c"a");
    }
    out.append(FieldName::known(name), 1i32);
    out.end();
    if !top {
        out.end();
    }
    out.append(c"$db", "compatibility");
    out.finish()
}

fn pipeline_probe(write: impl FnOnce(&mut Builder)) -> DocumentBuf {
    let mut out = Builder::new();
    out.append(c"aggregate", "compatibility").begin_array(c"pipeline").push_document();
    write(&mut out);
    out.end().end().begin_document(c"cursor").end().append(c"$db", "compatibility");
    out.finish()
}

fn stage_probe(name: &str) -> DocumentBuf {
    pipeline_probe(|out| {
        out.begin_document(FieldName::known(name)).end();
    })
}

fn accumulator_probe(name: &str) -> DocumentBuf {
    pipeline_probe(|out| {
        out.begin_document(c"$group").append(c"_id", Value::Null).begin_document(c"a");
        out.begin_document(FieldName::known(name)).end().end().end();
    })
}

/// An expression with no, with one and with empty named arguments: one of them gets past the
/// operator's own checks of its arguments as far as to its refusal.
fn expression_probes(name: &str) -> Vec<DocumentBuf> {
    let argument = |value: Value<'static>| {
        pipeline_probe(|out| {
            out.begin_document(c"$project")
                .begin_document(c"a")
                .append(FieldName::known(name), value)
                .end()
                .end();
        })
    };
    let empty = base::bson::Document::EMPTY;
    vec![argument(Value::Document(empty)), argument(Value::String("textScore")), argument(Value::Int32(1))]
}

type Declared = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

/// The fields that each command's handler takes, and those it refuses unless they have no effect:
/// read from the handlers' sources, following calls within the file, or the folder, and to `Parts::read`.
fn declared_fields() -> Declared {
    let folder = root().join("crates/server/src/commands");
    let mut declared = Declared::new();
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        declared_in(&entry.path(), &mut declared);
    }
    declared.insert("create".to_string(), options_of_create());
    declared
}

/// The options of create, which the database reads: each arm of the match is one or several.
fn options_of_create() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = std::fs::read_to_string(root().join("crates/database/src/options.rs")).unwrap();
    let arms = text.split("match name {").nth(1).unwrap_or_default();
    let arms = arms.split("_ => return Err").next().unwrap_or_default();
    let (mut taken, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for arm in arms.split("\n            \"").skip(1) {
        let (names, body) = arm.split_once("=>").unwrap_or_default();
        let names = format!("\"{names}");
        let names = names.split('"').skip(1).step_by(2).map(str::to_string);
        if body.contains("NotImplemented") { refused.extend(names) } else { taken.extend(names) }
    }
    taken.retain(|name| !refused.contains(name));
    (taken, refused)
}

/// The source of a file, or of all files of a folder.
fn source(path: &Path) -> String {
    if path.is_dir() {
        let mut files: Vec<_> =
            std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()).collect();
        files.sort();
        return files.iter().map(|file| source(file)).collect();
    }
    let text = std::fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_string()
}

fn declared_in(path: &Path, declared: &mut Declared) {
    let text = source(path);
    let functions = functions(&text);
    for row in text.split("Command::new(").skip(1) {
        let arguments = row.split(';').next().unwrap_or_default();
        let Some(name) = arguments.split('"').nth(1) else { continue };
        let handler = arguments.split('"').nth(4).unwrap_or_default();
        let handler: String = handler
            .chars()
            .skip_while(|c| !c.is_alphanumeric())
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let (mut taken, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        collect(&handler, &functions, &mut seen, &mut taken, &mut refused);
        declared.insert(name.to_string(), (taken, refused));
    }
}

/// The functions of a source by name, with their bodies.
fn functions(text: &str) -> BTreeMap<String, String> {
    let mut functions = BTreeMap::new();
    for part in text.split("\nfn ").flat_map(|part| part.split(" fn ")).skip(1) {
        let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        // A row may stand behind it, which names what it calls and what it needs.
        let part = part.split("Command::new(").next().unwrap_or_default();
        functions.entry(name).or_insert_with(String::new).push_str(part);
    }
    functions
}

fn collect(
    name: &str,
    functions: &BTreeMap<String, String>,
    seen: &mut BTreeSet<String>,
    taken: &mut BTreeSet<String>,
    refused: &mut BTreeSet<String>,
) {
    if !seen.insert(name.to_string()) {
        return;
    }
    let Some(body) = functions.get(name) else { return };
    for (at, word) in body.match_indices("fields") {
        let Some(method) = body[at + word.len()..].trim_start().strip_prefix('.') else { continue };
        let method_name: String = method.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let place = if method_name == "refuse_unless_default" { &mut *refused } else { &mut *taken };
        match method_name.as_str() {
            "wrong_type" | "peek" => {}
            "hint" | "collation" => drop(place.insert(method_name)),
            "array_filters" => drop(place.insert("arrayFilters".to_string())),
            _ => place.extend(argument(method[method_name.len()..].trim_start_matches('('), &body[..at])),
        }
    }
    let called = |other: &&String| {
        body.contains(&format!("{other}("))
            || body.contains(&format!("({other})"))
            || body.contains(&format!("::{other})"))
    };
    for other in functions.keys().filter(called) {
        collect(other, functions, seen, taken, refused);
    }
}

/// The field that a call's argument names: a literal, or each literal of the list that the loop
/// around the call goes through.
fn argument(argument: &str, before: &str) -> Vec<String> {
    let argument = argument.trim_start();
    if let Some(literal) = argument.strip_prefix('"') {
        return literal.split('"').next().map(str::to_string).into_iter().collect();
    }
    let variable: String = argument.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some((_, list)) = before.rsplit_once(&format!("for {variable} in [")) else { return Vec::new() };
    list.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_string).collect()
}
