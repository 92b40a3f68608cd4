//! What a test is told: calls with their arguments, and what is wrong with the test itself.
//!
//! Owns the texts. Failure messages are for the person who wrote the test, so they show values; what becomes part of a
//! parking report does not.

use std::fmt::Write as _;
use std::time::Duration;

use rmpv::Value;

use super::standing::Stub;
use crate::call::StepDefinition;
use crate::engine::tested::PlannedAttempt;
use crate::payload::{PayloadError, Payloads};
use crate::replay::show_value;

/// A call as it would be written: `charge(customer: "ada", cents: 500)`.
pub(super) fn call(
    definition: &StepDefinition,
    input: Option<&[u8]>,
    payloads: &Payloads,
) -> String {
    let values = input.and_then(|input| payloads.value(input).ok());
    let Some(Value::Map(entries)) = values else {
        return format!("{}(arguments that have no payload)", definition.name);
    };
    let shown = entries.iter().map(|(name, value)| {
        let name = name.as_str().unwrap_or("?");
        format!("{name}: {}", show_value(value))
    });
    format!(
        "{}({})",
        definition.name,
        shown.collect::<Vec<_>>().join(", ")
    )
}

/// A payload without its type.
pub(crate) fn show_payload(payloads: &Payloads, payload: &[u8]) -> String {
    let value = payloads.value(payload);
    value.map_or_else(|error| error.to_string(), |value| show_value(&value))
}

/// The arguments as a closure takes them: nothing, the only one, or a tuple of all.
fn pattern(definition: &StepDefinition) -> String {
    match definition.args {
        [] => "()".into(),
        [only] => (*only).into(),
        all => format!("({})", all.join(", ")),
    }
}

fn signature(definition: &StepDefinition) -> String {
    let args = definition.args.iter().zip(definition.about.types);
    let args: Vec<_> = args.map(|(name, ty)| format!("{name}: {ty}")).collect();
    format!("({}) -> {}", args.join(", "), definition.about.returns)
}

/// A step without a stub, where that is refused.
pub(super) fn unstubbed(attempt: &PlannedAttempt) -> String {
    let PlannedAttempt {
        definition, site, ..
    } = attempt;
    let name = definition.name;
    format!(
        "step `{name}`, called at {site}, has no stub, and this test refuses to run such steps\n  \
         add a stub: `.stub::<{name}>(|{}| ..)`, which returns `{}`\n  \
         or have it run: `.run_for_real::<{name}>()`",
        pattern(definition),
        definition.about.returns,
    )
}

/// Arguments that are not what a stub takes: what may be logged, and what shows values.
pub(super) fn undecodable(
    attempt: &PlannedAttempt,
    stub: &Stub,
    problem: &PayloadError,
    payloads: &Payloads,
) -> (String, String) {
    let PlannedAttempt {
        definition, site, ..
    } = attempt;
    let name = definition.name;
    let report = format!(
        "the arguments of step `{name}`, called at {site}, are not what its stub takes\n  \
         the step: {}\n  \
         the stub takes: {}\n  \
         give the step a stub that takes them as they are, owned: `.stub::<{name}>(|{}| ..)`",
        signature(definition),
        stub.takes,
        pattern(definition),
    );
    let why = match problem {
        PayloadError::Deserialize { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let made = call(definition, attempt.input.as_deref(), payloads);
    (report, format!("  the call: {made}\n  the problem: {why}"))
}

/// A stub, or a closure that is asked for failures, that panicked.
pub(super) fn stand_in_panicked(definition: &StepDefinition) -> String {
    let name = definition.name;
    format!(
        "what stands in for step `{name}` panicked, which fails the test\n  \
         to have the step itself panic, as a bug in it would: `.panic_in::<{name}>(\"message\")`"
    )
}

/// A time in words: `1 h 30 min`.
pub(crate) fn in_words(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let (mut left, mut text) = (time.as_secs(), String::new());
    for (size, unit) in UNITS {
        let count = left / size;
        left %= size;
        if count > 0 {
            let gap = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{gap}{count} {unit}");
        }
    }
    match (text.is_empty(), time.subsec_millis()) {
        (true, millis) => format!("{millis} ms"),
        (false, _) => text,
    }
}
