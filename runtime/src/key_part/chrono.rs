//! The dates of `chrono` in a key.

use chrono::{DateTime, NaiveDate, TimeZone, Timelike as _, Utc};

use super::{KeyPart, moment};
use crate::key::{KeyError, KeyWriter};

impl KeyPart for NaiveDate {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        key.text(&self.to_string())
    }
}

impl<Tz: TimeZone> KeyPart for DateTime<Tz> {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        let utc = self.with_timezone(&Utc);
        let time = [utc.hour(), utc.minute(), utc.second(), utc.nanosecond()];
        key.text(&moment(&utc.date_naive(), time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(part: &impl KeyPart) -> String {
        KeyWriter::new().part("part", part).and_then(KeyWriter::finish).unwrap().as_str().to_owned()
    }

    #[test]
    fn a_date_is_iso_8601() {
        assert_eq!(key(&NaiveDate::from_ymd_opt(2026, 1, 9).unwrap()), "2026-01-09");
    }

    #[test]
    fn a_moment_has_one_spelling_in_every_zone() {
        let utc = Utc.with_ymd_and_hms(2026, 1, 9, 23, 30, 0).unwrap();
        let berlin = utc.with_timezone(&chrono::FixedOffset::east_opt(3600).unwrap());
        assert_eq!(key(&utc), "2026-01-09T23%3A30%3A00Z");
        assert_eq!(key(&berlin), key(&utc));
        assert_eq!(key(&utc.with_nanosecond(500_000_000).unwrap()), "2026-01-09T23%3A30%3A00.5Z");
        assert_eq!(key(&utc.with_nanosecond(1).unwrap()), "2026-01-09T23%3A30%3A00.000000001Z");
    }
}
