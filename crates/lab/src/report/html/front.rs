//! The page of all experiments: a first screen that anybody understands, and everything else behind folds.

use super::page::{self, escape};
use super::svg::{self, WIDTH};
use super::{Colours, Seen, chip, environment, section, targets};
use crate::report::headlines::{self, Bar, Headline};
use crate::report::{figures, groups};
use crate::result::{Part, Report};
use std::fmt::Write as _;

/// The whole page of a report with several experiments.
pub(super) fn render(report: &Report) -> String {
    let colours = Colours::new(report);
    let mut body = header(report, &colours);
    body += "<div class=\"headlines\">\n";
    for headline in headlines::of(report) {
        body += &card(&headline, &colours);
    }
    body += "</div>\n";
    body += &page::notice("wrong", "What went wrong", &report.errors);
    body += &page::notice("warn", "Before you believe a figure", &report.warnings);
    body += "<h2>Everything that was measured, and how</h2>\n";
    let mut seen = Seen::default();
    for part in &report.parts {
        body += &experiment(report, part, &colours, &mut seen);
    }
    let _ = write!(
        body,
        "<details class=\"part\">\n<summary>Targets, machine and command</summary>\n{}{}</details>\n",
        targets(report, &colours),
        environment(report)
    );
    page::page(&format!("{} · Vellum lab", report.title), &body)
}

fn header(report: &Report, colours: &Colours) -> String {
    let names: String = headlines::targets(report)
        .iter()
        .map(|(name, promise)| {
            format!("<li>{} <span class=\"promise\">{promise}</span></li>\n", chip(colours.class(name), name))
        })
        .collect();
    let of = |name: &str| {
        report.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let machine: Vec<String> = ["processors", "memory"].into_iter().filter_map(of).collect();
    let tags = [(report.smoke_test().is_some(), "smoke test"), (report.was_busy(), "busy machine")];
    let tags = tags
        .iter()
        .filter(|(shown, _)| *shown)
        .map(|(_, text)| format!(" <span class=\"tag\">{text}</span>"));
    let tags: String = tags.collect();
    let day = report.started.get(..10).unwrap_or_default();
    format!(
        "<header>\n<p class=\"over\">Vellum lab · all experiments</p>\n<h1>{}{tags}</h1>\n<p class=\"meta\">Measured on {day} on \
         one machine ({}) in {}. Each bar's line spans the rounds.</p>\n<ul class=\"names\">\n{names}</ul>\n</header>\n",
        escape(&report.title),
        escape(&machine.join(", ")),
        figures::seconds(report.seconds)
    )
}

fn card(headline: &Headline, colours: &Colours) -> String {
    format!(
        "<article class=\"headline\" data-experiment=\"{}\">\n<p class=\"over\">{}</p>\n<p class=\"finding\">{}</p>\n<figure>\n<figcaption>{}</figcaption>\n\
         {}\n</figure>\n<p class=\"note\">{} <a href=\"#{}\">All figures</a></p>\n</article>\n",
        headline.experiment,
        escape(headline.question),
        escape(&headline.sentence),
        escape(&headline.caption),
        picture(headline, colours),
        escape(&headline.sure),
        escape(&headline.section)
    )
}

const LINE: f64 = 24.0;
/// The most letters of a name beside its bar.
const NAME_MOST: usize = 24;
/// Room for the figure and its spread.
const TEXT: f64 = 124.0;

fn picture(headline: &Headline, colours: &Colours) -> String {
    let most = |bar: &Bar| bar.spread.map_or(bar.value, |(_, high)| high.max(bar.value));
    let most = headline.bars.iter().map(most).fold(f64::MIN_POSITIVE, f64::max);
    let longest = headline.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let from = 14.0 + svg::LETTER * longest.min(NAME_MOST) as f64;
    let scale = (WIDTH - TEXT - from) / most;
    let mut parts = String::new();
    for (at, bar) in headline.bars.iter().enumerate() {
        let top = at as f64 * LINE + 4.0;
        let middle = top + 8.0;
        parts += &svg::text(from - 7.0, middle + 4.0, "name end", &svg::shorten(&bar.name, NAME_MOST));
        let (width, class) = ((bar.value * scale).max(1.0), colours.class(&bar.target));
        let _ = write!(
            parts,
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"16\" rx=\"2\" class=\"bar {class}\"/>"
        );
        if let Some((low, high)) = bar.spread.filter(|(low, high)| low < high) {
            let (low, high) = (from + low * scale, from + high * scale);
            parts += &svg::segment(low, middle, high, middle, "whisker");
        }
        parts += &svg::text(WIDTH - 54.0, middle + 4.0, "value end", &bar.text);
        parts += &svg::text(WIDTH, middle + 4.0, "tick end", &spread(bar));
    }
    let height = headline.bars.len() as f64 * LINE + 6.0;
    parts += &svg::segment(from, 1.0, from, height - 2.0, "axis");
    svg::picture("bars", height, &format!("{}: {}", headline.question, headline.caption), &parts)
}

/// "±3 %": half of what lies between the rounds' least and most.
fn spread(bar: &Bar) -> String {
    match bar.spread.filter(|_| bar.value > 0.0) {
        Some((low, high)) => format!("±{:.0} %", (high - low) / 2.0 / bar.value * 100.0),
        None => "1 round".to_string(),
    }
}

/// An experiment behind its fold: what was done, what it means, every picture and figure.
fn experiment(report: &Report, part: &Part, colours: &Colours, seen: &mut Seen) -> String {
    let floor = groups::floor(report);
    let sections: String = report
        .sections
        .iter()
        .filter(|section| section.experiment == part.experiment)
        .map(|each| section(each, floor, colours, seen))
        .collect();
    format!(
        "<details class=\"part\">\n<summary>{}</summary>\n<p class=\"lead\">{}</p>\n{}{sections}</details>\n",
        escape(&part.title),
        escape(&part.about),
        page::notice("means", "What it means", &part.findings)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn the_first_screen_has_a_card_for_each_experiment_and_folds_hold_the_rest() {
        let report = testing::whole();
        let text = render(&report);
        assert_eq!(text.matches("<article class=\"headline\"").count(), 6);
        let (first, rest) = text.split_once("Everything that was measured").unwrap();
        assert!(first.matches("data-kind=\"bars\"").count() == 6 && !first.contains("<details"));
        for section in &report.sections {
            assert!(rest.contains(&format!("<section id=\"{}\">", section.id)), "{}", section.id);
        }
        assert!(first.contains("±") && first.contains("sure by 90 % at least"));
        assert!(!text.contains("<script") && !text.contains("NaN"));
        if let Ok(path) = std::env::var("VELLUM_LAB_FRONT") {
            std::fs::write(path, &text).unwrap();
        }
    }
}
