//! Time zones: by Olson name from the bundled database, or by offset.

use super::calendar::{DAY, MINUTE, SECOND};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use std::sync::LazyLock;

/// Bundled, so a binary gives equal results on every machine.
static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone.
#[derive(Clone, Debug)]
pub(crate) enum Zone {
    /// A constant offset from UTC in milliseconds.
    Fixed(i64),
    /// An Olson zone with its history of offsets.
    Named(TimeZone),
}

impl Zone {
    /// Universal time.
    pub(crate) const UTC: Zone = Zone::Fixed(0);

    /// Parses `Europe/London`, `UTC`, `+02`, `+0230` or `+02:30`.
    pub(crate) fn parse(text: &str) -> Option<Zone> {
        if let Some(offset) = parse_offset(text) {
            return Some(Zone::Fixed(offset));
        }
        if text == "UTC" {
            return Some(Zone::UTC);
        }
        // The library ignores the case of names; MongoDB does not.
        DATABASE.get(text).ok().filter(|zone| zone.iana_name() == Some(text)).map(Zone::Named)
    }

    /// Returns the offset from UTC at an instant, both in milliseconds.
    pub(crate) fn offset_at(&self, utc: i64) -> i64 {
        match self {
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                let clamped = utc.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
                let instant = Timestamp::from_millisecond(clamped).unwrap_or(Timestamp::UNIX_EPOCH);
                i64::from(zone.to_offset(instant).seconds()) * SECOND
            }
        }
    }

    /// Converts an instant to local time.
    pub(crate) fn to_local(&self, utc: i64) -> i64 {
        utc.saturating_add(self.offset_at(utc))
    }

    /// Whether daylight time is in force at an instant.
    fn is_daylight(&self, utc: i64) -> bool {
        match self {
            Zone::Fixed(_) => false,
            Zone::Named(zone) => {
                Timestamp::from_millisecond(utc).is_ok_and(|utc| zone.to_offset_info(utc).dst().is_dst())
            }
        }
    }

    /// Converts a local time to an instant. A skipped time moves forward by the clock change. An ambiguous
    /// time has two instants. The result is the one with the state of the instant `model`: daylight or standard time.
    pub(crate) fn to_utc(&self, local: i64, model: i64) -> i64 {
        let before = self.offset_at(local.saturating_sub(DAY));
        let after = self.offset_at(local.saturating_add(DAY));
        let (first, second) = (local.saturating_sub(before), local.saturating_sub(after));
        if before != after && self.offset_at(first) != before && self.offset_at(second) == after {
            return second;
        }
        if before > after && self.offset_at(first) == before && self.offset_at(second) == after {
            // Without daylight time on either side, MongoDB takes the later instant east of Greenwich.
            let earlier = match (self.is_daylight(model), self.offset_at(local) == before) {
                (daylight, true) => daylight || !self.is_daylight(first),
                (daylight, false) => daylight && !self.is_daylight(second),
            };
            return if earlier { first } else { second };
        }
        first
    }
}

/// Parses `+hh`, `+hhmm` or `+hh:mm` into milliseconds.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let number =
        |part: &str| if part.bytes().all(|b| b.is_ascii_digit()) { part.parse::<i64>().ok() } else { None };
    let (hours, minutes) = match digits.len() {
        2 => (number(digits)?, 0),
        4 => (number(digits.get(..2)?)?, number(digits.get(2..)?)?),
        5 if digits.get(2..3) == Some(":") => (number(digits.get(..2)?)?, number(digits.get(3..)?)?),
        _ => return None,
    };
    Some(sign * (hours * 60 + minutes) * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::super::calendar::{Civil, HOUR};
    use super::*;

    fn local(year: i64, month: i64, day: i64, hour: i64, minute: i64) -> i64 {
        Civil { year, month, day, hour, minute, second: 0, milli: 0 }.to_local().unwrap()
    }

    #[test]
    fn offsets_and_names() {
        assert_eq!(parse_offset("+0530"), Some(330 * MINUTE));
        assert_eq!(parse_offset("-03:30"), Some(-210 * MINUTE));
        assert_eq!(parse_offset("+05"), Some(5 * HOUR));
        assert_eq!(parse_offset("+5"), None);
        assert!(Zone::parse("Nowhere/Land").is_none());
        assert!(Zone::parse("europe/london").is_none());
        let london = Zone::parse("Europe/London").unwrap();
        assert_eq!(london.offset_at(local(2017, 7, 1, 0, 0)), HOUR);
        assert_eq!(london.offset_at(local(2017, 1, 1, 0, 0)), 0);
    }

    #[test]
    fn local_times_around_changes_of_the_clock() {
        let zone = Zone::parse("America/New_York").unwrap();
        // A skipped time: 2:30 becomes 3:30, daylight time.
        assert_eq!(zone.to_utc(local(2020, 3, 8, 2, 30), 0), local(2020, 3, 8, 7, 30));
        assert_eq!(zone.to_utc(local(2020, 3, 8, 3, 30), 0), local(2020, 3, 8, 7, 30));
        assert_eq!(zone.to_utc(local(2020, 11, 1, 3, 0), 0), local(2020, 11, 1, 8, 0));
    }

    #[test]
    fn ambiguous_times_keep_the_state_of_the_model() {
        let summer = local(2020, 7, 1, 0, 0);
        for (name, ambiguous, daylight, standard) in [
            (
                "America/New_York",
                local(2020, 11, 1, 1, 30),
                local(2020, 11, 1, 5, 30),
                local(2020, 11, 1, 6, 30),
            ),
            (
                "Europe/Paris",
                local(2024, 10, 27, 2, 30),
                local(2024, 10, 27, 0, 30),
                local(2024, 10, 27, 1, 30),
            ),
            (
                "Atlantic/Azores",
                local(2024, 10, 27, 0, 30),
                local(2024, 10, 27, 0, 30),
                local(2024, 10, 27, 1, 30),
            ),
        ] {
            let zone = Zone::parse(name).unwrap();
            assert_eq!(zone.to_utc(ambiguous, summer), daylight, "{name}");
            assert_eq!(zone.to_utc(ambiguous, 0), standard, "{name}");
        }
    }
}
