//! Dates as `nvidia-smi` writes them, in universal time.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // the epoch was a Thursday

#[derive(Debug, Clone, Copy)]
pub(crate) struct Date {
    seconds: u64,
    milliseconds: u32,
}

impl Date {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            seconds: since.as_secs(),
            milliseconds: since.subsec_millis(),
        }
    }

    /// `Tue Dec  1 01:24:28 2026`
    pub(super) fn long(self) -> String {
        let (year, month, day) = self.civil();
        let weekday = usize::try_from(self.days() % 7)
            .ok()
            .and_then(|place| WEEKDAYS.get(place))
            .unwrap_or(&"");
        let month = usize::try_from(month - 1)
            .ok()
            .and_then(|place| MONTHS.get(place))
            .unwrap_or(&"");
        format!("{weekday} {month} {day:>2} {} {year}", self.time())
    }

    /// `2026/12/01 01:24:28.123`
    pub(super) fn short(self) -> String {
        let (year, month, day) = self.civil();
        format!("{year}/{month:02}/{day:02} {}.{:03}", self.time(), self.milliseconds)
    }

    /// `2026-12-01 01:24:28.123`
    pub(crate) fn iso(self) -> String {
        self.short().replace('/', "-")
    }

    fn time(self) -> String {
        let seconds = self.seconds % 86_400;
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }

    fn days(self) -> u64 {
        self.seconds / 86_400
    }

    /// Year, month and day in the Gregorian calendar. Counting from a March makes the leap day the last of its year.
    fn civil(self) -> (u64, u64, u64) {
        let days = self.days() + 719_468; // from 1 March of the year 0
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        (era * 400 + year_of_era + u64::from(month <= 2), month, day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, long: &str, short: &str) {
        let date = Date {
            seconds,
            milliseconds: 7,
        };
        assert_eq!((date.long().as_str(), date.short().as_str()), (long, short));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        check(0, "Thu Jan  1 00:00:00 1970", "1970/01/01 00:00:00.007");
        check(951_782_399, "Mon Feb 28 23:59:59 2000", "2000/02/28 23:59:59.007");
        check(951_782_400, "Tue Feb 29 00:00:00 2000", "2000/02/29 00:00:00.007");
        check(1_796_088_268, "Tue Dec  1 01:24:28 2026", "2026/12/01 01:24:28.007");
    }
}
