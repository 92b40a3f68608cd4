//! A ledger: the outside world of a user's test.
//!
//! Owns what was asked of it, by whom, under which key, and what it did. It survives the engine's crashes, as
//! a payment provider does. It tells on duplicates; it never looks into an engine.

mod assertions;
mod call;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

pub use self::assertions::Duplicate;
pub(super) use self::assertions::{Difference, tell_conflicts};
pub use self::call::{Answer, LedgerCall};
use crate::clock::Clock;
use crate::context::{Ambient, try_get_step_metadata, with_current};
use crate::payload::Payloads;

/// An outside world for tests: it acts when it is asked to, remembers every call, and tells on duplicates.
///
/// One that [honours keys](Ledger::honouring_keys) acts once per key, as payment providers do; one that
/// [ignores keys](Ledger::ignoring_keys) acts whenever it is asked, as most mail servers do. Clones are handles of the
/// same ledger: give one to the engine as a resource, or put it into a fake of your own client.
///
/// An *entry* is what was done, as anything that can be serialized: `"charged ada 500"`, `("charge", "ada", 500)`, a
/// struct. Entries are told apart by their content, so let it say enough: two orders of one customer are two entries.
///
/// ```
/// use workflow_runtime::testing::{Ledger, TestEngine};
/// use workflow_runtime::{Result, get_step_metadata, step, workflow};
///
/// #[step(effect = "payment")]
/// async fn charge(#[resource] ledger: &Ledger, customer: &str, cents: u64) -> Result<u64> {
///     let key = get_step_metadata().step_id;
///     Ok(ledger.post(key, ("charge", customer, cents))?.receipt)
/// }
///
/// #[workflow]
/// async fn checkout(customer: String) -> Result<u64> {
///     charge(&customer, 500).await
/// }
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<()> {
///     let ledger = Ledger::honouring_keys();
///     ledger.lose_answers(1); // the first charge works, and nobody hears of it
///     let engine = TestEngine::builder().register::<checkout>().resource(ledger.clone());
///     let engine = engine.open().await?;
///     let run = engine.start(checkout("ada".into())).await?;
///     assert_eq!(run.result().await?, 1);
///     assert_eq!(ledger.calls().len(), 2);
///     ledger.assert_each_once();
///     ledger.assert_entries([("charge", "ada", 500)]);
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Ledger {
    keys: Keys,
    book: Arc<Mutex<Book>>,
}

/// What a ledger makes of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    Honoured,
    Ignored,
}

#[derive(Default)]
struct Book {
    calls: Vec<LedgerCall>,
    receipts: u64,
    /// So many of the next calls fail.
    failing: u64,
    /// The answers to so many of the next calls are lost.
    losing: u64,
    /// The clock to go by where no step is asked.
    clock: Option<Clock>,
}

/// What a ledger answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Posted {
    /// The number of the entry, from 1. Asked again under a key that it honours, the ledger gives the first answer: the
    /// same number.
    pub receipt: u64,
    /// Whether something was done: `false` if it had been done before under this key.
    pub is_new: bool,
}

/// Says why a ledger did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// It was told to fail; nothing was done.
    #[error("the ledger failed, as it was told to, and did nothing")]
    Failed,
    /// It was told to lose its answer; it was done.
    #[error("the ledger's answer was lost, as it was told to")]
    AnswerLost,
    /// The key was used for something else before; nothing was done.
    #[error(
        "the key {key} was used for {first} before, and now for {entry}: a key is for one thing"
    )]
    OtherEntry {
        /// The key.
        key: String,
        /// What it was used for first.
        first: String,
        /// What it is used for now.
        entry: String,
    },
}

impl Ledger {
    /// Makes a ledger that acts once per key. The same key with another entry is refused.
    pub fn honouring_keys() -> Self {
        Self::new(Keys::Honoured)
    }

    /// Makes a ledger that acts whenever it is asked, whatever the key.
    pub fn ignoring_keys() -> Self {
        Self::new(Keys::Ignored)
    }

    fn new(keys: Keys) -> Self {
        Self {
            keys,
            book: Arc::default(),
        }
    }

    /// Asks for something to be done under a key.
    ///
    /// # Errors
    ///
    /// If the ledger was told to [fail](Self::fail_next) or to [lose its answer](Self::lose_answers), or the key was
    /// used for another entry and it honours keys.
    ///
    /// # Panics
    ///
    /// If the entry cannot be serialized.
    pub fn post(
        &self,
        key: impl fmt::Display,
        entry: impl Serialize,
    ) -> Result<Posted, LedgerError> {
        self.enter(Some(key.to_string()), show(&entry))
    }

    /// Asks for something to be done without a key: it is done whenever it is asked for.
    ///
    /// # Errors
    ///
    /// If the ledger was told to [fail](Self::fail_next) or to [lose its answer](Self::lose_answers).
    ///
    /// # Panics
    ///
    /// If the entry cannot be serialized.
    pub fn post_without_key(&self, entry: impl Serialize) -> Result<Posted, LedgerError> {
        self.enter(None, show(&entry))
    }

