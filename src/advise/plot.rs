//! A curve drawn with characters.

use super::shown;

const WIDTH: usize = 60;
const HEIGHT: usize = 10;
/// Parts of a character's height.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// From which size to which a curve is drawn: where it begins to rise, to where it has risen, and what is marked.
pub(super) fn range(curve: &[(f64, f64)], cache: f64) -> Option<(f64, f64)> {
    let (first, last) = (curve.first()?.0, curve.last()?.0);
    let from = first.max(last / 4096.0).min(cache / 2.0).max(4096.0);
    Some((from, last.max(cache) * 1.5))
}

/// The share of hits over the size of the cache, the size that there is marked below.
pub(super) fn plot(curve: &[(f64, f64)], cache: f64) -> String {
    let Some((from, to)) = range(curve, cache) else { return String::new() };
    let span = super::Span { curve: curve.to_vec(), ..super::Span::default() };
    let size = |column: usize| from * (to / from).powf(column as f64 / (WIDTH - 1) as f64);
    let heights: Vec<f64> = (0..WIDTH).map(|column| span.at(size(column)) * HEIGHT as f64).collect();
    let mut text = String::new();
    for row in (0..HEIGHT).rev() {
        let label = match row + 1 {
            10 => "100 %",
            5 => " 50 %",
            _ => "     ",
        };
        let bars = heights.iter().map(|height| {
            let level = ((height - row as f64).clamp(0.0, 1.0) * 8.0).round() as usize;
            LEVELS.get(level).copied().unwrap_or(' ')
        });
        text.push_str(&format!("{label} │{}", bars.collect::<String>().trim_end()));
        text.push('\n');
    }
    let mark =
        ((cache / from).ln() / (to / from).ln() * (WIDTH - 1) as f64).round().clamp(0.0, 59.0) as usize;
    let axis: String = (0..WIDTH).map(|column| if column == mark { '┴' } else { '─' }).collect();
    text.push_str(&format!("  0 % └{axis}\n"));
    let (left, right, middle) = (shown(from), shown(to), format!("{} now", shown(cache)));
    let mut line: Vec<char> = vec![' '; WIDTH + 8];
    let mut put = |at: usize, words: &str| {
        let is_free = (at.saturating_sub(1)..at + words.chars().count() + 1)
            .all(|place| line.get(place).is_none_or(|there| *there == ' '));
        for (place, letter) in words.chars().enumerate().filter(|_| is_free) {
            if let Some(there) = line.get_mut(at + place) {
                *there = letter;
            }
        }
    };
    let half = middle.chars().count() / 2;
    put((mark + 7).saturating_sub(half).min(WIDTH + 8 - middle.chars().count()), &middle);
    put(7, &left);
    put(WIDTH + 7 - right.chars().count(), &right);
    text.push_str(line.iter().collect::<String>().trim_end());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_rises_from_left_to_right() {
        const MIB: f64 = (1u64 << 20) as f64;
        let text = plot(&[(MIB, 0.0), (64.0 * MIB, 0.5), (65.0 * MIB, 1.0)], 32.0 * MIB);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), HEIGHT + 2, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH + 8), "{text}");
        let filled =
            |line: &str| line.chars().filter(|letter| LEVELS.get(1..).unwrap().contains(letter)).count();
        let counts: Vec<usize> = lines.iter().take(HEIGHT).map(|line| filled(line)).collect();
        assert!(counts.is_sorted() && counts.first() > Some(&0) && counts.last() > Some(&20), "{text}");
        assert!(text.contains("32 MiB now") && text.contains("1 MiB") && text.contains("98 MiB"), "{text}");
        assert_eq!(plot(&[], MIB), "");
    }
}
