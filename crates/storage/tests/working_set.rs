//! Compares working-set advice with measurements: the prediction of a run with one cache size for
//! other sizes, and runs with these sizes. `cargo bench -p storage --bench working_set` does this
//! with more data.

mod loads;

use loads::{Data, Load, POINTS, error};

fn predictions_hold(load: Load) {
    let name = format!("vellum-working-set-{load:?}-{}", std::process::id());
    let data = Data::new(&std::env::temp_dir().join(name), 30_000, 1000);
    let total_bytes = data.file_bytes() * 4 / 3;
    let sizes = [0.15, 0.25, 0.4, 0.6, 0.8, 1.1].map(|share| (total_bytes as f64 * share) as u64);
    let predicted = data.run(load, 30_000, sizes[1]).curve;
    for size in sizes {
        let run = data.run(load, 30_000, size);
        let (hits, expected) = (run.hits * 100.0, predicted.hit_rate(size) * 100.0);
        let message = format!("{load:?}, {size} bytes: {hits:.1} % hits, predicted {expected:.1} %");
        assert!(run.reads > 20_000, "{message}, {} reads", run.reads);
        assert!(error(run.hits, &predicted, size) <= POINTS, "{message}");
    }
}

#[test]
fn uniform_loads_hit_as_predicted() {
    predictions_hold(Load::Uniform);
}

#[test]
fn skewed_loads_hit_as_predicted() {
    predictions_hold(Load::Zipf);
}

#[test]
fn hot_spots_hit_as_predicted() {
    predictions_hold(Load::HotSpot);
}

#[test]
fn scans_hit_as_predicted() {
    predictions_hold(Load::Scan);
}

#[test]
fn hot_spots_that_change_hit_as_predicted() {
    predictions_hold(Load::Writes);
}
