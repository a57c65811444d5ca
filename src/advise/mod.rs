//! `vellum advise URI`: how large a server's cache should be, from what has been read (`vellumWorkingSet`).

mod plot;
mod svg;

use crate::cli::AdviseOptions;
use crate::reach;
use base::bson::{Builder, Document};
use std::fmt::Write as _;

const MIB: f64 = (1u64 << 20) as f64;
/// Collections and indexes that are told about.
const ROWS: usize = 20;
/// Sizes beside the server's own that the first sentence tells about.
const SIZES: usize = 3;

/// Asks a server, writes the picture if one is wanted, and returns what to print.
pub(crate) fn advise(options: &AdviseOptions) -> Result<String, String> {
    let (mut client, host) = reach::asked(&options.asked)?;
    let mut command = Builder::new();
    command.append("vellumWorkingSet", 1).append("$db", "admin");
    let reply = client.command(&command.finish()).map_err(|error| format!("{host}: {error}"))?;
    let reply = reply.view();
    if reply.get("bounded").and_then(|bounded| bounded.as_bool()) == Some(false) {
        let reason = reply.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
        return Ok(format!("{host}: {reason}"));
    }
    let report = Report::read(reply).ok_or_else(|| format!("{host}: the answer has no working set"))?;
    if let Some(path) = &options.svg {
        let picture = svg::picture(&host, &report);
        std::fs::write(path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report.text(&host))
}

/// What a server knows of its reads.
#[derive(Debug)]
struct Report {
    cache: f64,
    sampled: i64,
    hour_seconds: i64,
    seconds: i64,
    hour: Span,
    start: Span,
    /// Collections and indexes, in the latest hour and since the start.
    parts: Vec<(String, Span, Span)>,
}

/// What was read in a span of time.
#[derive(Debug, Default)]
struct Span {
    reads: i64,
    hit_rate: Option<f64>,
    /// The size beyond which nothing more is gained.
    enough: Option<f64>,
    /// Sizes and shares of hits.
    curve: Vec<(f64, f64)>,
}

impl Span {
    fn read(document: Document<'_>) -> Option<Span> {
        let number = |name: &str| document.get(name).and_then(|value| value.as_number()).map(|n| n.to_f64());
        let mut curve = Vec::new();
        for point in document.get("curve")?.as_array()?.iter() {
            let point = point.as_document()?;
            let number = |name: &str| point.get(name)?.as_number().map(|number| number.to_f64());
            curve.push((number("bytes")?, number("hitRate")?));
        }
        Some(Span {
            reads: document.get("reads")?.as_i64()?,
            hit_rate: number("hitRate"),
            enough: number("enoughBytes"),
            curve,
        })
    }

    /// The share of hits that a size would have.
    fn at(&self, bytes: f64) -> f64 {
        let after = self.curve.partition_point(|(size, _)| *size <= bytes);
        let before = after.checked_sub(1).and_then(|at| self.curve.get(at)).copied().unwrap_or_default();
        match self.curve.get(after) {
            None => before.1,
            Some((size, rate)) => {
                before.1 + (rate - before.1) * (bytes - before.0) / (size - before.0).max(1.0)
            }
        }
    }

    fn best(&self) -> f64 {
        self.curve.last().map_or(0.0, |(_, rate)| *rate)
    }

    /// Sizes worth telling: doublings between where half of what can be gained is, and where all is.
    fn sizes(&self) -> Vec<f64> {
        let Some(enough) = self.enough else { return Vec::new() };
        let half =
            self.curve.iter().find(|(_, rate)| *rate >= self.best() / 2.0).map_or(enough, |point| point.0);
        let mut sizes: Vec<f64> = (0..30)
            .map(|power| f64::from(1 << power) * MIB)
            .filter(|size| *size >= half && *size < enough)
            .collect();
        while sizes.len() > SIZES {
            // Those between which least is gained.
            let gains = sizes.windows(2).map(|pair| match pair {
                [small, large] => self.at(*large) - self.at(*small),
                _ => 0.0,
            });
            let least = gains.enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at);
            sizes.remove(least);
        }
        sizes
    }

    fn sentence(&self) -> String {
        let Some(enough) = self.enough else {
            return "No cache would have helped: nothing was read twice.".to_string();
        };
        let mut text = String::from("With ");
        let mut hit = " of reads would hit";
        for size in self.sizes() {
            let _ = write!(text, "{} {}{hit}, with ", shown(size), percent(self.at(size)));
            hit = "";
        }
        let (size, share) = (shown(enough), percent(self.at(enough)));
        let _ = write!(text, "{size} {share}{hit}; beyond that nothing more is gained.");
        text
    }
}

impl Report {
    fn read(reply: Document<'_>) -> Option<Report> {
        let span = |document: Document<'_>, name: &str| Span::read(document.get(name)?.as_document()?);
        let mut parts = Vec::new();
        for part in reply.get("collections")?.as_array()?.iter() {
            let part = part.as_document()?;
            let mut name = part.get("ns")?.as_str()?.to_string();
            if let Some(index) = part.get("index").and_then(|index| index.as_str()) {
                let _ = write!(name, ", index {index}");
            }
            parts.push((name, span(part, "hour")?, span(part, "start")?));
        }
        Some(Report {
            cache: reply.get("cacheBytes")?.as_i64()? as f64,
            sampled: reply.get("sampledOneIn")?.as_i64()?,
            hour_seconds: reply.get("hourSeconds")?.as_i64()?,
            seconds: reply.get("seconds")?.as_i64()?,
            hour: span(reply, "hour")?,
            start: span(reply, "start")?,
            parts,
        })
    }

