//! The first screen of a report of all experiments: for each a question, the finding in one sentence, one picture, and how
//! sure it is.

use super::{figures, groups, promise};
use crate::result::{Promise, Report, Round, Row, Section};

/// What one experiment found.
pub(crate) struct Headline {
    /// Of the experiment, as on the command line.
    pub(crate) experiment: &'static str,
    /// Of the section that has the figures.
    pub(crate) section: String,
    pub(crate) question: &'static str,
    pub(crate) sentence: String,
    /// What the bars show.
    pub(crate) caption: String,
    pub(crate) bars: Vec<Bar>,
    /// How sure the sentence is.
    pub(crate) sure: String,
}

/// A figure of a target, with the least and the most that any round had.
pub(crate) struct Bar {
    pub(crate) target: String,
    /// The target, and what else tells the bar from others.
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) spread: Option<(f64, f64)>,
    /// The figure as people read it.
    pub(crate) text: String,
}

/// The headlines, in the order in which a reader asks; of experiments without figures there is none.
pub(crate) fn of(report: &Report) -> Vec<Headline> {
    let all =
        [inserts(report), waiting(report), clean(report), working_set(report), life(report), scans(report)];
    all.into_iter().flatten().collect()
}

fn section<'a>(report: &'a Report, id: &str) -> Option<&'a Section> {
    report.sections.iter().find(|section| section.id == id)
}

/// Rows of a case that were measured, the floor's aside, on the fewest connections.
fn rows<'a>(report: &Report, section: &'a Section, case: &str) -> Vec<&'a Row> {
    let floor = groups::floor(report);
    let measured = section.rows.iter().filter(|row| row.operations > 0 && Some(row.target.as_str()) != floor);
    let mut rows: Vec<&Row> = measured.filter(|row| row.case == case).collect();
    let fewest = rows.iter().map(|row| row.connections).min();
    rows.retain(|row| Some(row.connections) == fewest);
    rows
}

/// A figure of rounds, and whether less of it is better.
#[derive(Clone, Copy)]
enum Figure {
    Rate,
    P50,
    P95,
}

impl Figure {
    fn of_round(self, round: &Round) -> f64 {
        match self {
            Figure::Rate => round.rate(),
            Figure::P50 => round.latency.p50,
            Figure::P95 => round.latency.p95,
        }
    }

    fn of(self, row: &Row) -> f64 {
        match self {
            Figure::Rate => row.rate(),
            Figure::P50 => row.latency.quantile(0.5),
            Figure::P95 => row.latency.quantile(0.95),
        }
    }

    fn text(self, value: f64) -> String {
        if matches!(self, Figure::Rate) { figures::number(value) } else { figures::latency(value) }
    }

    fn bar(self, row: &Row, name: String) -> Bar {
        let value = self.of(row);
        let spread = groups::spread(row, |round| self.of_round(round)).filter(|_| row.rounds.len() > 1);
        Bar { target: row.target.clone(), name, value, spread, text: self.text(value) }
    }

    fn bars(self, rows: &[&Row]) -> Vec<Bar> {
        rows.iter().map(|row| self.bar(row, groups::marked(row))).collect()
    }

    /// Whether every round of one had less than every round of the other.
    fn apart(self, less: &Row, more: &Row) -> bool {
        let of = |row: &Row| groups::spread(row, |round| self.of_round(round));
        of(less).zip(of(more)).is_some_and(|((_, most), (least, _))| most < least)
    }

    /// How sure it is that one has less than the other.
    fn sure(self, less: &Row, more: &Row) -> String {
        let rounds = less.rounds.len().min(more.rounds.len());
        match (rounds, self.apart(less, more)) {
            (0 | 1, _) => "One round only: a first impression, not sure.".to_string(),
            (2, true) => "Both rounds say so: likely.".to_string(),
            (_, true) => format!("Each of {rounds} rounds says so: sure by 90 % at least."),
            (_, false) => format!("The {rounds} rounds overlap: not sure."),
        }
    }
}

