//! Tests of words, scores and searches without an index.

use super::tokens::{self, Options};
use super::{Language, TextQuery, TextSpec, Version};
use base::bson::{Builder, extended_json};
use std::collections::BTreeMap;

fn spec(weights: &[(&str, f64)], language: &str) -> TextSpec {
    TextSpec {
        version: Version::V3,
        weights: weights.iter().map(|(path, weight)| (path.to_string(), *weight)).collect(),
        wildcard: weights.is_empty(),
        default_language: Language::named(language, Version::V3).unwrap(),
        language_override: "language".to_string(),
    }
}

fn words(text: &str, language: &str, options: Options) -> Vec<String> {
    let language = Language::named(language, Version::V3).unwrap();
    let mut words = Vec::new();
    tokens::any(text, (language, Version::V3), options, &mut |word| {
        words.push(word.to_string());
        false
    });
    words
}

#[track_caller]
fn scores(spec: &TextSpec, document: &str, expected: &[(&str, f64)]) {
    let document = extended_json::parse(document).unwrap();
    let expected: BTreeMap<String, f64> =
        expected.iter().map(|(term, score)| (term.to_string(), *score)).collect();
    let found = spec.scores(document.view()).unwrap();
    let found: Vec<(String, f64)> = found.iter().map(|(term, score)| (term.to_string(), score)).collect();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
}

/// Whether a search matches a document, by a term and the further conditions.
fn finds(spec: &TextSpec, query: &str, document: &str) -> bool {
    let wrapped = extended_json::parse(&format!("{{$text: {query}}}")).unwrap();
    let search = TextQuery::parse(&wrapped.view().first().unwrap()).unwrap().by(spec).unwrap();
    let document = extended_json::parse(document).unwrap();
    let scores = spec.scores(document.view()).unwrap();
    scores.iter().any(|(term, _)| search.terms.iter().any(|search_term| search_term == term))
        && search.matches(document.view(), spec).unwrap()
}

#[test]
fn words_are_stems_without_case_and_diacritics() {
    let indexed = |text, language| words(text, language, Options::INDEXED);
    assert_eq!(indexed("The Quick-Brown foxes, jumping!", "en"), ["quick", "brown", "fox", "jump"]);
    assert_eq!(indexed("don't can't we'll dogs' o'neil", "english"), ["dog", "o'neil"]);
    assert_eq!(indexed("l'aube d’été", "french"), ["aub", "ete"]);
    assert_eq!(indexed("Freqüentemente à Noite", "portuguese"), ["frequent", "noit"]);
    assert_eq!(indexed("IŞIK İstanbul", "turkish"), ["ısık", "istanbul"]);
    assert_eq!(
        indexed("the_end the. END…ing 日本、語", "none"),
        ["the_end", "the", "end", "ing", "日本", "語"]
    );
    let sensitive = Options { keeps_case: true, keeps_diacritics: true, ..Options::INDEXED };
    assert_eq!(words("The Vôo", "none", sensitive), ["The", "Vôo"]);
}

#[test]
fn scores_count_how_often_and_among_how_many() {
    scores(
        &spec(&[("x", 10.0), ("y", 1.0)], "english"),
        "{x: 'az b x', y: 'c d m'}",
        &[
            ("az", 6.666666666666666),
            ("b", 6.666666666666666),
            ("x", 6.666666666666666),
            ("c", 0.6666666666666666),
            ("d", 0.6666666666666666),
            ("m", 0.6666666666666666),
        ],
    );
    // A string of the word alone scores more. Each repetition scores half of the previous one.
    scores(&spec(&[("a", 1.0)], "none"), "{a: 'Cat'}", &[("cat", 1.1)]);
    scores(&spec(&[("a", 1.0)], "none"), "{a: 'cat cat cat'}", &[("cat", 1.75)]);
    scores(&spec(&[("a.b", 1.0)], "none"), "{a: [{b: 'x'}, {b: ['x', ['y']]}, {c: 'z'}]}", &[("x", 2.2)]);
    scores(
        &spec(&[], "none"),
        "{a: 'x', b: {c: ['y', {d: 'z'}]}, language: 'en'}",
        &[("x", 1.1), ("y", 1.1), ("z", 1.1)],
    );
}

