//! Figures that can be compared and limited: `p99>+10%`, `rate<-5%`.
//!
//! A new figure is a row of [`FIGURES`].

use crate::report::figures;
use crate::result::{Round, Row};

/// A figure of a row.
pub(crate) struct Figure {
    /// Name in a limit.
    pub(crate) name: &'static str,
    /// Title in a table.
    pub(crate) title: &'static str,
    of: fn(&Round) -> Option<f64>,
}

/// A figure, by its index in the list of all figures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Metric(usize);

const FIGURES: [Figure; 8] = [
    Figure { name: "rate", title: "ops/s", of: |round| Some(round.rate()) },
    Figure { name: "p50", title: "p50", of: |round| Some(round.latency.p50) },
    Figure { name: "p90", title: "p90", of: |round| Some(round.latency.p90) },
    Figure { name: "p95", title: "p95", of: |round| Some(round.latency.p95) },
    Figure { name: "p99", title: "p99", of: |round| Some(round.latency.p99) },
    Figure { name: "p999", title: "p99.9", of: |round| Some(round.latency.p999) },
    Figure { name: "max", title: "max", of: |round| Some(round.latency.max) },
    Figure { name: "cpu", title: "CPU/op", of: |round| round.cpu_microseconds },
];

impl Metric {
    pub(crate) const RATE: Metric = Metric(0);
    pub(crate) const P50: Metric = Metric(1);

    /// The figures shown by default.
    pub(crate) const SHOWN: [Metric; 3] = [Metric::RATE, Metric::P50, Metric(4)];

    pub(crate) fn all() -> impl Iterator<Item = Metric> {
        (0..FIGURES.len()).map(Metric)
    }

    pub(crate) fn figure(self) -> &'static Figure {
        &FIGURES[self.0]
    }

    /// Returns the figure over all rounds, if available.
    pub(crate) fn of(self, row: &Row) -> Option<f64> {
        self.of_round(&row.totals()).filter(|_| row.operations > 0)
    }

    /// Returns the figure of one round.
    pub(crate) fn of_round(self, round: &Round) -> Option<f64> {
        (self.figure().of)(round).filter(|value| *value > 0.0)
    }

    /// Formats the figure.
    pub(crate) fn text(self, value: f64) -> String {
        if self == Metric::RATE { figures::number(value) } else { figures::latency(value) }
    }
}

/// A limit of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) metric: Metric,
    /// True if larger ratios exceed it.
    above: bool,
    /// Limit of the ratio of after to before.
    ratio: f64,
    /// Original text.
    pub(crate) text: String,
}

impl Limit {
    /// Parses a limit.
    ///
    /// # Errors
    /// A message with the error and the correct syntax.
    pub(crate) fn parse(text: &str) -> Result<Limit, String> {
        let invalid = |message: &str| {
            format!(
                "'{text}' is not a limit: {message}. Write a metric, > or <, and a change in percent, such as \
                 'p99>+10%' or 'rate<-5%'"
            )
        };
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let at = compact.find(['>', '<']).ok_or_else(|| invalid("it has neither > nor <"))?;
        let (name, rest) = compact.split_at(at);
        let metric =
            Metric::all().find(|metric| [metric.figure().name, metric.figure().title].contains(&name));
        let names = FIGURES.map(|figure| figure.name.to_string());
        let metric =
            metric.ok_or_else(|| invalid(&format!("'{name}' is not one of {}", figures::list(&names))))?;
        let percent = rest[1..].strip_suffix('%').ok_or_else(|| invalid("it doesn't end with %"))?;
        let number: f64 = percent.parse().map_err(|_| invalid(&format!("'{percent}' is not a number")))?;
        if !number.is_finite() || number <= -100.0 {
            return Err(invalid("a change must be above -100%"));
        }
        let above = rest.starts_with('>');
        Ok(Limit { metric, above, ratio: 1.0 + number / 100.0, text: compact })
    }

    /// Returns true if a ratio of after to before exceeds the limit.
    pub(crate) fn passed(&self, ratio: f64) -> bool {
        if self.above { ratio > self.ratio } else { ratio < self.ratio }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_with_and_without_spaces() {
        let limit = Limit::parse("p99 > +10 %").unwrap();
        assert_eq!((limit.metric, limit.text.as_str()), (Metric(4), "p99>+10%"));
        assert!(limit.passed(1.11) && !limit.passed(1.1) && !limit.passed(0.5));
        let limit = Limit::parse("rate<-5%").unwrap();
        assert!(limit.passed(0.94) && !limit.passed(0.96) && !limit.passed(2.0));
        assert_eq!(Limit::parse("p99.9>0%").unwrap().metric, Metric(5));
        for metric in Metric::all() {
            assert_eq!(Limit::parse(&format!("{}>1%", metric.figure().name)).unwrap().metric, metric);
        }
    }

    #[test]
    fn errors_of_limits_name_the_reason() {
        for (text, message) in [
            ("p99", "neither > nor <"),
            ("p98>+1%", "'p98' is not one of rate, p50, p90, p95, p99, p999, max and cpu"),
            ("p99>10", "doesn't end with %"),
            ("p99>ten%", "'ten' is not a number"),
            ("p99>=10%", "'=10' is not a number"),
            ("rate<-100%", "above -100%"),
            ("rate<nan%", "above -100%"),
            ("p99>é%", "'é' is not a number"),
        ] {
            let error = Limit::parse(text).unwrap_err();
            assert!(error.contains(message) && error.contains("such as 'p99>+10%'"), "{text}: {error}");
        }
    }
}
