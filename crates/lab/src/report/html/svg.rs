//! Plots as SVG text: scales, axes, lines and marks, and nothing that knows about servers.
//!
//! Every plot is [`WIDTH`] wide in its own units and is stretched to its column, which the page
//! keeps near that many pixels: so letters have one size everywhere, on a phone too. Colours
//! come from classes, which the page's style gives for light and dark.

use std::fmt::Write as _;

/// The width of every picture.
pub(crate) const WIDTH: f64 = 400.0;

/// About how wide a letter of a label is.
pub(crate) const LETTER: f64 = 6.4;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 14.0;

/// Text in which nothing is markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // What XML has no place for.
            control if control.is_control() && control != '\n' => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Text of at most this many characters, the end left out.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The picture: what it shows, for those who can't see it, and its parts.
///
/// `kind` says how it is read, for who looks at it by a program.
pub(crate) fn picture(kind: &str, height: f64, title: &str, parts: &str) -> String {
    let title = escape(title);
    format!(
        "<svg data-kind=\"{kind}\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>{parts}</svg>"
    )
}

/// A piece of text; `class` says its colour and where it is anchored.
pub(crate) fn text(x: f64, y: f64, class: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escape(text))
}

/// A straight line.
pub(crate) fn segment(x1: f64, y1: f64, x2: f64, y2: f64, class: &str) -> String {
    format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>")
}

/// Which numbers an axis shows, and how they are written.
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    label: String,
    ticks: Vec<(f64, String)>,
}

impl Scale {
    /// From the lowest to the highest, evenly; from 0 if that isn't far off.
    pub(crate) fn linear(values: &[f64], label: &str, format: fn(f64) -> String) -> Scale {
        let (low, high) = ends(values, |value| value.is_finite()).unwrap_or((0.0, 1.0));
        let low = if low > 0.0 && low < high * 0.8 { 0.0 } else { low };
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        let step = step(high - low);
        let first = (low / step).floor() as i64;
        let ticks = (first..first + 12).map(|tick| tick as f64 * step);
        let ticks = ticks.take_while(|tick| *tick < high + step).map(|tick| (tick, tidy(&format(tick))));
        let ticks: Vec<_> = ticks.collect();
        let ends = ticks.first().zip(ticks.last()).map_or((low, high), |(first, last)| (first.0, last.0));
        Scale { low: ends.0, high: ends.1, log: false, label: label.to_string(), ticks }
    }

    /// In powers of ten.
    pub(crate) fn log(values: &[f64], label: &str, format: fn(f64) -> String) -> Scale {
        let (low, high) = ends(values, |value| value.is_finite() && value > 0.0).unwrap_or((1.0, 10.0));
        let (low, high) = (low * 0.9, (high * 1.1).max(low * 2.0));
        let decades = (high / low).log10();
        let between: &[f64] = if decades < 0.6 {
            &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        } else if decades < 1.3 {
            &[1.0, 2.0, 3.0, 5.0, 7.0]
        } else if decades < 3.0 {
            &[1.0, 3.0]
        } else {
            &[1.0]
        };
        let every = (decades / 6.0).ceil().max(1.0) as i32;
        let first = low.log10().floor() as i32;
        let powers = (first..first + 40).step_by(usize::try_from(every).unwrap_or(1));
        let ticks = powers.flat_map(|power| between.iter().map(move |part| part * 10_f64.powi(power)));
        let ticks = ticks
            .filter(|tick| *tick >= low && *tick <= high)
            .map(|tick| (tick, tidy(&format(tick))))
            .collect();
        Scale { low, high, log: true, label: label.to_string(), ticks }
    }

    /// The same numbers with ticks of one's own.
    pub(crate) fn with_ticks(mut self, ticks: Vec<(f64, String)>) -> Scale {
        self.ticks = ticks.into_iter().filter(|(at, _)| (self.low..=self.high).contains(at)).collect();
        self
    }

    /// From 0 to 100, whatever the values are.
    pub(crate) fn percent(label: &str) -> Scale {
        let ticks = [0.0, 25.0, 50.0, 75.0, 100.0].map(|tick| (tick, format!("{tick:.0} %")));
        Scale { low: 0.0, high: 100.0, log: false, label: label.to_string(), ticks: ticks.to_vec() }
    }

