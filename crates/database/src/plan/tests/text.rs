//! Compares text searches in an index with a scan that scores every document.

use crate::scope::Scope;

use super::generate::Random;
use crate::database::Database;
use crate::index::{IndexSpec, TextIndex};
use crate::upkeep::validate::Depth;
use crate::{InsertRequest, ManualClock, Operation, Read};
use base::Namespace;
use base::bson::{Document, DocumentBuf, extended_json};
use query::matcher::Matcher;
use query::text::Search;
use query::{Context, DocumentMetadata, MetaKind, MetaKinds};
use std::sync::Arc;
use storage::MemoryEngine;

const WORDS: &[&str] =
    &["run", "Running", "the", "café", "CAFE", "naïve", "x", "don't", "ship-shape", "ocean", "Oceans", "été"];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

fn text(random: &mut Random) -> String {
    let words = 1 + random.below(5);
    (0..words).map(|_| pick(random, WORDS)).collect::<Vec<_>>().join(pick(random, &[" ", ", ", "-"]))
}

fn document(random: &mut Random, id: u64) -> DocumentBuf {
    let language = match random.below(4) {
        0 => pick(random, &[", language: 'none'", ", language: 'fr'"]),
        _ => "",
    };
    let (a, c, d) = (text(random), text(random), text(random));
    let b = match random.below(3) {
        0 => format!("{{c: \"{c}\"{language}}}"),
        1 => format!("[{{c: \"{c}\"}}, {{c: \"{d}\"{language}}}]"),
        _ => "7".to_string(),
    };
    let outer = if random.chance(20) { ", language: 'spanish'" } else { "" };
    let z = pick(
        random,
        &["", ", z: null", ", z: 1", ", z: 2.0", ", z: NumberDecimal('2')", ", z: 'run'", ", z: {y: 1}"],
    );
    extended_json::parse(&format!("{{_id: {id}, p: {}, a: \"{a}\", b: {b}{z}{outer}}}", random.below(2)))
        .unwrap()
}

fn index(random: &mut Random) -> String {
    let prefix = if random.chance(50) { "p: 1, " } else { "" };
    let suffix = if random.chance(30) { ", z: -1" } else { "" };
    let fields = pick(random, &["a: 'text'", "a: 'text', 'b.c': 'text'", "'$**': 'text'"]);
    let weights = pick(random, &["", ", weights: {a: 7}"]);
    let language = pick(random, &["english", "none", "french"]);
    let version = 1 + random.below(3);
    format!(
        "{{key: {{{prefix}{fields}{suffix}}}, name: 't'{weights}, default_language: '{language}', \
         textIndexVersion: {version}}}"
    )
}

fn search(random: &mut Random) -> String {
    let part = |random: &mut Random| {
        let sign = if random.chance(20) { "-" } else { "" };
        match random.chance(25) {
            true => format!("{sign}\\\"{} {}\\\"", pick(random, WORDS), pick(random, WORDS)),
            false => format!("{sign}{}", pick(random, WORDS)),
        }
    };
    let parts: Vec<String> = (0..1 + random.below(4)).map(|_| part(random)).collect();
    let (case, diacritics) = (random.chance(25), random.chance(25));
    format!("{{$search: \"{}\", $caseSensitive: {case}, $diacriticSensitive: {diacritics}}}", parts.join(" "))
}

/// Returns a condition on a possible field behind the text.
fn behind(random: &mut Random) -> &'static str {
    match random.below(3) {
        0 => pick(
            random,
            &[
                ", z: 2",
                ", z: {$gt: 1}",
                ", z: {$lte: 2, $ne: 1}",
                ", z: {$in: [1, /^r/]}",
                ", z: {$in: [null, 2]}",
                ", z: null",
                ", z: {$exists: false}",
                ", z: /un/",
                ", z: {y: 1}",
                ", z: {$type: 'number'}",
                ", z: {$mod: [2, 0]}",
            ],
        ),
        _ => "",
    }
}

