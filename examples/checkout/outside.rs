//! The world outside: the services that the steps talk to.
//!
//! The payment API is the one that matters. It keeps a ledger of its own, an append-only file
//! that no crash of ours undoes, and it honours idempotency keys as real ones do: a request whose
//! key it knows is answered with the first receipt, and no money moves. The others only tell the
//! audience that they were called. None of them knows which process is talking to it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use workflow_runtime::{Error, Result, StepId};

use super::Receipt;
use super::theatre::{Cue, Line};

/// How long an answer of the payment API may be under way. Nobody waits for it: the process
/// is killed long before.
const ANSWER_UNDER_WAY: Duration = Duration::from_secs(20);

/// Keeps the stock.
pub(crate) struct Warehouse;

impl Warehouse {
    pub(crate) async fn reserve(&self, item: &str) -> Result<()> {
        Line::executes(format!("one {item} set aside"));
        Ok(())
    }
}

/// The payment API.
pub(crate) struct Payments {
    ledger: PathBuf,
}

impl Payments {
    pub(crate) fn new(dir: &Path) -> Self {
        Self {
            ledger: ledger_file(dir),
        }
    }

    /// Charges a card, once per key.
    pub(crate) async fn charge(&self, key: StepId, customer: &str, cents: u64) -> Result<Receipt> {
        let entries = read_ledger(&self.ledger)?;
        let first = entries
            .iter()
            .find(|entry| entry.kind == Kind::Charge && entry.key == key.to_string());
        if let Some(first) = first {
            self.append(&Entry {
                kind: Kind::Repeat,
                cents: 0,
                ..first.clone()
            })?;
            Line::executes(format!(
                "known key: first receipt {} again, no money moves",
                first.receipt
            ));
            return Ok(Receipt {
                number: first.receipt.clone(),
                cents: first.cents,
            });
        }
        let receipt = format!("R-{:04}", entries.len() + 1);
        self.append(&Entry {
            kind: Kind::Charge,
            receipt: receipt.clone(),
            cents,
            customer: customer.to_owned(),
            key: key.to_string(),
        })?;
        Line::executes(format!(
            "{} taken from {customer}, receipt {receipt}",
            Euros(cents)
        ));
        // The money has moved; the answer is still on the wire.
        Line::cue(Cue::Charged);
        tokio::time::sleep(ANSWER_UNDER_WAY).await;
        Ok(Receipt {
            number: receipt,
            cents,
        })
    }

    fn append(&self, entry: &Entry) -> io::Result<()> {
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(&self.ledger)?;
        file.write_all(format!("{entry}\n").as_bytes())?;
        file.sync_all()
    }
}

/// Sends letters.
pub(crate) struct Mail;

impl Mail {
    pub(crate) async fn send(&self, customer: &str, receipt: &Receipt) -> Result<()> {
        Line::executes(format!("receipt {} mailed to {customer}", receipt.number));
        Ok(())
    }
}

/// Collects parcels, once it has been asked twice.
#[derive(Default)]
pub(crate) struct Carrier {
    awake: AtomicBool,
}

impl Carrier {
    pub(crate) async fn collect(&self, item: &str, customer: &str) -> Result<String> {
        if !self.awake.swap(true, Ordering::Relaxed) {
            Line::executes("the carrier does not answer".to_owned());
            return Err(Error::new("the carrier does not answer"));
        }
        Line::executes(format!("{item} on its way to {customer}"));
        Ok("P-7001".to_owned())
    }
}

/// Where the payment API keeps its ledger.
pub(crate) fn ledger_file(dir: &Path) -> PathBuf {
    dir.join("payments.ledger")
}

/// One request as the payment API has it on file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) receipt: String,
    pub(crate) cents: u64,
    pub(crate) customer: String,
    pub(crate) key: String,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Money moved.
    Charge,
    /// The key was known; no money moved.
    Repeat,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Charge => "CHARGE",
            Kind::Repeat => "repeat",
        };
        let Self {
            receipt,
            cents,
            customer,
            key,
            ..
        } = self;
        let amount = Euros(*cents).to_string();
        write!(f, "{kind}  {receipt}  {amount:>9}  {customer}  {key}")
    }
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, receipt, amount, "EUR", customer, key] = words[..] else {
            return None;
        };
        Some(Self {
            kind: match kind {
                "CHARGE" => Kind::Charge,
                "repeat" => Kind::Repeat,
                _ => return None,
            },
            receipt: receipt.to_owned(),
            cents: amount.replace('.', "").parse().ok()?,
            customer: customer.to_owned(),
            key: key.to_owned(),
        })
    }
}

/// Reads the ledger; there is none before the first request.
pub(crate) fn read_ledger(file: &Path) -> io::Result<Vec<Entry>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    text.lines()
        .map(|line| {
            Entry::parse(line).ok_or_else(|| io::Error::other(format!("no ledger entry: {line}")))
        })
        .collect()
}

/// Cents, as people write them.
pub(crate) struct Euros(pub(crate) u64);

impl std::fmt::Display for Euros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:02} EUR", self.0 / 100, self.0 % 100)
    }
}