#[test]
fn cached_words_have_equal_stems() {
    // More words than the cache holds, several times, in two languages with different stems.
    let all: Vec<String> = (0..20_000).map(|number| format!("{number}ing the {number}Tions")).collect();
    let text = all.join(" ");
    let english = words(&text, "english", Options::INDEXED);
    let alone: Vec<String> = all
        .iter()
        .flat_map(|part| words(part, "english", Options { keeps_case: true, ..Options::INDEXED }))
        .collect();
    assert_eq!(english.len(), 40_000);
    assert_eq!(english, alone.iter().map(|word| word.to_lowercase()).collect::<Vec<_>>());
    let none = words(&text, "none", Options::INDEXED);
    assert_eq!(none.get(..3), Some(&["0ing".to_string(), "the".to_string(), "0tions".to_string()][..]));
    assert_eq!(words(&text, "english", Options::INDEXED), english);
    let long = "ba".repeat(20);
    assert_eq!(words(&format!("{long} {long}s"), "english", Options::INDEXED), [long.clone(), long]);
}

#[test]
fn words_of_long_texts_are_counted_once_each() {
    let text = "a b c d e ".repeat(1000) + "a";
    let count = 5001.0;
    let score = |times: f64| 2.0 * (0.5 * times / count + 0.5);
    scores(
        &spec(&[("t", 1.0)], "none"),
        &format!("{{t: '{text}'}}"),
        &[
            ("a", score(1001.0)),
            ("b", score(1000.0)),
            ("c", score(1000.0)),
            ("d", score(1000.0)),
            ("e", score(1000.0)),
        ],
    );
}

#[test]
fn parts_of_a_document_have_languages_of_their_own() {
    let spec = spec(&[("a", 1.0), ("b.c", 1.0)], "english");
    scores(&spec, "{a: 'testing', language: 'es'}", &[("testing", 1.1)]);
    scores(&spec, "{a: 'testing', b: {c: 'testing', language: 'none'}}", &[("test", 1.0), ("testing", 1.1)]);
    let wrong = |document: &str| {
        spec.scores(extended_json::parse(document).unwrap().view()).unwrap_err().code().number()
    };
    assert_eq!((wrong("{language: 1}"), wrong("{language: 'klingon'}")), (17261, 17262));
}

#[test]
fn searches_take_terms_phrases_and_negations() {
    let spec = spec(&[("a", 1.0)], "english");
    let fox = "{a: 'The Quick Brown Fox Jumps Over The Lazy Dog'}";
    let found = |search: &str| finds(&spec, &format!("{{$search: '{search}'}}"), fox);
    assert!(
        found("cat jumped")
            && found("\"brown fox\"")
            && found("\"rown fo\" fox")
            && found("fox -\"fox brown\"")
    );
    assert!(!found("cat") && !found("the") && !found("fox -dogs") && !found("\"brown dog\""));
    // A dash negates only after white space. The negation ends at white space.
    assert!(!found("fox -cat-dog") && found("fox- dog") && !found("-fox dog -lazy") && found("fox - dog"));
    let cased = |search: &str| finds(&spec, &format!("{{$search: '{search}', $caseSensitive: true}}"), fox);
    assert!(cased("The quick Brown") && cased("Jumped") && !cased("quick") && !cased("\"over the\""));
}

#[test]
fn explain_has_the_search_terms() {
    let wrapped = extended_json::parse("{$text: {$search: '\"a\" -b -\"c\"'}}").unwrap();
    let query = TextQuery::parse(&wrapped.view().first().unwrap()).unwrap();
    let mut out = Builder::new();
    query.by(&spec(&[("a", 1.0)], "none")).unwrap().describe(&mut out);
    let expected = "{terms: ['a'], negatedTerms: ['b'], phrases: ['a'], negatedPhrases: ['c']}";
    assert_eq!(out.finish(), extended_json::parse(expected).unwrap());
}
