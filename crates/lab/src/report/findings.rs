//! What a report means, in plain sentences made from its figures.
//!
//! A sentence claims no more than the rounds show: where the spread of a ratio spans one, it says
//! that no difference can be told.

use super::{figures, groups};
use crate::result::{Kind, Promise, Report, Row, Section};

/// Sentences about every section, then about what the disk and stalls had to do with it.
///
/// Where the experiment has sentences of its own, these say better what its cases mean: then only
/// those are added that hold of any experiment.
pub(crate) fn of(report: &Report) -> Vec<String> {
    let floor = groups::floor(report);
    let told = !report.findings.is_empty();
    let mut found = Vec::new();
    for section in &report.sections {
        found.extend(match section.kind {
            Kind::Rates => rates(section, floor),
            _ if told => Vec::new(),
            Kind::Bars | Kind::Matrix => bars(section, floor),
            // What takes so long has sentences of its experiment's own.
            Kind::Times => Vec::new(),
            Kind::Growth => growth(section, floor),
        });
    }
    found.extend(sync(report));
    found.extend(stalls(report));
    found
}

/// Rows of one group that were measured, the floor's aside, fastest first.
fn ranked<'a>(rows: &[&'a Row], floor: Option<&str>) -> Vec<&'a Row> {
    let measured = rows.iter().filter(|row| row.operations > 0 && Some(row.target.as_str()) != floor);
    let mut ranked: Vec<&Row> = measured.copied().collect();
    ranked.sort_by(|a, b| b.rate().total_cmp(&a.rate()));
    ranked
}

/// Up to this many cases, each has a sentence of its own.
const CASES_TOLD: usize = 3;

fn bars(section: &Section, floor: Option<&str>) -> Vec<String> {
    let groups = groups::groups(section);
    let told: Vec<_> = groups
        .iter()
        .map(|group| (group.label.as_str(), ranked(&group.rows, floor)))
        .filter(|(_, rows)| rows.len() > 1)
        .collect();
    if told.len() <= CASES_TOLD {
        return told.iter().map(|(label, rows)| contrast(section, label, rows, floor)).collect();
    }
    summary(section, &told).into_iter().collect()
}

/// "Single inserts, 1 connection: memory does 14,300 a second, 20.1× as many as journaled (712)."
fn contrast(section: &Section, label: &str, rows: &[&Row], floor: Option<&str>) -> String {
    let [first, .., last] = rows else { return String::new() };
    let begin = format!("{}, {label}", section.title);
    let (most, least) = (figures::number(first.rate()), figures::number(last.rate()));
    let text = match told_apart(first, last) {
        true => format!(
            "{begin}: {} does {most} a second, {} as many as {} ({least}).",
            first.target,
            figures::times(first.rate() / last.rate()),
            last.target
        ),
        false => format!(
            "{begin}: no difference can be told between {}; they do {least} to {most} a second.",
            figures::list(&rows.iter().map(|row| row.target.clone()).collect::<Vec<_>>())
        ),
    };
    let over = groups::over_floor(section, first, floor);
    let over = over
        .map(|over| format!(" Its median takes {} what client and kernel alone need.", figures::times(over)));
    text + &over.filter(|_| told_apart(first, last)).unwrap_or_default()
}

/// Whether every round of one was faster than every round of the other.
fn told_apart(fast: &Row, slow: &Row) -> bool {
    let fast = groups::spread(fast, |round| round.rate());
    let slow = groups::spread(slow, |round| round.rate());
    fast.zip(slow).is_some_and(|((lowest, _), (_, highest))| lowest > highest)
}

/// Who does most where the rounds of the two fastest overlap.
const NOBODY: &str = "none for sure";

fn summary(section: &Section, told: &[(&str, Vec<&Row>)]) -> Option<String> {
    let mut wins: Vec<(&str, usize)> = Vec::new();
    for (first, second) in told.iter().filter_map(|(_, rows)| Some((rows.first()?, rows.get(1)?))) {
        let winner = if told_apart(first, second) { first.target.as_str() } else { NOBODY };
        match wins.iter_mut().find(|(name, _)| *name == winner) {
            Some((_, count)) => *count += 1,
            None => wins.push((winner, 1)),
        }
    }
    wins.sort_by_key(|(name, count)| (*name == NOBODY, std::cmp::Reverse(*count)));
    let counts: Vec<String> = wins.iter().map(|(name, count)| format!("{name} in {count}")).collect();
    let gap = |rows: &Vec<&Row>| Some(rows.first()?.rate() / rows.last()?.rate());
    let (label, rows) =
        told.iter().max_by(|a, b| gap(&a.1).unwrap_or(0.0).total_cmp(&gap(&b.1).unwrap_or(0.0)))?;
    let (first, last) = (rows.first()?, rows.last()?);
    Some(format!(
        "{}: of {} cases {} did most a second; the gap is widest at {label}, where {} does {} as many as {}.",
        section.title,
        told.len(),
        figures::list(&counts),
        first.target,
        figures::times(first.rate() / last.rate()),
        last.target
    ))
}

