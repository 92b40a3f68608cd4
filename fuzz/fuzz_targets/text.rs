#![no_main]

use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use workflow_runtime::{Key, MessageId, RunCursor, RunId, StepId};

fuzz_target!(|text: &str| {
    if let Ok(run) = RunId::from_str(text) {
        assert_eq!(RunId::from_str(&run.to_string()), Ok(run));
    }
    let _ = StepId::from_str(text);
    let _ = MessageId::from_str(text);
    if let Ok(cursor) = RunCursor::from_str(text) {
        assert_eq!(RunCursor::from_str(&cursor.to_string()), Ok(cursor));
    }
    let _ = Key::from(text).to_string();
    let _ = Key::of((text, 1)).to_string();
    let _ = Key::business("order", text).to_string();
});
