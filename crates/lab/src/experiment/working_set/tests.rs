//! Documents, keys and findings of `working-set`.

use super::*;
use crate::result::Section;
use std::time::Duration;

fn shared() -> Arc<Shared> {
    Arc::new(Shared { seed: 3, text: Text::new(3), ..Shared::default() })
}

fn row(target: &str, case: &str, size: f64, micros: u64, misses: Option<f64>) -> Row {
    let mut row = Row::new(target, case, 1);
    (row.x, row.operations) = (Some(size), 100);
    (0..100).for_each(|_| row.latency.record(Duration::from_micros(micros)));
    row.extra.extend(misses.map(|misses| (cache::MISSES.to_string(), misses)));
    row.extra.insert(cache::STORAGE.to_string(), size * 2.4e-3);
    row
}

fn section(rows: Vec<Row>) -> Section {
    let (id, title, about) = ("gets".to_string(), "Gets".to_string(), String::new());
    Section { id, experiment: String::new(), title, about, kind: Kind::Growth, base: None, rows }
}

#[test]
fn documents_are_of_about_2400_bytes_and_come_again() {
    let shared = shared();
    for number in [0, 99_999, 1 << 40] {
        let document = Record::of(&shared, number).document();
        assert!((2350..2450).contains(&document.to_vec().unwrap().len()));
        assert_eq!(document, Record::of(&shared, number).document());
    }
    assert_ne!(Record::of(&shared, 1).body, Record::of(&shared, 2).body);
}

#[test]
fn ranks_have_places_of_their_own_among_all() {
    for size in [1, 7, 1000, 100_000] {
        let mut places: Vec<u64> = (0..size).map(|rank| scattered(rank, size)).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(0..size), "{size}");
    }
}

#[test]
fn a_working_set_stops_fitting_where_gets_slow_down_and_miss() {
    let told = findings(
        &section(vec![
            row("disk", "focus 1 %", 1e5, 50, Some(0.0)),
            row("disk", "focus 1 %", 1e6, 55, Some(1.0)),
            row("disk", "focus 100 %", 1e5, 50, Some(0.0)),
            row("disk", "focus 100 %", 1e6, 500, Some(90.0)),
        ]),
        |_| false,
    );
    assert_eq!(told.len(), 1);
    assert!(
        told[0].starts_with("disk: with the focus on 100 % the working set stopped fitting between"),
        "{told:?}"
    );
    assert!(told[0].contains("90") && !told[0].contains("focus on 1 %"), "{told:?}");
}

#[test]
fn slower_without_misses_is_no_knee_and_silence_about_a_cache_is_told() {
    let rows = vec![
        row("disk", "focus 10 %", 1e5, 50, Some(0.0)),
        row("disk", "focus 10 %", 1e6, 100, Some(0.0)),
        row("floor", "focus 10 %", 1e5, 10, None),
    ];
    let fits = findings(&section(rows.clone()), |_| false);
    assert!(fits[0].starts_with("disk: every working set fitted, up to 1,000,000 documents"), "{fits:?}");
    assert_eq!(fits.len(), 1);
    let mut missing = rows.clone();
    missing.push(row("disk", "focus 100 %", 1e5, 50, Some(60.0)));
    missing.push(row("disk", "focus 100 %", 1e6, 55, Some(90.0)));
    let misses = findings(&section(missing), |_| false);
    assert!(
        misses[0].starts_with("disk: gets became hardly slower, up to 1,000,000 documents"),
        "{misses:?}"
    );
    assert!(
        misses[0].contains("with the focus on 100 % they missed the cache 90.0 times per 100 gets"),
        "{misses:?}"
    );
    let in_memory = findings(&section(rows), |target| target == "disk");
    assert!(in_memory[0].starts_with("disk: keeps everything in memory"), "{in_memory:?}");
    let silent =
        [row("other", "focus 10 %", 1e5, 50, None), row("other", "focus 10 %", 1e6, 100, None)].to_vec();
    assert!(findings(&section(silent), |_| false)[0].contains("tells nothing of its cache"));
}

#[test]
fn a_working_set_smaller_than_the_cache_is_not_said_to_outgrow_it() {
    let mut rows =
        vec![row("disk", "focus 1 %", 1e5, 50, Some(0.0)), row("disk", "focus 1 %", 1e6, 500, Some(30.0))];
    rows[1].extra.insert(cache::HELD.to_string(), 600.0);
    let told = findings(&section(rows), |_| false);
    assert!(
        told[0].contains("gets became slower between") && !told[0].contains("stopped fitting"),
        "{told:?}"
    );
    assert!(told[0].contains("although the cache held 600 MB"), "{told:?}");
}
