use std::{fmt, str::FromStr, time::Duration};

use serde::{Serialize, Serializer};

/// How long feature discovery waits between two rounds: a time, or for ever.
///
/// Read and written as Go's durations: `60s`, `1m0s`, `1.5h`, `300ms`; and the vendor's `infinite`.
///
/// ```
/// use gpu_sharing::config::Interval;
/// let interval: Interval = "1h0.5s".parse()?;
/// assert_eq!(interval, Interval::Every(std::time::Duration::from_millis(3_600_500)));
/// assert_eq!(interval.to_string(), "1h0m0.5s");
/// # Ok::<(), gpu_sharing::config::ParseIntervalError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// This long, and longer than no time at all.
    Every(Duration),
    /// No second round.
    Infinite,
}

impl Interval {
    /// From a bare number in a configuration file, which counts nanoseconds.
    pub(super) fn from_nanoseconds(number: i128) -> Result<Self, ParseIntervalError> {
        let fail = || ParseIntervalError {
            text: number.to_string(),
        };
        match u64::try_from(number) {
            Ok(0) | Err(_) => Err(fail()),
            Ok(number) if number >= i64::MAX as u64 => Ok(Self::Infinite),
            Ok(number) => Ok(Self::Every(Duration::from_nanos(number))),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Every(time) = self else {
            return f.pad("infinite");
        };
        let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
        if seconds == 0 {
            let (unit, size) = match nanoseconds {
                1_000_000.. => ("ms", 1_000_000),
                1_000.. => ("µs", 1_000),
                _ => ("ns", 1),
            };
            return f.pad(&format!(
                "{}{unit}",
                decimal(nanoseconds / size, nanoseconds % size, size)
            ));
        }
        let rest = decimal(u32::try_from(seconds % 60).unwrap_or(0), nanoseconds, 1_000_000_000);
        f.pad(&match (seconds / 3600, seconds / 60 % 60) {
            (0, 0) => format!("{rest}s"),
            (0, minutes) => format!("{minutes}m{rest}s"),
            (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
        })
    }
}

/// A number and its fraction, which is in parts of `size`, a power of ten.
fn decimal(whole: u32, fraction: u32, size: u32) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let width = usize::try_from(size.ilog10()).unwrap_or(0);
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

impl FromStr for Interval {
    type Err = ParseIntervalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "infinite" {
            return Ok(Self::Infinite);
        }
        nanoseconds(text)
            .and_then(|number| Self::from_nanoseconds(number).ok())
            .ok_or_else(|| ParseIntervalError { text: text.to_owned() })
    }
}

/// Numbers with units, one after the other, as Go's `time.ParseDuration` reads them.
fn nanoseconds(text: &str) -> Option<i128> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(scaled(number, unit)?)?;
        rest = after;
    }
    Some(total)
}

/// A decimal number times a unit, rounded down.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<i128>().ok()
        }
    };
    let whole = digits(whole)?.checked_mul(unit)?;
    // More digits are less than a nanosecond of an hour.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_add(digits(fraction)?.checked_mul(unit)? / scale)
}

impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is no interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an interval: expected a duration greater than zero, as in `60s` or `1h30m`, or `infinite`")]
pub struct ParseIntervalError {
    text: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn intervals_are_gos_durations() {
        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(
                text.parse::<Interval>().ok().map(|i| i.to_string()).as_deref(),
                expected,
                "{text}"
            );
        }
        check("60s", Some("1m0s"));
        check("1.5h", Some("1h30m0s"));
        check("300ms", Some("300ms"));
        check("1500us", Some("1.5ms"));
        check("1h2m3.004s", Some("1h2m3.004s"));
        check(".5s", Some("500ms"));
        check("infinite", Some("infinite"));
        check("9223372036854775807ns", Some("infinite"));
        check("", None);
        check("60", None);
        check("0s", None);
        check("-1s", None);
        check("1.2.3s", None);
        check("s", None);
        check(".s", None);
        check("1d", None);
        check("1s x", None);
        check("99999999999999999999999999999999999999999h", None);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "[0-9.]{0,30}[a-zµ]{0,3}.*") {
            let _ = text.parse::<Interval>();
        }

        #[test]
        fn intervals_survive_text(nanoseconds in 1i128..i128::from(i64::MAX)) {
            let interval = Interval::from_nanoseconds(nanoseconds).unwrap();
            prop_assert_eq!(interval.to_string().parse::<Interval>().unwrap(), interval);
        }
    }
}