/// Returns a document's score for a search, computed from the document alone.
fn score(document: Document<'_>, text: &TextIndex, search: &Search) -> Option<f64> {
    let scores = text.spec.scores(document).unwrap();
    let of = |word: &String| scores.iter().find(|(term, _)| term == word).map(|(_, score)| score);
    let found: Vec<f64> = search.terms.iter().filter_map(of).collect();
    let matches = !found.is_empty() && search.matches(document, &text.spec).unwrap();
    matches.then(|| found.into_iter().sum())
}

#[test]
fn a_text_index_equals_a_scan() {
    let (namespace, context) = (Namespace::parse("test.c").unwrap(), Arc::new(Context::for_tests()));
    let (mut searched, mut answered) = (0, 0);
    // A world takes about five times as long as in the tests of other plans.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, seeds) =
        (number("PLAN_FROM").unwrap_or(0), number("PLAN_SEEDS").map_or(150, |seeds| seeds / 5));
    for seed in from..from + seeds {
        let mut random = Random::new(seed);
        let database =
            Database::open(Arc::new(MemoryEngine::new()), Arc::new(ManualClock::new(0)), 7).unwrap();
        let operation = Arc::new(Operation::new(1));
        let index = index(&mut random);
        let spec =
            IndexSpec::parse(extended_json::parse(&index).unwrap().view(), &namespace, &context).unwrap();
        let text = spec.text.clone().unwrap();
        // Builds the index before some documents and after others.
        let (count, built) = (random.below(30), random.below(30));
        for id in 0..=count {
            if id == built.min(count) {
                database.create_indexes(&operation, &namespace, [spec.clone()], &context).unwrap();
            }
            let document = document(&mut random, id);
            let insert = InsertRequest { document: document.view(), bypass_validation: false };
            database.insert(&Scope::new(&operation, &namespace, &context), insert).unwrap();
        }
        let view = database.view();
        let collection = view.catalog.get(&namespace).unwrap().clone();
        let read = |filter: &str| {
            let matcher =
                Matcher::parse_query(extended_json::parse(filter).unwrap().view(), &context).unwrap();
            let metadata = MetaKinds::from(MetaKind::TextScore);
            Read { metadata, ..Read::new(Arc::new(matcher)) }
        };
        let run = |read: Read| {
            let mut stream = database.read(&operation, &view, &collection, read, &context).unwrap();
            let mut found: Vec<(u64, f64)> = Vec::new();
            while let Some(record) = stream.next().unwrap() {
                let score =
                    record.metadata.as_deref().and_then(|metadata: &DocumentMetadata| metadata.text_score);
                found.push((record.record_id, score.unwrap_or_default()));
            }
            found.sort_by_key(|(id, _)| *id);
            found
        };
        for _ in 0..20 {
            let query = search(&mut random);
            let others = format!("p: {}{}", random.below(2), behind(&mut random));
            let filter = format!("{{$text: {query}, {others}}}");
            let with_scores = run(read(&filter));
            let without = run(Read { metadata: MetaKinds::default(), ..read(&filter) });
            let matcher = read(&filter).matcher;
            let search = matcher.text().unwrap().unwrap().by(&text.spec).unwrap();
            let mut expected = Vec::new();
            let mut all = database
                .read(&operation, &view, &collection, read(&format!("{{{others}}}")), &context)
                .unwrap();
            while let Some(record) = all.next().unwrap() {
                expected.extend(
                    score(record.document.view(), &text, &search).map(|score| (record.record_id, score)),
                );
            }
            assert_eq!(with_scores, expected, "seed {seed}: {index} {filter}");
            let ids = |found: &[(u64, f64)]| found.iter().map(|(id, _)| *id).collect::<Vec<_>>();
            assert_eq!(ids(&without), ids(&expected), "seed {seed}: {index} {filter}");
            searched += 1;
            answered += usize::from(!expected.is_empty());
        }
        let found = database.validate(&namespace, Depth::Full, &context).unwrap();
        assert!(found.is_valid(), "{index}");
    }
    assert!(answered * 4 > searched, "{answered} of {searched} searches found anything");
}
