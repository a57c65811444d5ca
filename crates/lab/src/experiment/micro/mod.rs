//! `micro`: single kinds of operation, each by itself: point reads and writes, batches, scans,
//! group, sort, index build, connections, start-up.

mod points;
mod scans;
mod start;

use super::parts::Loaded;
use super::{Experiment, sentences};
use crate::error::Result;
use crate::load::Until;
use crate::load::measure::Case;
use crate::load::random::Dice;
use crate::report::figures;
use crate::result::{Kind, Report};
use crate::run::Lab;
use mongodb::bson::{Document, doc};
use points::{Point, Pointing};
use scans::{Scan, Scanning};
use start::{Connecting, Starting};

/// The experiment.
pub(crate) struct Micro;

const POINTS: u64 = 10_000;
const CONNECTIONS: &[u32] = &[1, 16];
const SCANNED: u64 = 100_000;

impl Experiment for Micro {
    fn name(&self) -> &'static str {
        "micro"
    }

    fn title(&self) -> String {
        "Single operations".to_string()
    }

    fn about(&self) -> String {
        "What each kind of operation costs by itself, on documents of about 1 KB. PostgreSQL takes part where a \
         prepared statement does the same, and in connecting."
            .to_string()
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        points(lab).await;
        scans(lab).await;
        starts(lab).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        let mut found = Vec::new();
        for section in report.sections.iter().filter(|section| section.id == "scans") {
            for target in sentences::targets(section) {
                let rows = section.rows.iter().filter(|row| row.target == target);
                let costs = rows.filter_map(|row| Some((row.extra.get(scans::PER_DOCUMENT)?, &row.case)));
                if let Some((cost, case)) = costs.max_by(|a, b| a.0.total_cmp(b.0)) {
                    let cost = figures::number(*cost);
                    found.push(format!(
                        "{target}: of the scans, '{case}' costs its processor most, {cost} µs a document."
                    ));
                }
            }
        }
        found
    }
}

async fn points(lab: &mut Lab) {
    let documents = lab.scaled(POINTS);
    let about = format!(
        "An operation is one document, or one batch of 1,000. The collection has {} documents; keys are drawn evenly.",
        figures::count(documents)
    );
    let section = lab.section("points", "Point operations and batches", &about, Kind::Bars);
    let (seed, loaded) = (lab.seed, Loaded::default());
    let mut cases = Vec::new();
    for connections in lab.connections(CONNECTIONS) {
        for (point, name) in points::POINTS {
            let operations =
                if *point == Point::Batch { lab.operations(20) } else { lab.operations(POINTS / 2) };
            let bench = Pointing { point: *point, seed, documents, loaded: loaded.clone() };
            cases.push(Case::new(*name, operations, bench).on(connections));
        }
    }
    lab.measure(section, &cases).await;
}

async fn scans(lab: &mut Lab) {
    let documents = lab.scaled(SCANNED);
    let about = format!(
        "An operation reads all of {} documents, without an index. The floor answers with as many documents of the same size.",
        figures::count(documents)
    );
    let section = lab.section("scans", "Scans, group, sort, index build", &about, Kind::Bars);
    let (seed, loaded) = (lab.seed, Loaded::default());
    let case = |(scan, name): &(Scan, &str)| {
        let bench = Scanning { scan: *scan, seed, documents, loaded: loaded.clone() };
        let case = Case::new(*name, Until::Operations(10), bench);
        if *scan == Scan::BuildIndex { case.exactly(1, 0) } else { case.exactly(10, 1) }
    };
    let cases: Vec<_> = scans::SCANS.iter().map(case).collect();
    lab.measure(section, &cases).await;
}

async fn starts(lab: &mut Lab) {
    let about = "Connect: a driver's client opens its connections, pings and closes. Start: from the process's start \
                 to the first ping a driver has answered; servers that the lab can start only.";
    let section = lab.section("starts", "Connections and start-up", about, Kind::Bars);
    let connects = lab.scaled(200);
    let cases = [Case::new("connect, ping, close", Until::Operations(connects), Connecting)];
    let exact = cases.map(|case| case.exactly(connects, (connects / 10).max(1)));
    lab.measure(section, &exact).await;
    let start = [Case::new("start to first ping", Until::Operations(5), Starting).exactly(5, 1)];
    lab.measure(section, &start).await;
}

/// A document of about 1 KB.
fn document(seed: u64, number: u64) -> Document {
    let mut dice = Dice::of(seed, number);
    doc! {
        "_id": number as i64,
        "group": dice.below(100) as i64,
        "amount": dice.below(1_000_000) as f64 / 100.0,
        "hits": 0,
        "state": if dice.below(4) == 0 { "open" } else { "done" },
        "text": dice.words(900),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_of_about_a_kilobyte() {
        assert!((980..1060).contains(&document(1, 5).to_vec().unwrap().len()));
    }
}
