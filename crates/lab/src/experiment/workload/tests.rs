//! Valid workload files, and the errors of invalid ones.

use super::OWN;
use super::file::{Kind, Size, Source, Workload};
use mongodb::bson::Bson;

fn read(text: &str) -> crate::Result<Workload> {
    Workload::read(Source { name: "w.toml", text }, Size { seed: 7, scale: 1.0 })
}

fn refused(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

const RIGHT: &str = r#"
title = "Orders"
documents = 100
connections = [1, 4]
operations = 50
indexes = [{ keys = { customer = 1, created = -1 } }, { keys = { email = 1 }, unique = true }]

[keys]
distribution = "latest"

[document]
number = { gen = "sequence", start = 10, step = 5 }
email = { gen = "sequence", prefix = "u" }
customer = { gen = "zipf", below = 20 }
state = { gen = "choice", of = ["open", "paid"], weights = [3, 1] }
created = { gen = "date", from = 2024-01-01, to = 2024-12-31T12:00:00Z }
address = { street = { gen = "words", bytes = 30 }, zip = "12345" }
tags = { gen = "array", of = { gen = "int", min = 1, max = 3 }, min = 0, max = 4 }
seen = { gen = "bool", share = 0.25 }
price = { gen = "float", min = 1, max = 2.5 }
token = { gen = "binary", bytes = 9 }
ref = { gen = "objectid" }
pair = [1, "two"]

[[operation]]
kind = "find"
weight = 3
filter = { email = { gen = "key", field = "email" } }
limit = 1

[[operation]]
kind = "update"
update = { "$inc" = { hits = 1 } }

[[operation]]
kind = "aggregate"
pipeline = [{ "$match" = { customer = { gen = "int", min = 0, max = 19 } } }, { "$count" = "n" }]

[[operation]]
kind = "insert"
"#;

#[test]
fn documents_match_the_template_and_repeat() {
    let workload = read(RIGHT).unwrap();
    let document = workload.sections[0].template.document(3);
    assert_eq!(document, workload.sections[0].template.document(3));
    assert_ne!(document.get("ref"), workload.sections[0].template.document(4).get("ref"));
    let names: Vec<&String> = document.keys().collect();
    assert_eq!(names[..4], ["_id", "number", "email", "customer"], "in the order of the file");
    assert_eq!(document.get_i64("_id").unwrap(), 3);
    assert_eq!(document.get_i64("number").unwrap(), 25);
    assert_eq!(document.get_str("email").unwrap(), "u3");
    assert!((0..20).contains(&document.get_i64("customer").unwrap()));
    let address = document.get_document("address").unwrap();
    assert_eq!((address.get_str("street").unwrap().len(), address.get_str("zip").unwrap()), (30, "12345"));
    assert!(document.get_array("tags").unwrap().len() <= 4);
    assert_eq!(document.get_binary_generic("token").unwrap().len(), 9);
    assert_eq!(document.get_array("pair").unwrap(), &vec![Bson::Int32(1), Bson::from("two")]);
    let created = document.get_datetime("created").unwrap().timestamp_millis();
    assert!((1_704_067_200_000..=1_735_646_400_000).contains(&created));
}

#[test]
fn another_seed_gives_other_documents() {
    let other = Workload::read(Source { name: "w.toml", text: RIGHT }, Size { seed: 8, scale: 1.0 }).unwrap();
    assert_ne!(other.sections[0].template.document(3), read(RIGHT).unwrap().sections[0].template.document(3));
}

#[test]
fn errors_name_line_and_field() {
    let after = |text: &str| refused(&format!("documents = 1\n[document]\na = 1\n{text}"));
    for (text, line, message) in [
        ("[[operation]]\nkind = \"find\"\nwieght = 2\n", "line 6, 'wieght = 2'", "unknown field `wieght`"),
        ("[[operation]]\nkind = \"peek\"\n", "line 5, 'kind = \"peek\"'", "unknown variant `peek`"),
        ("[[operation]]\nkind = 1\n", "line 5, 'kind = 1'", "wanted string or table"),
        ("[[operation]]\nkind = \"find\"\nlimit = 0\n", "line 6, 'limit = 0'", "expected a nonzero u64"),
        ("[[operation]]\nkind = \"update\"\n", "line 4", "'update' is missing"),
        ("[[operation]]\nkind = \"insert\"\nfilter = {}\n", "line 4", "insert has no field 'filter'"),
        (
            "[[operation]]\nname = \"two\"\nsteps = [\n{ kind = \"insert\" },\n{ kind = \"find\", weight = 2 }]\n",
            "line 4",
            "a step has no field 'weight'",
        ),
        (
            "[keys]\ndistribution = \"odd\"\n[[operation]]\nkind = \"find\"\n",
            "line 5",
            "unknown variant `odd`",
        ),
        (
            "b = { gen = \"words\" }\n[[operation]]\nkind = \"find\"\n",
            "line 4, 'b = ",
            "'bytes', or 'min' and 'max'",
        ),
        (
            "b = { gen = \"wrods\" }\n[[operation]]\nkind = \"find\"\n",
            "line 4, 'b = ",
            "unknown variant `wrods`",
        ),
        (
            "b = { gen = \"int\", min = 3, max = 1 }\n[[operation]]\nkind=\"find\"\n",
            "line 4, 'b = ",
            "the lower limit is above",
        ),
        (
            "b = { gen = \"key\", field = \"c\" }\nc = 1\n[[operation]]\nkind = \"find\"\n",
            "line 2, '[document]'",
            "'b' takes a key from a field that is not defined before it",
        ),
        (
            "[[operation]]\nkind = \"find\"\n[[operation]]\nkind = \"find\"\nfilter = { c = { gen = \"key\", field = \"c\" } }\n",
            "line 6",
            "no field 'c'",
        ),
        ("b = inf\n[[operation]]\nkind = \"find\"\n", "line 4, 'b = inf'", "must be finite"),
    ] {
        let reported = after(text);
        assert!(
            reported.starts_with(&format!("w.toml, {line}")) && reported.contains(message),
            "{text}: {reported}"
        );
    }
    assert!(refused("a = [1\n").starts_with("w.toml, line"));
    assert!(refused("documents = 1\n").contains("'operation' is missing"));
    assert!(refused("[document]\na = 1\n[[operation]]\nkind = \"find\"\n").contains(
        "the collection would \
     be empty"
    ));
    assert!(refused("documents = 1\n[[operation]]\nkind = \"find\"\n").contains("no 'document'"));
}

#[test]
fn nesting_ends() {
    let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
    assert!(refused(&format!("[document]\na = {deep}\n")).contains("recurs"));
}

#[test]
fn examples_are_right() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lab");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(files.len() >= 2);
    for path in files.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        super::Run::open(path).unwrap();
    }
}