/// A p95 within this factor of the first one counts as unchanged.
const STEADY: f64 = 1.25;

fn growth(section: &Section, floor: Option<&str>) -> Vec<String> {
    let charts = groups::along_x(section);
    charts.iter().filter_map(|(caption, lines)| growth_of(section, caption, lines, floor)).collect()
}

fn growth_of(
    section: &Section,
    caption: &str,
    lines: &[groups::Series],
    floor: Option<&str>,
) -> Option<String> {
    let mut steady = Vec::new();
    let mut changed = Vec::new();
    let mut ends = None;
    for line in lines.iter().filter(|line| Some(line.target) != floor) {
        let [first, .., last] = line.rows.as_slice() else { continue };
        ends = first.x.zip(last.x);
        let (before, after) = (first.latency.quantile(0.95), last.latency.quantile(0.95));
        match after / before {
            ratio if !(1.0 / STEADY..=STEADY).contains(&ratio) => changed.push(format!(
                "{} from {} to {} ({})",
                line.target,
                figures::latency(before),
                figures::latency(after),
                figures::times(ratio)
            )),
            _ => steady.push(line.target.to_string()),
        }
    }
    let (from, to) = ends?;
    let caption = if caption.is_empty() { String::new() } else { format!(", {caption}") };
    let mut text =
        format!("{}{caption}: from {} to {}, ", section.title, figures::number(from), figures::number(to));
    if !changed.is_empty() {
        text += &format!("p95 went for {}", figures::list(&changed));
    }
    match (changed.is_empty(), steady.is_empty()) {
        (_, true) => text.push('.'),
        (true, false) => text += &format!("p95 stayed where it was for {}.", figures::list(&steady)),
        (false, false) => text += &format!("; it stayed where it was for {}.", figures::list(&steady)),
    }
    Some(text)
}

/// A rate counts as held if this share of it was reached.
const HELD: f64 = 0.97;

fn rates(section: &Section, floor: Option<&str>) -> Vec<String> {
    let charts = groups::along_x(section);
    let lines = charts.iter().flat_map(|(caption, lines)| lines.iter().map(move |line| (caption, line)));
    let lines = lines.filter(|(_, line)| Some(line.target) != floor);
    lines.filter_map(|(caption, line)| highest_rate(section, caption, line)).collect()
}

fn highest_rate(section: &Section, caption: &str, line: &groups::Series) -> Option<String> {
    let held = |row: &&&Row| row.x.is_some_and(|offered| row.rate() >= offered * HELD);
    let best = line.rows.iter().rfind(held)?;
    let caption = if caption.is_empty() { String::new() } else { format!(", {caption}") };
    let p99 = |row: &Row| figures::latency(row.latency.quantile(0.99));
    let mut text = format!(
        "{}{caption}: {} kept up with {} a second, its p99 being {}",
        section.title,
        line.target,
        figures::number(best.x?),
        p99(best)
    );
    match line.rows.iter().find(|row| row.x > best.x) {
        Some(next) => {
            text += &format!(
                "; of {} offered it did {}, with a p99 of {}.",
                figures::number(next.x?),
                figures::number(next.rate()),
                p99(next)
            );
        }
        None => text += ", the highest that was offered.",
    }
    Some(text)
}

/// Says where it is the disk that was measured.
fn sync(report: &Report) -> Option<String> {
    let slowest = |name: &str| {
        let rows = report
            .sections
            .iter()
            .filter(|s| matches!(s.kind, Kind::Bars | Kind::Matrix))
            .flat_map(|s| &s.rows);
        let single = rows.filter(|row| row.target == name && row.connections == 1 && row.operations > 0);
        single.map(|row| row.latency.quantile(0.5)).max_by(f64::total_cmp)
    };
    let journaled = report.targets.iter().filter(|t| t.fingerprint.promise == Promise::Journaled);
    let waits: Vec<String> = journaled
        .filter_map(|target| {
            let (sync, median) = (target.fingerprint.sync_microseconds?, slowest(&target.name)?);
            let share = sync / median;
            (share > 0.5 && share < 1.5).then(|| {
                // The probe was another moment: what it found may be longer than what it is part of.
                format!(
                    "{} ({} when probed, {} a write)",
                    target.name,
                    figures::latency(sync),
                    figures::latency(median)
                )
            })
        })
        .collect();
    (!waits.is_empty()).then(|| {
        format!(
            "Most of the time of one writer on {} is its disk's fdatasync: another disk gives other figures.",
            figures::list(&waits)
        )
    })
}

/// A step of the timeline is a stall if its slowest operation took this much longer than the
/// median step's p99, and a fifth of a second at least.
const STALL_FACTOR: f64 = 10.0;
const STALL_MICROSECONDS: f64 = 200_000.0;