fn promise_of(report: &Report, target: &str) -> Promise {
    let info = report.targets.iter().find(|info| info.name == target);
    info.map_or(Promise::Unknown, |info| info.fingerprint.promise)
}

/// Rows by a figure, the most first.
fn ranked<'a>(rows: &[&'a Row], figure: Figure) -> Vec<&'a Row> {
    let mut ranked = rows.to_vec();
    ranked.sort_by(|a, b| figure.of(b).total_cmp(&figure.of(a)));
    ranked
}

/// What is said where the rounds don't tell the best from the worst.
fn alike(what: &str, least: &Row, most: &Row, figure: Figure) -> String {
    let [least, most] = [least, most].map(|row| figure.text(figure.of(row)));
    format!("{what} {least} to {most}; the rounds don't tell the servers apart.")
}

fn inserts(report: &Report) -> Option<Headline> {
    let section = section(report, "inserts")?;
    let rows = rows(report, section, "single inserts");
    let ranked = ranked(&rows, Figure::Rate);
    let (first, last) = (*ranked.first()?, *ranked.last()?);
    let safe = ranked.iter().find(|row| promise_of(report, &row.target) == Promise::Journaled).copied();
    let rate = |row: &Row| figures::number(row.rate());
    let (sentence, other) = match safe.filter(|safe| safe.target != first.target) {
        Some(safe) => {
            let sentence = format!(
                "One client stores {} documents a second where every write survives a power cut ({}), and {} where it need not \
                 ({}).",
                rate(safe),
                safe.target,
                rate(first),
                first.target
            );
            (sentence, safe)
        }
        None => {
            let sentence = format!(
                "One client stores {} documents a second on {}, and {} on {}.",
                rate(first),
                first.target,
                rate(last),
                last.target
            );
            (sentence, last)
        }
    };
    let sentence = match Figure::Rate.apart(other, first) {
        true => sentence,
        false => alike("One client stores, in documents a second,", last, first, Figure::Rate),
    };
    Some(Headline {
        experiment: "inserts",
        section: section.id.clone(),
        question: "How many writes a second?",
        sentence,
        caption: "Single inserts a second, one client; more is better".to_string(),
        bars: Figure::Rate.bars(&rows),
        sure: Figure::Rate.sure(other, first),
    })
}

fn waiting(report: &Report) -> Option<Headline> {
    let section = section(report, "write-concern")?;
    let (without, with) = (rows(report, section, "w 1, j false"), rows(report, section, "w 1, j true"));
    let pairs: Vec<(&Row, &Row)> = without
        .iter()
        .filter_map(|row| Some((*row, *with.iter().find(|other| other.target == row.target)?)))
        .collect();
    // Of a server that always waits there is nothing to learn.
    let cost = |pair: &(&Row, &Row)| Figure::P50.of(pair.1) / Figure::P50.of(pair.0);
    let (plain, waits) = *pairs.iter().max_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    let bars = pairs.iter().flat_map(|(plain, waits)| {
        let bar = |row: &Row, how: &str| Figure::P50.bar(row, format!("{} {how}", groups::marked(row)));
        [bar(plain, "goes on"), bar(waits, "waits")]
    });
    let [before, after] = [plain, waits].map(|row| figures::latency(Figure::P50.of(row)));
    let sentence = match Figure::P50.apart(plain, waits) {
        true => format!(
            "A write that waits until it is safe on disk takes {after} instead of {before} on {}, {} times as long.",
            plain.target,
            figures::number(cost(&(plain, waits)))
        ),
        false => format!(
            "Waiting for the disk makes no difference that can be told on {}: {after} and {before}.",
            plain.target
        ),
    };
    Some(Headline {
        experiment: "write-concern",
        section: section.id.clone(),
        question: "What does safety cost?",
        sentence,
        caption: "Median time of a write; less is better".to_string(),
        bars: bars.collect(),
        sure: Figure::P50.sure(plain, waits),
    })
}