    fn text(&self, host: &str) -> String {
        let mut text = format!("{host}: --cache-size {}", option(self.cache));
        if self.sampled > 1 {
            let _ = write!(text, ", one page in {} looked at", self.sampled);
        }
        text.push('\n');
        let mut spans = vec![(format!("The last {}", duration(self.hour_seconds)), &self.hour)];
        if self.seconds > self.hour_seconds {
            spans.push((format!("Since the start, {} ago", duration(self.seconds)), &self.start));
        }
        for (when, span) in &spans {
            let _ = write!(text, "\n{when}: {} pages read", span.reads);
            let Some(rate) = span.hit_rate else {
                text.push_str(".\n");
                continue;
            };
            let _ = writeln!(text, ", {} of them hits.", percent(rate));
            if !span.curve.is_empty() || span.reads > 0 {
                let _ = writeln!(text, "{}\n", span.sentence());
            }
            text.push_str(&plot::plot(&span.curve, self.cache));
        }
        if self.start.reads == 0 {
            text.push_str(
                "\nThere is nothing to advise from: run your application's usual reads for some minutes, then ask again.\n",
            );
        }
        if !self.parts.is_empty() {
            text.push_str(&self.table());
        }
        text.trim_end().to_string()
    }

    /// What other sizes would do for each collection and index, that with the most reads first.
    fn table(&self) -> String {
        let factors = [0.25, 0.5, 1.0, 2.0, 4.0];
        let sizes = factors.map(|factor| self.cache * factor);
        let head = sizes.map(|size| format!("{:>9}", option(size))).join("");
        let wide =
            self.parts.iter().take(ROWS).map(|(name, ..)| name.chars().count()).max().unwrap_or(0).max(20);
        let mut text =
            format!("\n{:<wide$} {:>12} {:>7}{head} {:>9}\n", "since the start", "reads", "hits", "enough");
        for (name, _, span) in self.parts.iter().take(ROWS) {
            let at = sizes.map(|size| format!("{:>9}", percent(span.at(size)))).join("");
            let hits = span.hit_rate.map_or("-".to_string(), percent);
            let enough = span.enough.map_or("-".to_string(), shown);
            let _ = writeln!(text, "{name:<wide$} {:>12} {hits:>7}{at} {enough:>9}", span.reads);
        }
        if self.parts.len() > ROWS {
            let _ = writeln!(text, "and {} more", self.parts.len() - ROWS);
        }
        text
    }
}

/// A share in percent; what isn't all isn't shown as all.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if percent >= 99.95 => "100 %".to_string(),
        percent if percent > 98.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// A size in units of 1024, as --cache-size has them.
fn shown(bytes: f64) -> String {
    let (size, unit) = match bytes {
        bytes if bytes >= 1024.0 * MIB => (bytes / MIB / 1024.0, "GiB"),
        bytes if bytes >= MIB => (bytes / MIB, "MiB"),
        bytes => (bytes / 1024.0, "KiB"),
    };
    if size < 10.0 && size.fract() > 0.05 { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") }
}

/// A size as --cache-size takes it.
fn option(bytes: f64) -> String {
    shown(bytes).replace(" GiB", "G").replace(" MiB", "M").replace(" KiB", "K")
}

fn duration(seconds: i64) -> String {
    let (count, unit) = match seconds {
        seconds if seconds < 120 => (seconds, "second"),
        seconds if seconds < 7200 => (seconds / 60, "minute"),
        seconds => (seconds / 3600, "hour"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span() -> Span {
        let curve = vec![(16.0 * MIB, 0.3), (64.0 * MIB, 0.93), (256.0 * MIB, 0.988), (400.0 * MIB, 0.99)];
        Span { reads: 1000, hit_rate: Some(0.93), enough: Some(400.0 * MIB), curve }
    }

    #[test]
    fn the_sentence_tells_sizes_and_where_gains_end() {
        let text = span().sentence();
        assert_eq!(
            text,
            "With 64 MiB 93 % of reads would hit, with 128 MiB 95 %, with 256 MiB 99 %, with 400 MiB 99.0 %; \
             beyond that nothing more is gained."
        );
        let none = Span { reads: 5, hit_rate: Some(0.0), ..Span::default() };
        assert!(none.sentence().contains("No cache"), "{}", none.sentence());
    }

    #[test]
    fn shares_and_sizes_are_told_with_what_they_are_good_for() {
        assert_eq!([0.0, 0.934, 0.996, 0.9999].map(percent), ["0 %", "93 %", "99.6 %", "100 %"]);
        assert_eq!([5.5 * MIB, 400.0 * MIB, 2048.0 * MIB].map(shown), ["5.5 MiB", "400 MiB", "2 GiB"]);
        assert_eq!(option(256.0 * MIB), "256M");
    }
}