    /// The numbers shown, and how they are written.
    pub(crate) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// The lowest and the highest number.
    pub(crate) fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// Where a number lies, 0 to 1; `None` for what the scale has no place for.
    pub(crate) fn share(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.log && value <= 0.0) {
            return None;
        }
        let share = match self.log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        Some(share.clamp(0.0, 1.0))
    }
}

fn ends(values: &[f64], counts: impl Fn(f64) -> bool) -> Option<(f64, f64)> {
    let values = || values.iter().copied().filter(|value| counts(*value));
    values().min_by(f64::total_cmp).zip(values().max_by(f64::total_cmp))
}

/// A label without the zeros behind its point: "2.50 s" is "2.5 s" on an axis.
fn tidy(label: &str) -> String {
    let (figure, unit) = label.split_once(' ').unwrap_or((label, ""));
    let figure =
        if figure.contains('.') { figure.trim_end_matches('0').trim_end_matches('.') } else { figure };
    if unit.is_empty() || figure == "0" { figure.to_string() } else { format!("{figure} {unit}") }
}

/// A round distance between ticks, of which about four fit.
fn step(range: f64) -> f64 {
    let rough = range / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let parts = [1.0, 2.0, 2.5, 5.0, 10.0];
    parts.into_iter().map(|part| part * power).find(|step| *step >= rough).unwrap_or(power * 10.0)
}

/// A picture with two axes.
pub(crate) struct Plot {
    title: String,
    height: f64,
    left: f64,
    x: Scale,
    y: Scale,
    marks: String,
}

impl Plot {
    /// An empty one; the title is for those who can't see it.
    pub(crate) fn new(title: &str, height: f64, x: Scale, y: Scale) -> Plot {
        let widest = y.ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        Plot {
            title: title.to_string(),
            height,
            left: widest as f64 * LETTER + 10.0,
            x,
            y,
            marks: String::new(),
        }
    }

    fn place(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        let (x, y) = (self.x.share(x)?, self.y.share(y)?);
        let across = self.left + x * (WIDTH - RIGHT - self.left);
        Some((across, self.height - BOTTOM - y * (self.height - BOTTOM - TOP)))
    }

