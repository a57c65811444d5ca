//! Compares working-set advice with measurements, on more data than in the tests: `cargo bench -p
//! storage --bench working_set -- DIRECTORY [DOCUMENTS]`. Each load runs once for a prediction and
//! then with six cache sizes.

#[path = "../tests/loads/mod.rs"]
mod loads;

use std::path::Path;

use loads::{Data, Load, POINTS, error};

const LOADS: [Load; 5] = [Load::Uniform, Load::Zipf, Load::HotSpot, Load::Scan, Load::Writes];

#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let Some(directory) = arguments.first() else { return println!("which directory?") };
    let documents = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(500_000);
    let data = Data::new(&Path::new(directory).join("working-set"), documents, 500);
    let total_bytes = data.file_bytes() * 4 / 3;
    println!("{documents} documents of 500 bytes, all of them in a cache of {} MB", total_bytes / 1_000_000);
    println!("| load | cache, MB | reads | hits, % | predicted, % | off, points |");
    println!("|---|---:|---:|---:|---:|---:|");
    let mut worst: f64 = 0.0;
    for load in LOADS {
        let sizes = [0.05, 0.1, 0.25, 0.5, 0.8, 1.1].map(|share| (total_bytes as f64 * share) as u64);
        let predicted = data.run(load, 2 * documents, sizes[2]).curve;
        for size in sizes {
            let run = data.run(load, 2 * documents, size);
            let off = error(run.hits, &predicted, size);
            worst = worst.max(off);
            let (hits, expected) = (run.hits * 100.0, predicted.hit_rate(size) * 100.0);
            println!(
                "| {load:?} | {} | {} | {hits:.1} | {expected:.1} | {:.1} |",
                size / 1_000_000,
                run.reads,
                off * 100.0
            );
        }
    }
    assert!(worst <= POINTS, "a prediction is off by {:.1} points", worst * 100.0);
}
