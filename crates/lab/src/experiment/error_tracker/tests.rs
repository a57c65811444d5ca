//! Documents and findings of `error-tracker`.

use super::*;
use mongodb::bson::Bson;
use std::collections::HashSet;
use std::time::Duration;

#[test]
fn one_error_in_ten_is_a_new_problem_and_the_others_repeat_known_ones() {
    let mut known = HashSet::new();
    for number in 0..5000 {
        let error = Occurrence::of(7, number);
        let fingerprint = error.fingerprint().to_string();
        assert_eq!(known.insert(fingerprint), error.is_new(), "{number}");
    }
    assert_eq!(known.len(), 500);
}

#[test]
fn notices_are_of_several_kilobytes_and_come_again() {
    for number in [0, 1, 19_999] {
        let notice = Occurrence::of(7, number).notice(&Bson::Int32(1));
        let bytes = notice.to_vec().unwrap().len();
        assert!((4000..6500).contains(&bytes), "{bytes}");
        assert_eq!(notice, Occurrence::of(7, number).notice(&Bson::Int32(1)));
    }
}

#[test]
fn both_searches_ask_for_words_that_messages_have() {
    let error = Occurrence::of(7, 0).counted();
    let inserted = error.get_document("$setOnInsert").unwrap();
    let message = inserted.get_str("message").unwrap();
    let words = inserted.get_array("words").unwrap();
    assert!(words.iter().all(|word| message.contains(word.as_str().unwrap())), "{message} {words:?}");
    assert_eq!(documents::by_regex("x").get_array("$or").unwrap().len(), 5);
}

fn section(slower: f64) -> Section {
    let mut rows = Vec::new();
    for block in 1..=8 {
        for (case, last) in [(CREATES, 1.0), (SEARCHES, slower), (INDEXED, 1.0)] {
            let mut row = Row::new("memory", case, 8);
            (row.x, row.operations) = (Some(f64::from(block) * 1000.0), 100);
            let micros = 100.0 * (1.0 + (last - 1.0) * f64::from(block) / 8.0);
            (0..100).for_each(|_| row.latency.record(Duration::from_micros(micros as u64)));
            rows.push(row);
        }
    }
    let (id, title, about) = ("errors".to_string(), "Errors".to_string(), String::new());
    Section { id, experiment: String::new(), title, about, kind: Kind::Growth, base: None, rows }
}

#[test]
fn growth_is_told_from_the_first_quarter_to_the_last() {
    let told = findings(&section(9.0));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("memory: p95 from the first quarter of 8,000 errors to the last: creates from")
    );
    assert!(told[1].contains("stays flat"));
    assert_eq!(findings(&section(1.0)).len(), 1);
}

#[test]
fn too_few_blocks_make_no_quarters() {
    let mut few = section(2.0);
    few.rows.truncate(6);
    assert!(findings(&few).is_empty());
}
