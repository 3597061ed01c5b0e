//! The dates of `time` in a key.

use time::{Date, OffsetDateTime, UtcOffset};

use super::{KeyPart, moment};
use crate::key::{KeyError, KeyWriter};

impl KeyPart for Date {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        key.text(&self.to_string())
    }
}

impl KeyPart for OffsetDateTime {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        // At the ends of the calendar another offset may be out of range.
        let Some(utc) = self.checked_to_offset(UtcOffset::UTC) else {
            return key.text(&self.unix_timestamp_nanos().to_string());
        };
        let time = [utc.hour().into(), utc.minute().into(), utc.second().into(), utc.nanosecond()];
        key.text(&moment(&utc.date(), time))
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
        assert_eq!(key(&Date::from_ordinal_date(2026, 9).unwrap()), "2026-01-09");
    }

    #[test]
    fn a_moment_has_one_spelling_in_every_zone() {
        let utc = OffsetDateTime::from_unix_timestamp(1_768_001_400).unwrap();
        let berlin = utc.to_offset(UtcOffset::from_hms(1, 0, 0).unwrap());
        assert_eq!(key(&utc), "2026-01-09T23%3A30%3A00Z");
        assert_eq!(key(&berlin), key(&utc));
        assert_eq!(key(&utc.replace_millisecond(500).unwrap()), "2026-01-09T23%3A30%3A00.5Z");
    }
}