fn clean(report: &Report) -> Option<Headline> {
    let section = section(report, "clean")?;
    let rows = rows(report, section, "drop, create with 4 indexes");
    let ranked = ranked(&rows, Figure::Rate);
    let (first, last) = (*ranked.first()?, *ranked.last()?);
    let fork = section
        .rows
        .iter()
        .filter(|row| row.operations > 0 && row.case.starts_with("fork") && row.target == first.target);
    let fork = fork.map(Row::rate).next().map(|rate| {
        format!(" A whole prepared database is copied {} times a second there.", figures::number(rate))
    });
    let sentence = match Figure::Rate.apart(last, first) {
        true => format!(
            "A test gets a fresh collection {} times a second on {}, and {} times on {}.{}",
            figures::number(first.rate()),
            first.target,
            figures::number(last.rate()),
            last.target,
            fork.unwrap_or_default()
        ),
        false => alike("A test gets a fresh collection, times a second,", last, first, Figure::Rate),
    };
    Some(Headline {
        experiment: "clean",
        section: section.id.clone(),
        question: "How fast do tests get a clean database?",
        sentence,
        caption: "Fresh collections a second, with four indexes; more is better".to_string(),
        bars: Figure::Rate.bars(&rows),
        sure: Figure::Rate.sure(last, first),
    })
}

/// Rows of a case at the smallest and at the largest size, by target.
fn ends<'a>(report: &Report, section: &'a Section, case: &str) -> Vec<(&'a Row, &'a Row)> {
    let rows = rows(report, section, case);
    let x = |row: &&&Row| row.x.unwrap_or(0.0);
    let mut targets: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !targets.contains(&row.target.as_str()) {
            targets.push(&row.target);
        }
    });
    let of = |target: &&str| {
        let own = || rows.iter().filter(|row| row.target == *target);
        let (least, most) =
            (own().min_by(|a, b| x(a).total_cmp(&x(b)))?, own().max_by(|a, b| x(a).total_cmp(&x(b)))?);
        Some((*least, *most)).filter(|(least, most)| least.x != most.x)
    };
    targets.iter().filter_map(of).collect()
}

fn working_set(report: &Report) -> Option<Headline> {
    let section = section(report, "gets")?;
    let ends = ends(report, section, "focus 10 %");
    let growth = |pair: &(&Row, &Row)| Figure::P95.of(pair.1) / Figure::P95.of(pair.0);
    let (small, large) = *ends.iter().max_by(|a, b| growth(a).total_cmp(&growth(b)))?;
    let [from, to] = [small, large].map(|row| figures::count(row.x.unwrap_or(0.0) as u64));
    let [before, after] = [small, large].map(|row| figures::latency(Figure::P95.of(row)));
    let sentence = match Figure::P95.apart(small, large) {
        true => format!(
            "From {from} to {to} documents, 95 of 100 reads went from {before} to {after} on {}, where they slowed down most.",
            large.target
        ),
        false => format!(
            "From {from} to {to} documents no server read slower for sure: 95 of 100 reads within {after} on {}.",
            large.target
        ),
    };
    let largest: Vec<&Row> = ends.iter().map(|(_, large)| *large).collect();
    Some(Headline {
        experiment: "working-set",
        section: section.id.clone(),
        question: "Do reads stay fast as the data grows?",
        sentence,
        caption: format!("95 of 100 reads of {to} documents within; less is better"),
        bars: Figure::P95.bars(&largest),
        sure: Figure::P95.sure(small, large),
    })
}

fn life(report: &Report) -> Option<Headline> {
    let section = section(report, "errors")?;
    let (searches, served) =
        (ends(report, section, "searches by regex"), ends(report, section, "searches served by an index"));
    let growth = |pair: &(&Row, &Row)| Figure::P95.of(pair.1) / Figure::P95.of(pair.0);
    let (first, last) = *searches.iter().max_by(|a, b| growth(a).total_cmp(&growth(b)))?;
    let (before, after) = served.iter().find(|(row, _)| row.target == first.target)?;
    let time = |row: &Row| figures::latency(Figure::P95.of(row));
    let errors = figures::count(last.x.unwrap_or(0.0) as u64);
    let sentence = match Figure::P95.apart(first, last) {
        true => format!(
            "With {errors} errors stored, searches by pattern take {} on {}, {} at the beginning; served by an index {}, and {}.",
            time(last),
            last.target,
            time(first),
            time(after),
            time(before)
        ),
        false => format!(
            "With {errors} errors stored, no server searched slower for sure: {} on {}.",
            time(last),
            last.target
        ),
    };
    Some(Headline {
        experiment: "error-tracker",
        section: section.id.clone(),
        question: "Does an application stay fast over its life?",
        sentence,
        caption: "95 of 100 searches by pattern within, at the end; less is better".to_string(),
        bars: Figure::P95.bars(&searches.iter().map(|(_, last)| *last).collect::<Vec<_>>()),
        sure: Figure::P95.sure(first, last),
    })
}

