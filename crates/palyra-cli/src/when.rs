//! Instants and spans as a person reads them, harmless to a terminal whatever the daemon sent.

use std::time::Duration;

use palyra_core::Timestamp;

use crate::safe;

/// How long ago, in one unit: `now`, `42s`, `5m`, `3h`, `12d`.
#[must_use]
pub fn age(at: &str, now: Timestamp) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => brief(now.since(at)),
        Err(_) => safe::line(at),
    }
}

/// The instant to the second, and how far away it is.
#[must_use]
pub fn instant(at: &str, now: Timestamp) -> String {
    let Ok(instant) = at.parse::<Timestamp>() else {
        return safe::line(at);
    };
    let distance = if instant > now {
        format!("in {}", span(instant.since(now)))
    } else {
        match brief(now.since(instant)).as_str() {
            "now" => "just now".to_owned(),
            past => format!("{past} ago"),
        }
    };
    format!("{} ({distance})", to_the_second(instant))
}

/// How long is left, or `over`.
#[must_use]
pub fn left(until: &str, now: Timestamp) -> String {
    match until.parse::<Timestamp>() {
        Ok(until) if until > now => span(until.since(now)),
        Ok(_) => "over".to_owned(),
        Err(_) => safe::line(until),
    }
}

/// A span in its two largest units: `850ms`, `9m 59s`, `2h 5m`.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let pair = |big: u64, b: &str, small: u64, s: &str| match small {
        0 => format!("{big}{b}"),
        _ => format!("{big}{b} {small}{s}"),
    };
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{seconds}.{}s", span.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn brief(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => "now".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `2026-01-31T12:00:00Z`, without the milliseconds that nobody reads.
fn to_the_second(instant: Timestamp) -> String {
    let whole = instant.to_string();
    match whole.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-15T09:01:01.042Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    #[test]
    fn ages() {
        for (at, shown) in [
            (NOW, "now"),
            ("2026-11-15T09:00:19Z", "42s"),
            ("2026-11-15T08:55:00Z", "6m"),
            ("2026-11-15T05:55:00Z", "3h"),
            ("2026-11-01T00:00:00Z", "14d"),
            ("2026-11-15T09:05:00Z", "now"),
            ("bad\u{1b}", "bad\\u{1b}"),
        ] {
            assert_eq!(age(at, now()), shown, "{at}");
        }
    }

    #[test]
    fn instants() {
        assert_eq!(
            instant("2026-11-15T09:11:01Z", now()),
            "2026-11-15T09:11:01Z (in 9m 59s)"
        );
        assert_eq!(
            instant("2026-11-15T09:00:01.500Z", now()),
            "2026-11-15T09:00:01Z (59s ago)"
        );
        assert_eq!(left("2026-11-15T09:00:01Z", now()), "over");
    }

    #[test]
    fn spans() {
        for (millis, shown) in [
            (3, "3ms"),
            (1_250, "1.2s"),
            (59_999, "59s"),
            (60_000, "1m"),
            (7_500_000, "2h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), shown);
        }
    }
}
