//! docs/compatibility.md, generated from the tables: every command with its fields, every operator, stage and
//! accumulator, and whether it works or is refused by name.
//!
//! Names come from the language's tables and from `listCommands`. Fields come from the sources of the handlers, which
//! declare each by name. The running server shows which names are refused. The names of the newest MongoDB come from
//! tests/mongodb-9.0.txt, and the page lists those that do not work. `VELLUM_BLESS=1 cargo test --test it
//! compatibility` writes the page, and the test fails while the page differs.

use crate::client::Client;
use crate::requests::{code, number, run_on};
use crate::server::Server;
use crate::{bless, print_line, root};
use base::bson::{Builder, DocumentBuf, FieldName, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// MongoDB's code for a known and unsupported feature.
const NOT_IMPLEMENTED: i64 = 238;
/// MongoDB's code for search, which needs a separate process.
const SEARCH_NOT_ENABLED: i64 = 31082;

#[test]
fn compatibility_page_is_up_to_date() {
    let Some(server) = Server::start() else { return print_line("compatibility: skipped, no server yet") };
    let page = page(&mut server.connect().unwrap());
    let path = root().join("docs/compatibility.md");
    if bless() {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/compatibility.md is out of date: VELLUM_BLESS=1 cargo test --test it compatibility"
    );
}

#[test]
fn one_option_selects_the_reported_version() {
    let Some(default) = Server::start() else { return print_line("compatibility: skipped, no server yet") };
    let older = Server::start_with(&["--compatible-with", "8.0"]).unwrap();
    let newer = Server::start_with(&["--compatible-with", "9.0"]).unwrap();
    let expected = [
        (&default, "8.2.0", 27, "8.2"),
        (&older, "8.0.0", 25, "8.0"),
        (&newer, "9.0.0", 29, "9.0"),
        (&newer, "9.0.0", 29, "8.3"),
    ];
    for (server, version, wire, feature) in expected {
        let built = run_on(server, "{buildInfo: 1, $db: 'admin'}");
        assert_eq!(built.view().get("version").and_then(|text| text.as_str()), Some(version));
        assert_eq!(number(&run_on(server, "{hello: 1, $db: 'admin'}"), "maxWireVersion"), wire);
        let set = |feature: &str| {
            format!("{{setFeatureCompatibilityVersion: '{feature}', confirm: true, $db: 'admin'}}")
        };
        assert_eq!(code(&run_on(server, &set(feature))), 0);
        assert_eq!(code(&run_on(server, &set("7.0"))), 4_926_900);
        // The default of alwaysUpsert.
        run_on(server, "{create: 'c', $db: 'test'}");
        let update = "{applyOps: [{op: 'u', ns: 'test.c', o2: {_id: 1}, o: {_id: 1}}], $db: 'admin'}";
        assert_eq!(code(&run_on(server, update)), if version == "8.0.0" { 0 } else { 8 });
    }
}

fn page(client: &mut Client) -> String {
    let mut page = String::new();
    let mut known = Known::new();
    known.insert("commands", commands(client, &mut page));
    known.insert("options", options());
    let filters = query::matcher::operators::OPERATORS;
    let public = |name: &&str| !name.starts_with("$_");
    let filters: Vec<&str> = filters.iter().map(|operator| operator.name).filter(public).collect();
    let found = section(&mut page, "Filters", &filters, |name| is_refused(client, &filter_probe(name)));
    known.insert("filters", found);
    let updates: Vec<&str> = query::update::operators::names().collect();
    known.insert("update operators", section(&mut page, "Update operators", &updates, |_| false));
    let stages: Vec<&str> = query::pipeline::stages().map(|stage| stage.name).filter(public).collect();
    let found =
        section(&mut page, "Aggregation stages", &stages, |name| is_refused(client, &stage_probe(name)));
    known.insert("stages", found);
    let expressions: Vec<&str> = query::expression::OPERATORS.iter().map(|operator| operator.name).collect();
    let found = section(&mut page, "Expressions", &expressions, |name| {
        expression_probes(name).iter().any(|probe| is_refused(client, probe))
    });
    known.insert("expressions", found);
    let accumulators: Vec<&str> = query::accumulator::accumulators().collect();
    let found = section(&mut page, "Accumulators", &accumulators, |name| {
        is_refused(client, &accumulator_probe(name))
    });
    known.insert("accumulators", found);
    let windows: Vec<&str> = query::window::window_functions().collect();
    known.insert("window functions", section(&mut page, "Window functions", &windows, |_| false));
    parameters(client, &mut page);
    format!("{INTRODUCTION}{}{page}{WITHOUT_EFFECT}", versions(&known))
}

/// Start of the page, before its tables.
const INTRODUCTION: &str = "# Compatibility

This page is for developers who want to know which commands, fields, operators and stages of MongoDB work.

- The server presents itself as MongoDB 8.2. `--compatible-with 8.0` or `9.0` chooses another version. Error codes and texts are those
  of 8.2, except in [rules of single versions](#versions-of-mongodb).
- The server refuses names that are not on this page as unknown. *Refused by name* means an error that names the feature.
- `VELLUM_BLESS=1 cargo test --test it compatibility` makes this page from the sources and a running server. `./test` checks that it is
  up to date.

## Features

| feature | support |
|---|---|
| transactions, retryable writes, change streams | with `--replset NAME`, or over [PostgreSQL](postgres.md) |
| replica sets | one member |
| sharding | none: `enableSharding` and `shardCollection` are unknown commands (59) |
| collections | capped, clustered, views, validators, pre- and post-images, GridFS. Refused: time series, encrypted fields |
| indexes | compound, multikey, unique, sparse, partial, TTL, hidden, wildcard, hashed, text, `2d`, `2dsphere`. Refused: search indexes, `geoHaystack` |
| projections | inclusion, exclusion, expressions, `$slice`, `$elemMatch`, `$meta`, the positional `$` |
| modifiers of updates | `$each` `$position` `$slice` `$sort`; the paths `$`, `$[]` and `$[name]` |
| variables | `$$NOW` `$$CLUSTER_TIME` `$$ROOT` `$$CURRENT` `$$REMOVE` `$$USER_ROLES`; in `$map`, `$filter` and `$reduce` `$$IDX`; in `$redact` `$$KEEP` `$$PRUNE` `$$DESCEND`. Unknown: `$$SEARCH_META` |
| collations | all options. Refused: the locales `bo` `dz` `kl` `lkt` `ln` `se` `smn` `wae` `yi`, the variants `big5han` `gb2312han` `phonetic` `reformed` `search` `searchjl` |
| JavaScript on the server | refused |
| logins | SCRAM-SHA-256, SCRAM-SHA-1, MONGODB-X509 ([security](security.md#users)) |
| Stable API | version 1, also strict |
| compression of messages | snappy, zlib, zstd |
| fields of all commands | `comment` `maxTimeMS` `readConcern` `writeConcern` `$readPreference` `lsid` `txnNumber` `autocommit` `startTransaction` `stmtId` `stmtIds` `apiVersion` `apiStrict` `apiDeprecationErrors` `rawData` (without effect) |
| limits | documents: 16 MiB and 180 levels; messages: 48,000,000 bytes; statements of a command: 100,000 |
";

/// Names that work, by the sections of tests/mongodb-9.0.txt.
type Known = BTreeMap<&'static str, BTreeSet<String>>;

/// Returns the part of the page about MongoDB's versions: the names that each added, and those that do not work.
fn versions(known: &Known) -> String {
    let list = std::fs::read_to_string(root().join("tests/mongodb-9.0.txt")).unwrap();
    let (mut added, mut missing) =
        (BTreeMap::<&str, Vec<String>>::new(), BTreeMap::<&str, Vec<String>>::new());
    let mut section = "";
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (name, version) = line.split_once(' ').unwrap_or((line, "8.0"));
        let works = known.get(section).unwrap_or_else(|| panic!("unknown section {section}")).contains(name);
        let shown = match section {
            "expressions" | "stages" | "options" => format!("`{name}`"),
            _ => format!("`{name}` ({section})"),
        };
        if works { &mut added } else { &mut missing }.entry(version).or_default().push(shown);
    }
    let mut out = String::from(VERSIONS);
    for version in ["8.0", "8.1", "8.2", "8.3", "9.0"] {
        let of = |names: &BTreeMap<&str, Vec<String>>| names.get(version).cloned().unwrap_or_default();
        let works = match version {
            "8.0" => format!("{} names", of(&added).len()),
            _ => of(&added).join(" "),
        };
        let _ = writeln!(out, "| {version} | {works} | {} |", of(&missing).join(" "));
    }
    let _ = write!(out, "\n| reason | names that do not work |\n|---|---|\n");
    let missing: BTreeSet<&str> = missing.values().flatten().map(String::as_str).collect();
    let mut explained = BTreeSet::new();
    for (reason, names) in REASONS {
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let _ = writeln!(out, "| {reason} | {} |", names.join(" "));
        names.iter().for_each(|name| assert!(explained.insert(*name), "{name} has two reasons"));
    }
    assert_eq!(missing, explained, "names without a reason, and reasons of names that work");
    out.push_str(NEWER);
    out
}

/// Why names of tests/mongodb-9.0.txt do not work. Each of them has one reason.
const REASONS: [(&str, &str); 10] = [
    (
        "MongoDB's search runs in a separate process, which Vellum does not have",
        "`createSearchIndexes` (commands), `dropSearchIndex` (commands), `listSearchIndexes` (commands), \
         `updateSearchIndex` (commands), `$listSearchIndexes`, `$search`, `$searchMeta`, `$vectorSearch`",
    ),
    (
        "Not built yet: stages that combine ranked results, mostly of searches",
        "`$rankFusion`, `$score`, `$scoreFusion`",
    ),
    (
        "The server runs no JavaScript",
        "`mapReduce` (commands), `$where` (filters), `$function`, `$accumulator` (accumulators)",
    ),
    ("There are no time series collections", "`collMod.timeseries`, `create.timeseries`"),
    (
        "There are no collections with encrypted fields",
        "`compactStructuredEncryptionData` (commands), `cleanupStructuredEncryptionData` (commands), \
         `aggregate.encryptionInformation`, `bulkWrite.encryptionInformation`, `count.encryptionInformation`, \
         `create.encryptedFields`, `delete.encryptionInformation`, `find.encryptionInformation`, \
         `findAndModify.encryptionInformation`, `insert.encryptionInformation`, `update.encryptionInformation`, \
         `$encStrContains`, `$encStrEndsWith`, `$encStrNormalizedEq`, `$encStrStartsWith`",
    ),
    ("There are no shards", "`$listSampledQueries`, `$shardedDataDistribution`"),
    (
        "Index builds have no UUID and no quorum, because a set has one member",
        "`setIndexCommitQuorum` (commands), `listIndexes.includeBuildUUIDs`, `listIndexes.includeIndexBuildInfo`",
    ),
    (
        "The server writes no audit log, a part of MongoDB Enterprise",
        "`getAuditConfig` (commands), `logApplicationMessage` (commands), `setAuditConfig` (commands)",
    ),
    ("`compact` has no effect and needs no schedule", "`autoCompact` (commands)"),
    (
        "MongoDB's own processes and tests send it",
        "`appendOplogNote` (commands), `create.temp`, `usersInfo.authenticatedMechanism`",
    ),
];

/// Start of the part about versions.
const VERSIONS: &str = "
## Versions of MongoDB

This table compares Vellum with the names of MongoDB 9.0.2 in `tests/mongodb-9.0.txt`. A name that is refused does not work. Names work
under every `--compatible-with`, unless the next table says otherwise. Of 31,786 recorded replies of MongoDB 8.2.4, 99.79 % are
the same (`tests/vectors/README.md` lists the others by kind).

| version | names that work | names that do not work |
|---|---|---|
";

/// End of the part about versions.
const NEWER: &str = "
`--compatible-with 9.0` changes these rules. MongoDB's manual, sources and tests of 9.0 are the evidence.

| rule | 8.0 and 8.2 | 9.0 |
|---|---|---|
| `buildInfo.version`, `maxWireVersion` | 8.0.0 and 25, 8.2.0 and 27 | 9.0.0 and 29 |
| values of `setFeatureCompatibilityVersion` | 8.0, and 8.2 of 8.2 | 8.0, 8.3, 9.0 |
| `buildInfo` without a login | runs in 8.0, Unauthorized (13) in 8.2 | Unauthorized (13) |
| default of `alwaysUpsert` in `applyOps` | true in 8.0, false in 8.2 | false |
| `{\"a.b\": null}` if `a` is an empty array or has an element that is no document | does not match for this reason | matches. `$ne`, `$in`, `$nin`, `$gte`, `$lte`, `$lookup` and validators follow. `{\"a.0.b\": null}` also matches if no element of `a` leads to `b` |
| `validationLevel: \"constraint\"`, `prepareConstraintValidationLevel` | unknown | exist. The feature compatibility version must be 9.0 |
| separator of `$split`, `find` of `$replaceOne` and `$replaceAll` | a string | a string or a regular expression |
| `$convert`, `$toString` | other conversions fail (241) | also any type to a string, JSON text to documents and arrays, documents and arrays to binaries, vectors to arrays |
| `querySettings` in find, aggregate and distinct | refused: 7746901, 7708001, 7923000 | settings of one command. Those of its query shape come first |
| `maxTimeMS` and `queryKnobs` of query settings | unknown fields | `maxTimeMS` replaces the command's own. `noTableScan` refuses scans, other knobs are refused (238) |
| an empty name of a field in `$group` | accepted | BadValue. MongoDB's code is not known |
| an upsert of more than 16 MiB | 17420 | 10334 |
| a document of more than 100 MB in `$facet` | 4031700 | 146 |

These changes of 8.3 and 9.0 do not exist in Vellum:

- Partial indexes have the documents of 8.2's rule for null, because a directory may be opened under each version. A condition of 9.0's rule does not use them.
- Errors of keys of a 2dsphere index have the codes of 8.2, not 510 and 511.
- `listIndexes` does not show `collation: {locale: \"simple\"}`. MongoDB names this a fault of 9.0.0.
- Regular expressions have at most 16,384 bytes, as in 8.2. MongoDB's newest sources have a limit of 32,764.
- A query is not ended if an index becomes multikey meanwhile (QueryKilledError).
- `usersInfo` refuses `authenticatedMechanism`.
- Query settings refuse all `queryKnobs` but `noTableScan`.
- Dates before 1970 in `$dateAdd` and the limit of `chars` in `$trim` follow 8.2.
- `apiStrict` does not refuse operators and arguments of expressions that are outside of API version 1.
";

/// End of the page, after its tables.
const WITHOUT_EFFECT: &str = "
## Accepted without effect, as in MongoDB

| command | fields |
|---|---|
| `find` | `allowPartialResults` `oplogReplay` `readOnce` |
| `count` | `fields` |
| `getMore` | `lastKnownCommittedOpTime` |
| `hello` | unknown fields |
| `delete` | `bypassDocumentValidation` `bypassEmptyTsReplacement` |
| `createIndexes` | `background` `dropDups` `ns` `v` |
| `fsync` | `async` |
| `validate` | `scandata` |
| `serverStatus` | names of sections that do not exist |

A write with `w: 0` returns neither counts nor errors of statements. `bulkWrite` returns its totals.

## Differences from MongoDB

### Cursors and reads
- A cursor reads one snapshot from its first batch to its last. It continues where MongoDB ends it: after a drop of its index (175), or after a capped collection has overwritten the next document (136). Tailable cursors return 136.
- A cursor over a dropped collection returns 175. The server remembers 256 of these cursors and returns 43 (not found) for the others.
- A find by a collection's UUID is refused. Only members of a cluster send it.
- Strings in commands and documents must be valid UTF-8 (InvalidBSON). MongoDB stores other bytes unchanged. String operators, collations and text searches need characters.
- Binary values of the subtypes 2 to 5, 7 and 9 may have any length, also in `$literal`. MongoDB stores them too. Its newest sources refuse malformed ones in `$literal` (const_literal_bindata_restricted_subtypes.js).
- An equality on `_id` reads its index and the document, also if another index covers the query.
- The server signs no cluster time and does not verify the signature of a client's `$clusterTime`. With access control, MongoDB refuses a time ahead of its own that no key has signed (KeyNotFound). Vellum refuses only a time more than a year ahead (205): a set has one member, so no other server needs to trust the time, and a client without a login cannot set it.
- `create` refuses `temp`, which MongoDB uses for its own collections. `$jsonSchema` refuses `encrypt`, because encrypted fields do not exist.
- A single server answers every valid `$readPreference`. Fronts over PostgreSQL [read from standbys](postgres.md#reads-from-standbys).
- `listCollections` does not list `system.views`, and this collection has no documents.
- `$meta` in the `$expr` of a filter is refused. Store the value with `$set` and filter the new field.
- Date strings without a format must be absolute. `$dateFromString` and `$toDate` refuse relative parts such as `+1 day`, `tomorrow`, `next month`, `first day of` and `back of 7pm` (241). They know the common abbreviations of time zones, not MongoDB's whole table.
- `$text` uses Snowball's stop words. MongoDB's lists for French, Romanian and Turkish differ, and a few words in Finnish, German, Hungarian, Norwegian and Russian.

### Writes and tests
- A `deleteMany` writes its deletes to the oplog in groups, each one `applyOps` entry. MongoDB does so for deletes by TTL indexes. A front over PostgreSQL does the same with the updates of an `updateMany`.
- A rename to another database is one `rename` event in the streams of both databases. MongoDB copies the documents: its streams show a drop in the old database, and inserts and a rename in the new one. `convertToCapped`, which is a copy and a rename there, has no event.
- A write in a transaction fails with WriteConflict if the build of a unique index has added an entry for the document since the transaction began. MongoDB's index builds do not conflict with transactions.
- `$currentDate` with another `$type` is refused without the path. The error for a `limit` of 42.13 in a delete has that number. Both follow MongoDB's sources (current_date_node.cpp, write_ops_parsers.cpp). Tests of older versions expect other texts.
- Commands of MongoDB's test builds, such as `testVersion2` and `testDeprecation`, are unknown.
- `hello` accepts empty client metadata (`client: {}`), and the server logs a warning about the first client that sends it. MongoDB refuses it (ClientMetadataMissingField). MongoDB's Node driver 7 sends it inside Jest.
- MongoDB's database tools have not been tested. The tests send the commands of these tools (tests/drivers/README.md).

### Plans and explain
- Rules choose the plan. If they rate indexes equal, a trial counts keys, and the plan cache keeps the result. `works` in `$planCacheStats` is the number of keys. `candidatePlanScores` does not exist.
- A compound wildcard index has no key for a document without a field below the wildcard. Conditions on its other fields alone do not use it, and a hint on it then fails with NoQueryExecutionPlans (291).
- A geospatial search near a point reads rings that do not overlap. Its explain has other `searchIntervals` and numbers of keys.
- A position in a sort or an index (`a.0`) has one key for each element, if the array has an array there. MongoDB's key is the inner array.
- An index with `v: 1` has version 2, and the collation of its collection.
- A covered plan reads the document if an index key is null, and returns no null for a missing field.
- explain shows a `$group` directly behind a plan in `winningPlan.queryPlan` with `explainVersion` \"2\", as in MongoDB. No slot-based engine exists: `slotBasedPlan` is missing, and `executionStages` has the stages of the plan. Stages that the plan does not execute, `$lookup` for example, follow `$cursor` in `stages`. A projection to the fields that these stages read is shown, but they get whole documents. `$merge` is shown as the client sent it.
- `queryFramework` of query settings can only be classic: Vellum has one executor. `sbe` is refused (238).
- explain shows expressions as the client sent them. MongoDB shows computed constants (`$const`) and `$expr` with its `$_internalExpr…` conditions.
- explain shows a find with `limit: 1` by a non-unique index as LIMIT over FETCH. MongoDB may show EXPRESS_IXSCAN.

### Diagnostics and parameters
- `currentOp` accepts only values and `$exists` as conditions on its entries. Other conditions are refused (238): use `$currentOp` with `$match`.
- `serverStatus` has no `locks`, `wiredTiger` or `tcmalloc` sections.
- `dbStats` returns the sizes of the file system of the data, or of temporary files if the data are in memory. With PostgreSQL it returns none.
- `getDiagnosticData`, `lockInfo` and `connPoolStats` have no entries. `compact` and `refreshLogicalSessionCacheNow` have no effect. `collStats` returns of each index only its size.
- The options `verbose`, `waitForLock` and `numericOnly` of `storageStats` in `$collStats` change nothing.
- The cluster parameters `changeStreams` and `pauseMigrationsDuringMultiUpdates` have no effect. A positive `defaultMaxTimeMS` is refused.
- Entries of `system.profile` have an `_id`, and no `locks`, `execStats`, query hashes, numbers of keys that changed or wait times. `bulkWrite` writes one entry. `Slow query` in the log lacks the same fields.
- `admin.system.version` has the feature compatibility version only after `setFeatureCompatibilityVersion`, because a new server stores nothing by itself. `local.startup_log` is empty.
- `logComponentVerbosity` accepts all of MongoDB's components. Only `command`, `network` and `index` log lines above level 0.
- `syncdelay` has no effect on the memory engine, and `journalCommitInterval` none if the server syncs no journal by itself.
- `diagnosticDataCollectionEnabled` can only be false, and `internalQueryFrameworkControl` has one valid value.
";

/// Adds the parameters: supported ones, and known ones that are refused.
fn parameters(client: &mut Client, page: &mut String) {
    let mut all = Builder::new();
    all.append(c"getParameter", "*").append(c"$db", "admin");
    let reply = client.command(&all.finish()).unwrap();
    let reported: Vec<&str> = reply.view().iter().map(|parameter| parameter.name()).collect();
    let refused =
        std::fs::read_to_string(root().join("crates/server/src/state/parameters/elsewhere.rs")).unwrap();
    let tables = refused.split("/// Why").next().unwrap();
    let refused = tables.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    let names: Vec<&str> = reported
        .into_iter()
        .filter(|name| !matches!(*name, "ok" | "$clusterTime" | "operationTime"))
        .collect();
    let refused: BTreeSet<&str> = refused.collect();
    let all: Vec<&str> = names.iter().copied().chain(refused.iter().copied()).collect();
    section(page, "Parameters", &all, |name| refused.contains(name));
}

/// Adds a heading and the names, refused names separately. Returns the names that work.
fn section(
    page: &mut String,
    title: &str,
    names: &[&str],
    mut refused: impl FnMut(&str) -> bool,
) -> BTreeSet<String> {
    let (no, yes): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| refused(name));
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
    let _ = write!(page, "\n## {title}\n\nSupported ({}): {}\n", yes.len(), list(&yes));
    if !no.is_empty() {
        let _ = write!(page, "\nRefused by name ({}): {}\n", no.len(), list(&no));
    }
    yes.into_iter().map(str::to_string).collect()
}

/// Returns the options of all commands, as `command.option`.
fn options() -> BTreeSet<String> {
    let of = |(command, (taken, _)): (String, (BTreeSet<String>, BTreeSet<String>))| {
        taken.into_iter().map(move |option| format!("{command}.{option}"))
    };
    declared_fields().into_iter().flat_map(of).collect()
}

/// Adds the commands with their fields. Returns the commands that work.
fn commands(client: &mut Client, page: &mut String) -> BTreeSet<String> {
    let mut list = Builder::new();
    list.append(c"listCommands", 1i32).append(c"$db", "admin");
    let reply = client.command(&list.finish()).unwrap();
    let commands = reply.view().get("commands").and_then(|value| value.as_document()).unwrap();
    let fields = declared_fields();
    let (mut refused, mut works) = (Vec::new(), BTreeSet::new());
    let _ = write!(
        page,
        "\n## Commands\n\nThe server accepts a field of the last column if its value has no effect, such as null. It refuses other values (238).\n\n\
         | command | fields | refused with other values |\n|---|---|---|\n"
    );
    for command in commands {
        let help = command.value().as_document().and_then(|about| about.get("help"));
        if help.and_then(|help| help.as_str()).is_none_or(|help| {
            ["Not implemented", "refused", "Refused"].iter().any(|word| help.contains(word))
        }) {
            refused.push(command.name());
            continue;
        }
        works.insert(command.name().to_string());
        let (taken, not_done) = fields.get(command.name()).cloned().unwrap_or_default();
        let list = |names: &BTreeSet<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
        };
        let _ = writeln!(page, "| `{}` | {} | {} |", command.name(), list(&taken), list(&not_done));
    }
    let list: Vec<String> = refused.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(page, "\nRefused by name ({}): {}\n", list.len(), list.join(" "));
    works
}

/// Returns true if the server knows a name and refuses it as unsupported.
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
    out.append(FieldName::trusted(name), 1i32);
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
        out.begin_document(FieldName::trusted(name)).end();
    })
}

