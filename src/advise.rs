//! `vellum advise URI`: estimated hit ratios of other cache sizes, from the server's reads
//! (`vellumWorkingSet`).

use crate::cli::AdviseOptions;
use crate::failure::Failure;
use crate::server_client;
use base::bson::extended_json::to_relaxed;
use base::bson::{Builder, Document};
use std::fmt::Write as _;

const MIB: f64 = (1u64 << 20) as f64;
/// Number of listed collections and indexes.
const ROWS: usize = 20;
/// Listed cache sizes, as multiples of the server's cache.
const FACTORS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];

/// Queries a server and returns the output.
pub(crate) fn advise(options: &AdviseOptions) -> Result<String, Failure> {
    let (mut client, host) = server_client::connect_to_target(&options.target)?;
    let mut command = Builder::new();
    command.append(c"vellumWorkingSet", 1).append(c"$db", "admin");
    let reply = client.command(&command.finish()).map_err(|error| format!("{host}: {error}"))?;
    let reply = reply.view();
    if options.json {
        return Ok(to_relaxed(reply));
    }
    if reply.get("bounded").and_then(|bounded| bounded.as_bool()) == Some(false) {
        let reason = reply.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
        return Ok(format!("{host}: {reason}"));
    }
    text(&host, reply).ok_or_else(|| format!("{host}: the reply has no working set").into())
}

/// Reads in a time span.
#[derive(Debug, Default)]
struct Span {
    reads: i64,
    hit_rate: Option<f64>,
    /// Cache size beyond which the hit ratio does not grow.
    enough: Option<f64>,
    /// Pairs of cache size and hit ratio.
    curve: Vec<(f64, f64)>,
}

impl Span {
    fn read(document: Document<'_>, name: &str) -> Option<Span> {
        let document = document.get(name)?.as_document()?;
        let number = |name: &str| document.get(name).and_then(|value| value.as_number()).map(|n| n.to_f64());
        let mut curve = Vec::new();
        for point in document.get("curve")?.as_array()?.iter() {
            let point = point.as_document()?;
            let number = |name: &str| point.get(name)?.as_number().map(|number| number.to_f64());
            curve.push((number("bytes")?, number("hitRate")?));
        }
        let (hit_rate, enough) = (number("hitRate"), number("enoughBytes"));
        Some(Span { reads: document.get("reads")?.as_i64()?, hit_rate, enough, curve })
    }

    /// Returns the hit ratio of a cache size.
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

    /// Formats a line of the table.
    fn line(&self, name: &str, wide: usize, cache: f64) -> String {
        let shares = FACTORS.map(|factor| format!("{:>9}", percent(self.at(cache * factor)))).join("");
        let hits = self.hit_rate.map_or("-".to_string(), percent);
        let enough = self.enough.map_or("-".to_string(), option);
        format!("{name:<wide$} {:>12} {hits:>7}{shares} {enough:>9}\n", self.reads)
    }
}

/// Formats the table: all reads in the last hour and since the start, then collections and indexes
/// by reads.
fn text(host: &str, reply: Document<'_>) -> Option<String> {
    let number = |name: &str| reply.get(name)?.as_i64();
    let cache = number("cacheBytes")? as f64;
    let (hour, seconds) = (number("hourSeconds")?, number("seconds")?);
    let mut lines = vec![(format!("last {}", duration(hour)), Span::read(reply, "hour")?)];
    if seconds > hour {
        lines.push((format!("last {}", duration(seconds)), Span::read(reply, "start")?));
    }
    let parts: Vec<_> = reply.get("collections")?.as_array()?.iter().collect();
    for part in parts.iter().take(ROWS) {
        let part = part.as_document()?;
        let mut name = part.get("ns")?.as_str()?.to_string();
        if let Some(index) = part.get("index").and_then(|index| index.as_str()) {
            let _ = write!(name, ", index {index}");
        }
        lines.push((name, Span::read(part, "start")?));
    }
    let mut text = format!("{host}: --cache-size {}", option(cache));
    let sampled = number("sampledOneIn")?;
    if sampled > 1 {
        let _ = write!(text, ", sampling one page in {sampled}");
    }
    let wide = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let sizes = FACTORS.map(|factor| format!("{:>9}", option(cache * factor))).join("");
    let _ = write!(text, "\n\n{:<wide$} {:>12} {:>7}{sizes} {:>9}\n", "", "reads", "hits", "enough");
    for (name, span) in &lines {
        text.push_str(&span.line(name, wide, cache));
    }
    if parts.len() > ROWS {
        let _ = writeln!(text, "and {} more", parts.len() - ROWS);
    }
    if lines.iter().all(|(_, span)| span.reads == 0) {
        text.push_str(
            "\nNo reads yet: run your application's usual reads for some minutes, then run this command \
             again.\n",
        );
    }
    Some(text.trim_end().to_string())
}

/// Formats a ratio in percent. Only an exact ratio of 1 is shown as 100 %.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        percent if percent >= 99.95 => "100 %".to_string(),
        percent if percent > 98.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats a size for --cache-size.
fn option(bytes: f64) -> String {
    let (size, unit) = match bytes {
        bytes if bytes >= 1024.0 * MIB => (bytes / MIB / 1024.0, "G"),
        bytes if bytes >= MIB => (bytes / MIB, "M"),
        bytes => (bytes / 1024.0, "K"),
    };
    if size < 10.0 && size.fract() > 0.05 { format!("{size:.1}{unit}") } else { format!("{size:.0}{unit}") }
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

    #[test]
    fn a_line_has_the_hit_rate_of_each_size() {
        let curve = vec![(16.0 * MIB, 0.3), (64.0 * MIB, 0.93), (256.0 * MIB, 0.988), (400.0 * MIB, 0.99)];
        let span = Span { reads: 1000, hit_rate: Some(0.93), enough: Some(400.0 * MIB), curve };
        let line = span.line("a.b", 5, 64.0 * MIB);
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "%").collect();
        assert_eq!(words, ["a.b", "1000", "93", "30", "51", "93", "95", "99", "400M"]);
        let none = Span { reads: 5, hit_rate: Some(0.0), ..Span::default() };
        assert!(
            none.line("a.b", 5, MIB).trim_end().ends_with('-'),
            "no size is enough where nothing was read twice"
        );
    }

    #[test]
    fn shares_and_sizes_have_their_units() {
        assert_eq!([0.0, 0.934, 0.996, 0.9999].map(percent), ["0 %", "93 %", "99.6 %", "100 %"]);
        assert_eq!([5.5 * MIB, 256.0 * MIB, 2048.0 * MIB].map(option), ["5.5M", "256M", "2G"]);
    }
}