    /// Lets the next so many calls fail: nothing is done, the caller gets an error.
    pub fn fail_next(&self, calls: u64) {
        self.book().failing = calls;
    }

    /// Loses the answers to the next so many calls: it is done, and the caller gets an error.
    pub fn lose_answers(&self, calls: u64) {
        self.book().losing = calls;
    }

    /// Returns every call, in order.
    pub fn calls(&self) -> Vec<LedgerCall> {
        self.book().calls.clone()
    }

    /// Returns what was done, in order: an entry that was made twice is in it twice.
    pub fn entries(&self) -> Vec<String> {
        let book = self.book();
        let done = book.calls.iter().filter(|call| call.acted());
        done.map(|call| call.entry.clone()).collect()
    }

    /// Has calls that come from no step dated by this clock.
    pub(super) fn keep_time(&self, clock: Clock) {
        self.book().clock = Some(clock);
    }

    pub(super) fn honours_keys(&self) -> bool {
        self.keys == Keys::Honoured
    }

    fn enter(&self, key: Option<String>, entry: String) -> Result<Posted, LedgerError> {
        let at = with_current(|ambient| match ambient {
            Ambient::Step(step) => Some(step.run()?.services.clock.now()),
            Ambient::Workflow(scope) => Some(scope.core().services.clock.now()),
            Ambient::Outside => None,
        });
        let step = try_get_step_metadata();
        let mut book = self.book();
        let at = at.or_else(|| Some(book.clock.as_ref()?.now()));
        let (answer, posted) = book.judge(self.keys, key.as_deref(), &entry);
        let number = book.calls.len() + 1;
        book.calls.push(LedgerCall {
            number,
            key,
            entry,
            at,
            step,
            answer,
            receipt: posted.as_ref().ok().map(|posted| posted.receipt),
        });
        match answer {
            Answer::DoneAnswerLost | Answer::KnownAnswerLost => Err(LedgerError::AnswerLost),
            Answer::Done | Answer::Known | Answer::Refused | Answer::Failed => posted,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic of the test in another thread must not hide behind this one.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Decides what becomes of a call, and what is answered if the answer arrives.
    fn judge(
        &mut self,
        keys: Keys,
        key: Option<&str>,
        entry: &str,
    ) -> (Answer, Result<Posted, LedgerError>) {
        if self.failing > 0 {
            self.failing -= 1;
            return (Answer::Failed, Err(LedgerError::Failed));
        }
        let first = key.filter(|_| keys == Keys::Honoured).and_then(|key| {
            let mut done = self.calls.iter().filter(|call| call.acted());
            done.find(|call| call.key.as_deref() == Some(key))
        });
        if let Some(first) = first.filter(|first| first.entry != entry) {
            let error = LedgerError::OtherEntry {
                key: key.unwrap_or_default().to_owned(),
                first: first.entry.clone(),
                entry: entry.to_owned(),
            };
            return (Answer::Refused, Err(error));
        }
        let known = first.map(|first| first.receipt.unwrap_or_default());
        let posted = match known {
            Some(receipt) => Posted {
                receipt,
                is_new: false,
            },
            None => {
                self.receipts += 1;
                Posted {
                    receipt: self.receipts,
                    is_new: true,
                }
            }
        };
        let lost = self.losing > 0;
        self.losing -= u64::from(lost);
        let answer = match (posted.is_new, lost) {
            (true, false) => Answer::Done,
            (true, true) => Answer::DoneAnswerLost,
            (false, false) => Answer::Known,
            (false, true) => Answer::KnownAnswerLost,
        };
        (answer, Ok(posted))
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = match self.keys {
            Keys::Honoured => "honours keys",
            Keys::Ignored => "ignores keys",
        };
        let calls = self.calls();
        writeln!(f, "a ledger that {keys}, {}", Count(calls.len(), "call"))?;
        calls.iter().try_for_each(|call| writeln!(f, "  {call}"))
    }
}

/// An entry as text: of text itself, else as the values that it consists of.
fn show(entry: &impl Serialize) -> String {
    let payloads = Payloads::default();
    let encoded = payloads.encode(entry);
    let shown = encoded.and_then(|payload| payloads.value(&payload));
    let value = shown.unwrap_or_else(|error| panic!("a ledger's entry cannot be shown: {error}"));
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

/// `1 call`, `2 calls`.
pub(super) struct Count(pub(super) usize, pub(super) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        match (count, *what) {
            (1, what) => write!(f, "1 {what}"),
            (_, "entry") => write!(f, "{count} entries"),
            (_, "crash") => write!(f, "{count} crashes"),
            (_, what) => write!(f, "{count} {what}s"),
        }
    }
}