/// When a row stalled, and for how long, microseconds.
pub(crate) fn stalls_of(row: &Row) -> Vec<(f64, f64)> {
    let mut typical: Vec<f64> = row.timeline.iter().map(|moment| moment.p99).collect();
    typical.sort_by(f64::total_cmp);
    let typical = typical.get(typical.len() / 2).copied().unwrap_or(0.0);
    let limit = (typical * STALL_FACTOR).max(STALL_MICROSECONDS);
    let stalled = row.timeline.iter().filter(|moment| moment.max >= limit);
    stalled.map(|moment| (moment.at, moment.max)).collect()
}

/// One sentence for all stalls of a report.
fn stalls(report: &Report) -> Option<String> {
    let mut targets: Vec<(&str, usize)> = Vec::new();
    let mut longest: Option<(f64, f64, String)> = None;
    for section in &report.sections {
        for row in &section.rows {
            let stalls = stalls_of(row);
            if stalls.is_empty() {
                continue;
            }
            match targets.iter_mut().find(|(name, _)| *name == row.target) {
                Some((_, count)) => *count += stalls.len(),
                None => targets.push((&row.target, stalls.len())),
            }
            for (at, time) in stalls {
                if longest.as_ref().is_none_or(|(_, known, _)| time > *known) {
                    let place =
                        format!("{} in {}, {}", row.target, section.title, groups::label(section, row));
                    longest = Some((at, time, place));
                }
            }
        }
    }
    let (at, time, place) = longest?;
    targets.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let times = |count: usize| if count == 1 { "once".to_string() } else { format!("{count} times") };
    let counts: Vec<String> =
        targets.iter().map(|(name, count)| format!("{name} {}", times(*count))).collect();
    Some(format!(
        "Stalled: {}. The longest was {place}: {}, {} into the round.",
        figures::list(&counts),
        figures::latency(time),
        figures::seconds(at)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    fn find<'a>(findings: &'a [String], part: &str) -> &'a str {
        findings.iter().find(|text| text.contains(part)).unwrap_or_else(|| panic!("{part} in {findings:#?}"))
    }

    #[test]
    fn each_kind_of_section_has_its_sentence() {
        let mut report = testing::report();
        let findings = of(&report);
        assert!(!findings.iter().any(|text| text.contains("1 connection: memory does")), "{findings:#?}");
        report.findings.clear();
        let findings = of(&report);
        let text = find(&findings, "insert, 1 connection");
        assert!(text.contains("memory does") && text.contains("as many as journaled"), "{text}");
        assert!(text.contains("what client and kernel alone need"), "{text}");
        let text = find(&findings, "as the data grows");
        assert!(text.contains("from 1,000 to 8,000, p95 went for journaled from"), "{text}");
        assert!(text.contains("stayed where it was for memory, none and relaxed"), "{text}");
        assert!(find(&findings, "throughput, insert: memory").contains("kept up with"));
    }

    #[test]
    fn what_rounds_can_not_tell_apart_is_said_so() {
        let rows = vec![testing::row("a", "x", 1, 100.0, 1), testing::row("b", "x", 1, 101.0, 2)];
        let mut report = testing::report();
        report.findings.clear();
        report.sections.truncate(1);
        report.sections[0].rows = rows;
        assert!(of(&report)[0].contains("no difference can be told between"), "{:?}", of(&report));
    }

    #[test]
    fn many_cases_are_summed_up() {
        let mut report = testing::report();
        report.findings.clear();
        let rows = (0..5).flat_map(|case| {
            let case = format!("case {case}");
            [testing::row("a", &case, 1, 100.0, 1), testing::row("b", &case, 1, 300.0, 2)]
        });
        report.sections[0].rows = rows.collect();
        report.sections.truncate(1);
        let findings = of(&report);
        assert!(findings[0].contains("of 5 cases a in 5 did most a second"), "{findings:?}");
        let rows = (0..5).flat_map(|case| {
            let case = format!("case {case}");
            [testing::row("a", &case, 1, 100.0, 1), testing::row("b", &case, 1, 101.0, 2)]
        });
        report.sections[0].rows = rows.collect();
        assert!(of(&report)[0].contains("none for sure in 5"), "{:?}", of(&report));
    }

    #[test]
    fn stalls_and_the_disk_are_named() {
        let mut report = testing::report();
        let findings = of(&report);
        let text = find(&findings, "Stalled");
        assert!(
            text.starts_with("Stalled: journaled once. The longest was journaled in Single inserts"),
            "{text}"
        );
        assert!(text.ends_with(": 1.20 s, 4.25 s into the round."), "{text}");
        report.sections[0].rows[4].timeline = report.sections[0].rows[3].timeline.clone();
        let several = of(&report).iter().filter(|text| text.contains("talled")).count();
        assert_eq!(several, 1, "one sentence for all");
        assert!(find(&findings, "fdatasync").contains("journaled (820 µs when probed, "), "{findings:#?}");
        report.targets[3].fingerprint.sync_microseconds = Some(5.0);
        assert!(!of(&report).iter().any(|text| text.contains("fdatasync")));
    }

    #[test]
    fn a_report_without_rows_means_nothing() {
        let mut report = testing::report();
        report.sections.iter_mut().for_each(|section| section.rows.clear());
        assert!(of(&report).is_empty());
    }
}
