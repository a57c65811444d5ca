//! Formatting of figures: three significant digits, separators of thousands, suitable units.
//!
//! Tables, charts and sentences format here, so a figure has equal digits everywhere.

/// Formats a number with three significant digits: "0.0123", "4.56", "78.9", "12,300".
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_string();
    }
    if size < 1e-9 {
        return "0".to_string();
    }
    // The magnitude of the rounded value: 9.999 is 10.0, not 10.00.
    let magnitude = (size * 1.0005).log10().floor() as i32;
    if magnitude >= 2 {
        let step = 10_f64.powi(magnitude - 2);
        return thousands((value / step).round() * step);
    }
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0).min(9);
    format!("{value:.decimals$}")
}

/// Formats a whole number with all digits: "1,234,567".
pub(crate) fn count(value: u64) -> String {
    thousands(value as f64)
}

/// Formats a number with separators of thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Formats a time in microseconds: "812 µs", "1.23 ms", "2.05 s".
pub(crate) fn latency(microseconds: f64) -> String {
    match microseconds {
        us if us < 999.5 => format!("{} µs", number(us)),
        us if us < 999_500.0 => format!("{} ms", number(us / 1e3)),
        us => format!("{} s", number(us / 1e6)),
    }
}

/// Formats a time in seconds.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => latency(s * 1e6),
        s => format!("{} min", number(s / 60.0)),
    }
}

/// Formats an amount of memory or storage: "512 B", "3.40 MB".
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b < 1e3 => format!("{b:.0} B"),
        b if b < 1e6 => format!("{} kB", number(b / 1e3)),
        b if b < 1e9 => format!("{} MB", number(b / 1e6)),
        b => format!("{} GB", number(b / 1e9)),
    }
}

/// Formats a ratio: "2.40×".
pub(crate) fn times(ratio: f64) -> String {
    format!("{}×", number(ratio))
}

/// Formats a ratio of after to before as a difference: "+12.3 %", "−5.00 %".
pub(crate) fn change(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    match percent {
        p if p.abs() < 0.005 => "±0 %".to_string(),
        p if p < 0.0 => format!("−{} %", short(-p)),
        p => format!("+{} %", short(p)),
    }
}

/// Formats a percentage with at most one decimal. Large percentages have none, since more digits are noise.
fn short(percent: f64) -> String {
    if percent < 10.0 { format!("{percent:.1}") } else { thousands(percent) }
}

/// Returns "1 connection", "8 connections".
pub(crate) fn plural(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{} {word}s", count(number)) }
}

/// Returns "a", "a and b", "a, b and c".
pub(crate) fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.012345, "0.0123"),
            (4.5678, "4.57"),
            (78.91, "78.9"),
            (9.999, "10.0"),
            (99.97, "100"),
            (123.4, "123"),
            (12_345.0, "12,300"),
            (1_234_567.0, "1,230,000"),
            (-1234.0, "-1,230"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
    }

    #[test]
    fn units_fit_the_size() {
        assert_eq!(latency(81.23), "81.2 µs");
        assert_eq!(latency(999.7), "1.00 ms");
        assert_eq!(latency(2_050_000.0), "2.05 s");
        assert_eq!(seconds(150.0), "2.50 min");
        assert_eq!(bytes(3_400_000), "3.40 MB");
        assert_eq!(bytes(12), "12 B");
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(change(1.1234), "+12 %");
        assert_eq!(change(0.95), "−5.0 %");
        assert_eq!(change(1.0), "±0 %");
        assert_eq!(change(12.0), "+1,100 %");
    }

    #[test]
    fn words_are_joined_as_in_a_sentence() {
        let words = ["a", "b", "c"].map(str::to_string);
        assert_eq!(list(&words), "a, b and c");
        assert_eq!(list(&words[..1]), "a");
        assert_eq!(plural(1, "round"), "1 round");
        assert_eq!(plural(2000, "round"), "2,000 rounds");
    }
}
