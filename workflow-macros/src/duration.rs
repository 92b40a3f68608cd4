//! Durations in attribute texts: a whole number and `ms`, `s`, `m`, `h` or `d`.

/// Longest duration: a hundred years. Longer ones are slips of the pen, and this one still
/// fits every clock in the runtime.
const MAX_MILLIS: u64 = 100 * 365 * 24 * 60 * 60 * 1000;

const GRAMMAR: &str = "a duration is a whole number and `ms`, `s`, `m`, `h` or `d`";

/// Reads one duration as milliseconds.
pub(crate) fn single(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("{GRAMMAR}, and `{text}` is not")),
    };
    if number.is_empty() {
        return Err(format!("{GRAMMAR}, and `{text}` is not"));
    }
    let millis = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(scale));
    millis
        .filter(|millis| *millis <= MAX_MILLIS)
        .ok_or_else(|| format!("`{text}` is more than a hundred years"))
}

/// Reads `"1s"` as a fixed wait and `"200ms..30s"` as first and longest wait.
pub(crate) fn range(text: &str) -> Result<(u64, u64), String> {
    let Some((first, longest)) = text.split_once("..") else {
        let fixed = single(text)?;
        return Ok((fixed, fixed));
    };
    if first.is_empty() || longest.is_empty() {
        return Err("a range has two ends".into());
    }
    let (first, longest) = (single(first)?, single(longest)?);
    if first > longest {
        return Err("the first wait is longer than the longest".into());
    }
    Ok((first, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        let read = ["5ms", "5s", "5m", "5h", "5d"].map(|text| single(text).expect(text));
        assert_eq!(read, [5, 5_000, 300_000, 18_000_000, 432_000_000]);
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1.5s",
            "5 s",
            "5sec",
            "5s ",
            "99999999999999999999s",
        ] {
            assert!(single(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_has_a_first_and_a_longest_wait() {
        assert_eq!(range("200ms..30s"), Ok((200, 30_000)));
        assert_eq!(range("1s"), Ok((1_000, 1_000)));
        assert!(range("30s..1s").is_err());
        assert!(range("1s..").is_err());
        assert!(range("1s...5s").is_err());
    }
}