fn accumulator_probe(name: &str) -> DocumentBuf {
    pipeline_probe(|out| {
        out.begin_document(c"$group").append(c"_id", Value::Null).begin_document(c"a");
        out.begin_document(FieldName::trusted(name)).end().end().end();
    })
}

/// Returns the expression with no, one and empty named arguments. One of these passes the operator's argument checks
/// and reaches its refusal.
fn expression_probes(name: &str) -> Vec<DocumentBuf> {
    let argument = |value: Value<'static>| {
        pipeline_probe(|out| {
            out.begin_document(c"$project")
                .begin_document(c"a")
                .append(FieldName::trusted(name), value)
                .end()
                .end();
        })
    };
    let empty = base::bson::Document::EMPTY;
    vec![argument(Value::Document(empty)), argument(Value::String("textScore")), argument(Value::Int32(1))]
}

type Declared = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

/// Returns the fields of each command's handler: accepted ones, and refused ones with an effect. Reads the handlers'
/// sources and follows calls within a file or folder, and to `Parts::read`.
fn declared_fields() -> Declared {
    let folder = root().join("crates/server/src/commands");
    let mut declared = Declared::new();
    for kind in entries(&folder) {
        let commands = if kind.is_dir() { entries(&kind) } else { vec![kind] };
        commands.iter().for_each(|path| declared_in(path, &mut declared));
    }
    declared.insert("create".to_string(), options_of_create());
    declared
}

