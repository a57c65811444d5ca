//! Random mutations of requests. A user with all rights on some collections neither reads nor
//! changes another collection.

use super::samples::SAMPLES;
use super::{Client, guarded, parse, system};
use base::bson::{Builder, Document, DocumentBuf, FieldName, Value};
use base::random::Random;

/// A marker that only the system may read.
const MARK: &str = "what nobody is to see";

/// Names that mutations insert.
const NAMES: [&str; 11] =
    ["secret", "secret", "secret", "d.secret", "c", "d.c", "o", "e.x", "d", "e", "system.users"];

/// Stages that read or write elsewhere, inserted into pipelines.
const STAGES: [&str; 8] = [
    r#"{$lookup: {from: "secret", pipeline: [], as: "s"}}"#,
    r#"{$unionWith: "secret"}"#,
    r#"{$unionWith: {coll: "c", pipeline: [{$unionWith: "secret"}]}}"#,
    r#"{$graphLookup: {from: "secret", startWith: 1, connectFromField: "_id", connectToField: "_id", as: "s"}}"#,
    r#"{$facet: {f: [{$lookup: {from: "secret", pipeline: [], as: "s"}}]}}"#,
    r#"{$out: "secret"}"#,
    r#"{$merge: {into: {db: "d", coll: "secret"}}}"#,
    r#"{$lookup: {from: "secret", from: "c", localField: "_id", foreignField: "_id", as: "s"}}"#,
];

struct Mutator {
    random: Random,
}

impl Mutator {
    /// Returns true once in `of` calls on average.
    fn chance(&self, of: u64) -> bool {
        self.random.draw().is_multiple_of(of)
    }

    fn pick<'a, T>(&self, list: &'a [T]) -> &'a T {
        &list[(self.random.draw() % list.len() as u64) as usize]
    }

    /// Copies the document with some names changed, duplicated or removed.
    fn bend(&self, document: Document<'_>, out: &mut Builder) {
        for element in document {
            let name = element.name();
            if name == "$db" {
                out.append_element(&element);
                continue;
            }
            if self.chance(40) {
                out.append(FieldName::trusted(name), *self.pick(&NAMES));
            }
            match element.value() {
                Value::String(_) if self.chance(3) => {
                    _ = out.append(FieldName::trusted(name), *self.pick(&NAMES))
                }
                Value::Document(inner) => {
                    self.bend(inner, out.begin_document(FieldName::trusted(name)));
                    out.end();
                }
                Value::Array(inner) if name == "pipeline" => {
                    out.begin_array(FieldName::trusted(name));
                    for value in inner.iter() {
                        out.push(value);
                    }
                    if self.chance(2) {
                        let stage: &&str = self.pick(&STAGES);
                        out.push(&parse(stage));
                    }
                    out.end();
                }
                Value::Array(inner) => {
                    out.begin_array(FieldName::trusted(name));
                    for value in inner.iter() {
                        match value {
                            Value::Document(document) => {
                                self.bend(document, out.push_document());
                                out.end();
                            }
                            Value::String(_) if self.chance(3) => _ = out.push(*self.pick(&NAMES)),
                            value => _ = out.push(value),
                        }
                    }
                    out.end();
                }
                _ if self.chance(20) => {}
                _ => _ = out.append_element(&element),
            }
            if self.chance(40) {
                out.append_element(&element);
            }
        }
    }

    fn request(&self) -> DocumentBuf {
        let sample = parse(self.pick(SAMPLES).1);
        let mut out = Builder::new();
        if self.chance(8) {
            // Inside commands that contain other commands.
            out.begin_document(c"explain");
            self.bend(sample.view(), &mut out);
            out.end().append(c"$db", "d");
        } else {
            self.bend(sample.view(), &mut out);
        }
        out.finish()
    }
}

#[test]
fn random_commands_respect_privileges() {
    let server = guarded();
    system(&server, &format!(r#"{{insert: "secret", documents: [{{_id: 1, text: "{MARK}"}}], $db: "d"}}"#));
    system(&server, r#"{createIndexes: "secret", indexes: [{key: {text: 1}, name: "text"}], $db: "d"}"#);
    let privileges: Vec<String> = ["d c", "d o", "d n", "d v", "e "]
        .iter()
        .map(|namespace| {
            let (database, name) = namespace.split_once(' ').unwrap();
            format!(r#"{{resource: {{db: "{database}", collection: "{name}"}}, actions: ["anyAction"]}}"#)
        })
        .collect();
    system(
        &server,
        &format!(
            r#"{{createRole: "some", privileges: [{}], roles: [], $db: "admin"}}"#,
            privileges.join(", ")
        ),
    );
    let mut client = Client::user(&server, "one", &["some@admin"]);
    let before = [
        r#"{find: "secret", $db: "d"}"#,
        r#"{listIndexes: "secret", $db: "d"}"#,
        r#"{listCollections: 1, filter: {name: "secret"}, $db: "d"}"#,
        r#"{find: "system.users", $db: "admin"}"#,
        r#"{find: "system.roles", $db: "admin"}"#,
    ];
    let look = || before.map(|ask| system(&server, ask).view().get("cursor").unwrap().to_string());
    let seen = look();
    let (mut worked, mut refused) = (0, 0);
    for number in 0..20_000 {
        let request = Mutator { random: Random::new(number) }.request();
        let reply = client.run(request.view());
        let text = reply.view().to_string();
        assert!(!text.contains(MARK), "{number}: {} => {text}", request.view());
        match reply.view().get("code").and_then(|code| code.as_i64()) {
            None => worked += 1,
            Some(13) => refused += 1,
            Some(_) => {}
        }
        if number % 200 == 0 {
            system(
                &server,
                r#"{update: "c", updates: [{q: {_id: 1}, u: {_id: 1, a: 1}, upsert: true}], $db: "d"}"#,
            );
            assert_eq!(look(), seen, "{number}: {}", request.view());
        }
    }
    assert_eq!(look(), seen);
    assert!(worked > 500 && refused > 500, "{worked} worked, {refused} were refused");
}