#[test]
fn the_labs_own_files_are_right_at_every_size() {
    for (name, text) in OWN {
        for scale in [0.0005, 1.0] {
            let workload = Workload::read(Source { name, text }, Size { seed: 7, scale }).unwrap();
            assert!(
                !workload.title.is_empty() && !workload.about.is_empty() && !workload.sections.is_empty()
            );
        }
    }
}

#[test]
fn write_concerns_are_all_twelve() {
    let (_, text) = OWN.iter().find(|(name, _)| *name == "write-concern").unwrap();
    let workload = read(text).unwrap();
    let operations = &workload.sections[0].kinds;
    let names: Vec<&str> = operations.iter().map(|operation| operation.name()).collect();
    assert_eq!((names.len(), names[0], names[10]), (12, "w 0", "w majority, j true"));
    let concern = operations[8].concern.as_ref().unwrap();
    assert_eq!(concern.document, mongodb::bson::doc! { "w": 2, "j": false });
}

#[test]
fn an_error_has_the_fields_of_its_problem() {
    let (_, text) = OWN.iter().find(|(name, _)| *name == "error-tracker").unwrap();
    let section = &read(text).unwrap().sections[0];
    let problem = section.template.document(12);
    assert_eq!(problem.get_str("api_key").unwrap(), "key-of-2");
    let words: Vec<&str> = problem.get_array("words").unwrap().iter().filter_map(Bson::as_str).collect();
    assert_eq!(problem.get_str("message").unwrap(), format!("undefined method for {}", words.join(" ")));
    assert_ne!(problem.get("fingerprint"), section.template.document(22).get("fingerprint"));
    let kinds: Vec<Kind> = section.kinds[0].steps.iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [Kind::Find, Kind::FindAndModify, Kind::Insert, Kind::Update, Kind::Update]);
    assert_eq!(section.kinds[0].statements.len(), 5, "as many statements as commands");
}

#[test]
fn documents_have_the_stated_size() {
    for (name, at, low, high) in [
        ("inserts", 0, 450, 550),
        ("write-concern", 0, 220, 260),
        ("micro", 0, 980, 1060),
        ("working-set", 0, 2300, 2500),
    ] {
        let (_, text) = OWN.iter().find(|(known, _)| *known == name).unwrap();
        let bytes = read(text).unwrap().sections[at].template.document(5).to_vec().unwrap().len();
        assert!((low..high).contains(&bytes), "{name}: {bytes}");
    }
}