fn scans(report: &Report) -> Option<Headline> {
    let section = section(report, "scans")?;
    let rows = rows(report, section, "$match, $group into 50");
    let ranked = ranked(&rows, Figure::P50);
    let (last, first) = (*ranked.first()?, *ranked.last()?);
    let sentence = match Figure::P50.apart(first, last) {
        true => format!(
            "Adding up a whole collection by groups takes {} on {} and {} on {}.",
            figures::latency(Figure::P50.of(first)),
            first.target,
            figures::latency(Figure::P50.of(last)),
            last.target
        ),
        false => alike("Adding up a whole collection by groups takes", first, last, Figure::P50),
    };
    Some(Headline {
        experiment: "micro",
        section: section.id.clone(),
        question: "How long does a report over everything take?",
        sentence,
        caption: "Median time of one report; less is better".to_string(),
        bars: Figure::P50.bars(&rows),
        sure: Figure::P50.sure(first, last),
    })
}

/// A target and what it promises, for those who read no more than the first screen.
pub(crate) fn targets(report: &Report) -> Vec<(String, &'static str)> {
    let shown = report.targets.iter().filter(|target| target.fingerprint.promise != Promise::Nothing);
    shown.map(|target| (target.name.clone(), promise::plain(target.fingerprint.promise))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn each_experiment_has_a_question_a_sentence_and_a_picture() {
        let headlines = of(&testing::whole());
        let experiments: Vec<_> = headlines.iter().map(|headline| headline.experiment).collect();
        assert_eq!(
            experiments,
            ["inserts", "write-concern", "clean", "working-set", "error-tracker", "micro"]
        );
        for headline in &headlines {
            assert!(headline.bars.len() > 1 && !headline.sure.is_empty(), "{}", headline.experiment);
            assert!(!headline.bars.iter().any(|bar| bar.target == "floor"), "{}", headline.experiment);
            assert!(
                headline.sentence.ends_with('.') && !headline.sentence.contains("NaN"),
                "{}",
                headline.sentence
            );
        }
        assert!(
            headlines[0].sentence.contains("survives a power cut (journaled)"),
            "{}",
            headlines[0].sentence
        );
        assert!(headlines[1].sentence.starts_with("A write that waits"), "{}", headlines[1].sentence);
        assert_eq!(headlines[0].sure, "Each of 3 rounds says so: sure by 90 % at least.");
    }

    #[test]
    fn what_rounds_do_not_show_is_not_claimed() {
        let mut report = testing::whole();
        for row in report.sections.iter_mut().flat_map(|section| &mut section.rows) {
            row.rounds.truncate(1);
        }
        assert!(of(&report).iter().all(|headline| headline.sure.starts_with("One round only")));
        let mut report = testing::whole();
        for row in report.sections.iter_mut().flat_map(|section| &mut section.rows) {
            row.rounds[0].seconds *= 300.0;
            row.rounds[0].latency.p50 *= 300.0;
            row.rounds[0].latency.p95 *= 300.0;
        }
        for headline in of(&report) {
            assert_eq!(headline.sure, "The 3 rounds overlap: not sure.");
            let told = ["don't tell the servers apart", "no difference that can be told", "slower for sure"];
            assert!(told.iter().any(|part| headline.sentence.contains(part)), "{}", headline.sentence);
        }
        report.sections.clear();
        assert!(of(&report).is_empty());
    }
}
