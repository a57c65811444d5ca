//! Files that are right, and what is said about those that are wrong.

use super::fields::Source;
use super::file::Workload;
use mongodb::bson::Bson;

fn read(text: &str) -> crate::Result<Workload> {
    Workload::read(Source { name: "w.toml", text }, 7, 1.0)
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
fn documents_come_out_as_described_and_the_same_again() {
    let workload = read(RIGHT).unwrap();
    let document = workload.template.document(3);
    assert_eq!(document, workload.template.document(3));
    assert_ne!(document.get("ref"), workload.template.document(4).get("ref"));
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
    let other = Workload::read(Source { name: "w.toml", text: RIGHT }, 8, 1.0).unwrap();
    assert_ne!(other.template.document(3), read(RIGHT).unwrap().template.document(3));
}

#[test]
fn wrong_files_are_told_by_line_and_field() {
    let after = |text: &str| refused(&format!("documents = 1\n[document]\na = 1\n{text}"));
    assert_eq!(
        after("[[operation]]\nkind = \"find\"\nwieght = 2\n"),
        "w.toml, line 6: the workload, 'operation' 1: 'wieght' is not known; known are kind, weight, name, filter, \
         sort, projection, limit"
    );
    assert!(
        after("[[operation]]\nkind = \"peek\"\n")
            .starts_with("w.toml, line 5: the workload, 'operation' 1, 'kind'")
    );
    assert!(after("[[operation]]\nkind = 1\n").ends_with("a string is wanted, not integer"));
    assert!(after("[[operation]]\nkind = \"update\"\n").contains("'update' is missing"));
    assert!(after("[[operation]]\nkind = \"insert\"\nfilter = {}\n").contains("'filter' is not known"));
    assert!(
        after("[keys]\ndistribution = \"odd\"\n[[operation]]\nkind = \"find\"\n")
            .contains("'odd' is no distribution")
    );
    assert!(
        after("b = { gen = \"words\" }\n[[operation]]\nkind = \"find\"\n")
            .contains("line 4: the workload, 'document', 'b': 'bytes'")
    );
    assert!(
        after("b = { gen = \"int\", min = 3, max = 1 }\n[[operation]]\nkind=\"find\"\n")
            .contains("lower limit")
    );
    assert!(after("b = { gen = \"key\" }\n[[operation]]\nkind = \"find\"\n").contains("is for operations"));
    let keyed = after("[[operation]]\nkind = \"find\"\nfilter = { c = { gen = \"key\", field = \"c\" } }\n");
    assert!(keyed.contains("no field 'c'"), "{keyed}");
    assert!(refused("a = [1\n").starts_with("w.toml, line"));
    assert!(refused("documents = 1\n").contains("'document' is missing"));
    assert!(refused("[document]\na = 1\n[[operation]]\nkind = \"find\"\n").contains("nothing to work on"));
}

#[test]
fn nesting_ends() {
    let deep = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    assert!(refused(&format!("[document]\na = {deep}\n")).contains("too deeply"));
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