/// Returns the options of create, which the database reads: each arm of the match has one or several.
fn options_of_create() -> (BTreeSet<String>, BTreeSet<String>) {
    let text = std::fs::read_to_string(root().join("crates/database/src/catalog/options.rs")).unwrap();
    let arms = text.split("match name {").nth(1).unwrap_or_default();
    let arms = arms.split("_ => return Err").next().unwrap_or_default();
    let (mut taken, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for arm in arms.split("\n            \"").skip(1) {
        let (names, body) = arm.split_once("=>").unwrap_or_default();
        let names = format!("\"{names}");
        // The text of an error may also begin a line.
        let is_name = |name: &&str| name.chars().all(char::is_alphanumeric);
        let names = names.split('"').skip(1).step_by(2).filter(is_name).map(str::to_string);
        if body.contains("NotImplemented") { refused.extend(names) } else { taken.extend(names) }
    }
    taken.retain(|name| !refused.contains(name));
    (taken, refused)
}

/// Returns the sorted entries of a folder.
fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the source of a file without comments and tests, or of all files of a folder.
fn source(path: &Path) -> String {
    if path.is_dir() {
        return entries(path).iter().map(|file| source(file)).collect();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    product
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect()
}

fn declared_in(path: &Path, declared: &mut Declared) {
    let text = source(path);
    let functions = functions(&text);
    let rows = ["Row::read(", "Row::write(", "Row::admin("];
    for row in rows.iter().flat_map(|row| text.split(row).skip(1)) {
        // The table itself makes rows of unknown names.
        let Some((name, handler)) = row.trim_start().strip_prefix('"').and_then(|row| row.split_once('"'))
        else {
            continue;
        };
        let handler = handler.trim_start_matches(|c: char| !c.is_alphanumeric());
        let handler = name_at(handler.strip_prefix("call| ").unwrap_or(handler));
        let (mut taken, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        collect(handler, &functions, &mut seen, &mut taken, &mut refused);
        declared.insert(name.to_string(), (taken, refused));
    }
}

/// Returns the functions of a source with their bodies: `name`, or `Type::name` in an implementation.
fn functions(text: &str) -> BTreeMap<String, String> {
    let is_start = |at: &usize| text[..*at].ends_with([' ', '\n']);
    let starts: Vec<usize> = text.match_indices("fn ").map(|(at, _)| at).filter(is_start).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let mut functions = BTreeMap::new();
    for (start, end) in starts.iter().zip(ends) {
        let (before, part) = (&text[..*start], &text[start + "fn ".len()..end]);
        // A row may follow, which names its calls and requirements.
        let body = part.split("Row::").next().unwrap_or_default();
        let (name, body) = match implemented(before) {
            Some(owner) => {
                (format!("{owner}::{}", name_at(part)), body.replace("Self::", &format!("{owner}::")))
            }
            None => (name_at(part).to_string(), body.to_string()),
        };
        functions.entry(name).or_insert_with(String::new).push_str(&body);
    }
    functions
}

/// Returns the type whose implementation is open at the end of a text.
fn implemented(before: &str) -> Option<&str> {
    let block = before.rfind("\nimpl")?;
    if before.rfind("\n}").is_some_and(|end| end > block) {
        return None;
    }
    let head = before[block..].split('{').next()?;
    let head = head.rsplit(" for ").next()?;
    Some(name_at(head.get(head.find(char::is_uppercase)?..)?))
}

/// Returns the name at the start of a text.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
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
        let method_name = name_at(method);
        let place = if method_name == "refuse_unless_default" { &mut *refused } else { &mut *taken };
        match method_name {
            "wrong_type" | "peek" => {}
            "hint" | "collation" => drop(place.insert(method_name.to_string())),
            "array_filters" => drop(place.insert("arrayFilters".to_string())),
            _ => place.extend(argument(method[method_name.len()..].trim_start_matches('('), &body[..at])),
        }
    }
    for other in functions.keys().filter(|other| is_called(other, body)) {
        collect(other, functions, seen, taken, refused);
    }
}

/// Returns true if a body calls a function, passes it to `map`, or creates a value with it as a method.
fn is_called(function: &str, body: &str) -> bool {
    let Some((owner, name)) = function.split_once("::") else {
        return whole(function, body).any(|(before, after)| {
            after.starts_with('(') && !before.ends_with(['.', ':'])
                || after.starts_with(')') && before.ends_with("map(")
        });
    };
    whole(function, body).any(|(_, after)| after.starts_with('('))
        || whole(name, body).any(|(before, after)| before.ends_with('.') && after.starts_with('('))
        || whole(owner, body).any(|(_, after)| after.starts_with(" {"))
}

/// Returns the text before and after each place of a name. Longer names that contain it do not count.
fn whole<'a>(name: &'a str, text: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let places = text.match_indices(name).map(|(at, _)| (&text[..at], &text[at + name.len()..]));
    places.filter(move |(before, after)| !before.ends_with(is_part) && !after.starts_with(is_part))
}

/// Returns the field names in a call's argument: a literal, or each literal of the surrounding loop's list.
fn argument(argument: &str, before: &str) -> Vec<String> {
    let argument = argument.trim_start();
    if let Some(literal) = argument.strip_prefix('"') {
        return literal.split('"').next().map(str::to_string).into_iter().collect();
    }
    let variable = name_at(argument);
    let Some((_, list)) = before.rsplit_once(&format!("for {variable} in [")) else { return Vec::new() };
    list.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_string).collect()
}
