//! Durations as people write them in an attribute.

use std::time::Duration;

/// A duration in the largest unit that makes it a whole number: `90s`, `2h`.
pub(crate) fn short(time: Duration) -> String {
    let millis = time.as_millis();
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
    ];
    let whole = |(unit, _): &&(u128, _)| millis >= *unit && millis.is_multiple_of(*unit);
    match units.iter().find(whole) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_the_largest_unit_that_fits() {
        for (millis, text) in [
            (0, "0ms"),
            (1500, "1500ms"),
            (90_000, "90s"),
            (60_000, "1m"),
            (7_200_000, "2h"),
            (86_400_000, "1d"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(short(Duration::from_millis(millis)), text);
        }
    }
}