    /// A line through points; its name is shown where a pointer rests on it.
    pub(crate) fn line(&mut self, class: &str, name: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in points.iter().filter_map(|(x, y)| self.place(*x, *y)) {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        if !path.is_empty() {
            let name = escape(name);
            let _ =
                write!(self.marks, "<path d=\"{path}\" class=\"line {class}\"><title>{name}</title></path>");
        }
    }

    /// A dot of these classes, with words shown where a pointer rests on it.
    pub(crate) fn dot(&mut self, class: &str, (x, y): (f64, f64), words: &str) {
        if let Some((x, y)) = self.place(x, y) {
            let words = escape(words);
            let _ = write!(
                self.marks,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" class=\"{class}\"><title>{words}</title></circle>"
            );
        }
    }

    /// What lies between two lines.
    pub(crate) fn band(&mut self, class: &str, below: &[(f64, f64)], above: &[(f64, f64)]) {
        let mut path = String::new();
        for (x, y) in below.iter().chain(above.iter().rev()).filter_map(|(x, y)| self.place(*x, *y)) {
            let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
        }
        if !path.is_empty() {
            let _ = write!(self.marks, "<path d=\"{path}Z\" class=\"band {class}\"/>");
        }
    }

    /// A triangle that points at a moment from above, with a few words beside it.
    pub(crate) fn flag(&mut self, class: &str, (x, y): (f64, f64), words: &str) {
        let Some((x, y)) = self.place(x, y) else { return };
        let (left, right, top) = (x - 4.5, x + 4.5, y - 9.0);
        let _ = write!(
            self.marks,
            "<path d=\"M{left:.1} {top:.1}L{right:.1} {top:.1}L{x:.1} {y:.1}Z\" class=\"flag {class}\"/>"
        );
        let (at, anchor) = if x > WIDTH * 0.7 { (left - 3.0, "end") } else { (right + 3.0, "start") };
        self.marks += &text(at, y - 1.0, &format!("strong {anchor}"), words);
    }

    /// The picture's text.
    pub(crate) fn finish(self) -> String {
        let (bottom, right) = (self.height - BOTTOM, WIDTH - RIGHT);
        let mut axes = String::new();
        for (value, label) in &self.y.ticks {
            let Some(share) = self.y.share(*value) else { continue };
            let y = bottom - share * (bottom - TOP);
            axes += &segment(self.left, y, right, y, "grid");
            axes += &text(self.left - 6.0, y + 4.0, "tick y end", label);
        }
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in &self.x.ticks {
            let Some(share) = self.x.share(*value) else { continue };
            let x = self.left + share * (right - self.left);
            axes += &segment(x, bottom, x, bottom + 4.0, "axis");
            let half = label.chars().count() as f64 * LETTER / 2.0;
            if x - half > free_from && x + half < WIDTH + 8.0 {
                axes += &text(x, bottom + 17.0, "tick x middle", label);
                free_from = x + half + LETTER;
            }
        }
        axes += &segment(self.left, bottom, right, bottom, "axis");
        axes += &text(0.0, 14.0, "label y start", &self.y.label);
        axes += &text(right, self.height - 5.0, "label x end", &self.x.label);
        picture("plot", self.height, &self.title, &(axes + &self.marks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    #[test]
    fn linear_ticks_are_round_and_cover_the_values() {
        let scale = Scale::linear(&[3.0, 97.0], "", plain);
        let ticks: Vec<_> = scale.ticks.iter().map(|(at, _)| *at).collect();
        assert_eq!(ticks, [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(scale.share(50.0), Some(0.5));
        assert_eq!(scale.share(f64::NAN), None);
    }

    #[test]
    fn percentages_end_at_a_hundred() {
        let scale = Scale::percent("hits %");
        assert_eq!((scale.ends(), scale.share(100.0)), ([0.0, 100.0], Some(1.0)));
        assert_eq!(scale.ticks().last().map(|(_, text)| text.as_str()), Some("100 %"));
    }

    #[test]
    fn log_ticks_lie_within_and_are_few() {
        let narrow = (0..40).map(|at| 0.7 + 0.1 * f64::from(at)).map(|low| (low, low * 1.4));
        for (low, high) in [1.5, 9.0, 1e3, 1e6, 1e12].map(|high| (0.7, high)).into_iter().chain(narrow) {
            let scale = Scale::log(&[low, high], "", plain);
            assert!((2..=9).contains(&scale.ticks.len()), "{low} {high}: {:?}", scale.ticks);
            assert!(scale.ticks.iter().all(|(at, _)| scale.share(*at).is_some()));
        }
        assert_eq!(Scale::log(&[1.0], "", plain).share(0.0), None);
    }

    #[test]
    fn no_values_or_equal_ones_still_make_a_picture() {
        for values in [&[][..], &[5.0], &[0.0, 0.0], &[-3.0], &[f64::INFINITY]] {
            let scales = [Scale::linear(values, "x", plain), Scale::log(values, "x", plain)];
            assert!(scales.iter().all(|scale| scale.high > scale.low), "{values:?}");
            let [x, y] = scales;
            let mut plot = Plot::new("t", 200.0, x, y);
            plot.line("c0", "n", &[(5.0, 5.0), (f64::NAN, 1.0)]);
            assert!(!plot.finish().contains("NaN"));
        }
    }

    #[test]
    fn text_is_never_markup() {
        assert_eq!(escape("<a b='c'>&\"\u{1}"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot; ");
        assert!(picture("plot", 10.0, "<b>", "").contains("aria-label=\"&lt;b&gt;\""));
        assert_eq!(shorten("abcdef", 4), "abc…");
    }

    #[test]
    fn axes_have_short_labels() {
        for (label, short) in [("2.50 s", "2.5 s"), ("1.00 ms", "1 ms"), ("100 µs", "100 µs"), ("0 µs", "0")]
        {
            assert_eq!(tidy(label), short);
        }
    }
}
