//! One JSON line per figure, on standard output.
//!
//! Owns the contestant's half of the protocol: `{"metric":…,"value":…}`, `{"note":…}`, `{"not_offered":…}`,
//! `{"failed":…}`. Written by hand, so that no crate is counted for it.

use std::io::Write as _;

/// Says a figure.
pub(crate) fn figure(metric: &str, value: f64) {
    line(&format!(
        "{{\"metric\":{},\"value\":{value}}}",
        quoted(metric)
    ));
}

/// Says what a reader of the figures should know.
pub(crate) fn note(text: &str) {
    line(&format!("{{\"note\":{}}}", quoted(text)));
}

/// Says that the system cannot do this.
pub(crate) fn not_offered(why: &str) {
    line(&format!("{{\"not_offered\":{}}}", quoted(why)));
}

/// Says that the system was to do this and did not.
pub(crate) fn failed(why: &str) {
    line(&format!("{{\"failed\":{}}}", quoted(why)));
}

/// Writes at once: the runner takes the time of a line, and may kill this process after it.
fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // A runner that is gone wants no figures.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_text_is_quoted_for_json() {
        assert_eq!(quoted("a \"b\"\\\n"), r#""a \"b\"\\ ""#);
    }
}
