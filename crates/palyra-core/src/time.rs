//! Time as a value: a UTC instant and the clock that gives it.

use std::time::Duration;

/// An instant in UTC, to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since 1970-01-01.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant moved forwards, stopping at the end of time instead of wrapping.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// How long from `earlier` to here; nothing when the clock went backwards.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// A text that is not an instant.
#[derive(Debug, Clone, thiserror::Error)]
#[error("`{0}` is not a time such as 2026-01-31T12:00:00Z")]
pub struct NotATime(String);

impl std::str::FromStr for Timestamp {
    type Err = NotATime;
    fn from_str(text: &str) -> Result<Self, NotATime> {
        text.parse::<jiff::Timestamp>()
            .map(|instant| Self(instant.as_millisecond()))
            .map_err(|_| NotATime(text.chars().take(64).collect()))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A span such as `500ms`, `30s`, `5m`, `1h30m` or `7d`; a bare number is seconds, as in `timeout(1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A text that is not a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotASpan {
    /// Not of the form.
    #[error("write a span such as `500ms`, `30s`, `5m`, `1h30m` or `7d`")]
    Form,
    /// Nothing at all.
    #[error("must be longer than 0")]
    Zero,
    /// Too long to mean anything, and to be held exactly in JSON.
    #[error("longer than a year")]
    TooLong,
}

impl Span {
    const LONGEST: Duration = Duration::from_secs(366 * 86_400);
}

impl std::str::FromStr for Span {
    type Err = NotASpan;
    fn from_str(given: &str) -> Result<Self, NotASpan> {
        let mut total = Duration::ZERO;
        let mut rest = given;
        while !rest.is_empty() {
            let (digits, tail) = split_where(rest, |letter| !letter.is_ascii_digit());
            let (unit, tail) = split_where(tail, |letter| letter.is_ascii_digit());
            let number: u64 = digits.parse().map_err(|_| NotASpan::Form)?;
            let part = match unit {
                "ms" => Some(Duration::from_millis(number)),
                "s" => Some(Duration::from_secs(number)),
                "m" => number.checked_mul(60).map(Duration::from_secs),
                "h" => number.checked_mul(3_600).map(Duration::from_secs),
                "d" => number.checked_mul(86_400).map(Duration::from_secs),
                "" if digits == given => Some(Duration::from_secs(number)),
                _ => return Err(NotASpan::Form),
            };
            let longer = part.and_then(|part| total.checked_add(part));
            total = longer
                .filter(|total| *total <= Self::LONGEST)
                .ok_or(NotASpan::TooLong)?;
            rest = tail;
        }
        match (given.is_empty(), total.is_zero()) {
            (true, _) => Err(NotASpan::Form),
            (false, true) => Err(NotASpan::Zero),
            (false, false) => Ok(Self(total)),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Splits in front of the first letter that `stops`.
fn split_where(text: &str, stops: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stops).unwrap_or(text.len()))
}

/// Where time comes from. Tests bring their own.
pub trait Clock: Send + Sync {
    /// The instant it is now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the wall clock"
        )]
        let now = std::time::SystemTime::now();
        let since_epoch = now
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let instant = Timestamp::from_millis(1_794_733_261_042);
        assert_eq!(instant.to_string(), "2026-11-15T09:01:01.042Z");
        assert_eq!(instant.to_string().parse::<Timestamp>().unwrap(), instant);
    }

    #[test]
    fn spans_are_read_as_people_write_them() {
        let span = |text: &str| text.parse::<Span>().map(|span| span.0);
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(span("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "s", "5 m", "-1s", "1w", "5m3", "1.5s"] {
            assert_eq!(span(wrong), Err(NotASpan::Form), "{wrong}");
        }
        assert_eq!(span("0s"), Err(NotASpan::Zero));
        assert_eq!(span("99999999999h"), Err(NotASpan::TooLong));
    }

    #[test]
    fn a_clock_set_back_gives_no_negative_span() {
        assert_eq!(
            Timestamp::from_millis(5).since(Timestamp::from_millis(9)),
            Duration::ZERO
        );
    }
}
