//! Everything three times and out of order: starts, signals, the completions that callbacks bring, events of an inbox.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use workflow_runtime::testing::{Ledger, TestEngine, check_invariants};
use workflow_runtime::{
    EngineError, Result, RunId, Sent, get_step_metadata, hook, step, wait_for, workflow,
};

use super::Case;
use super::scratch;
use crate::chance::Chance;

/// A run that has not ended after so long by the virtual clock never will.
const PATIENCE: Duration = Duration::from_secs(86_400);

#[step]
async fn post(#[resource] ledger: &Ledger, what: u64) -> Result<()> {
    ledger.post(get_step_metadata().step_id, what)?;
    Ok(())
}

/// Hears so many words, and is then called back.
#[workflow]
async fn hears(words: u64) -> Result<(Vec<u64>, u64)> {
    let mut callback = hook::<u64>("done").await?;
    let mut heard = Vec::new();
    for _ in 0..words {
        let word: u64 = wait_for("word").await?;
        post(word).await?;
        heard.push(word);
    }
    let done = callback.next().await?;
    Ok((heard, done))
}

#[workflow]
async fn caused(event: u64) -> Result<u64> {
    post(1_000 + event).await?;
    Ok(event)
}

/// One delivery.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    Start,
    Word(u64),
    Callback,
    Event(u64),
}

pub(super) fn case(seed: u64) -> Case {
    let mut chance = Chance::new(seed);
    let words = 1 + chance.below(5);
    let events = chance.below(3);
    let mut deliveries: Vec<Delivery> = [Delivery::Start, Delivery::Callback]
        .into_iter()
        .chain((0..words).map(Delivery::Word))
        .chain((0..events).map(Delivery::Event))
        .flat_map(|delivery| [delivery; 3])
        .collect();
    for at in (1..deliveries.len()).rev() {
        let other = usize::try_from(chance.below(at as u64 + 1)).expect("an index");
        deliveries.swap(at, other);
    }
    let mut case = Case {
        count: deliveries.len() as u64,
        ..Case::default()
    };
    scratch::runtime().block_on(deliver(words, events, &deliveries, &mut chance, &mut case));
    case
}

/// What was answered.
#[derive(Default)]
struct Answers {
    runs: BTreeSet<RunId>,
    caused: BTreeSet<(u64, RunId)>,
    /// Words in the order in which they were accepted.
    accepted: Vec<u64>,
    callbacks: u64,
}

async fn deliver(
    words: u64,
    events: u64,
    deliveries: &[Delivery],
    chance: &mut Chance,
    case: &mut Case,
) {
    let ledger = Ledger::honouring_keys();
    let engine = TestEngine::builder()
        .register::<hears>()
        .register::<caused>()
        .resource(ledger.clone());
    let engine = engine.open().await.expect("memory opens");
    let run = engine.start(hears(words)).key("one").await;
    let run = run.expect("it is the first start");
    engine.until_idle().await;
    let mut answers = Answers::default();
    answers.runs.insert(run.id());
    // Some at the same moment, the others one after the other.
    let mut rest = deliveries;
    let mut in_order = true;
    while !rest.is_empty() {
        let together = usize::try_from(1 + chance.below(3)).expect("small");
        let (now, later) = rest.split_at(together.min(rest.len()));
        in_order &= now.len() == 1;
        let sent = now.iter().map(|one| send(&engine, run.id(), words, *one));
        for answer in join_all(sent).await {
            match answer {
                Ok(answer) => answers.take(answer),
                Err(EngineError::Ended(_) | EngineError::NoHook { .. }) => {}
                Err(error) => case.wrong(format!("8: a delivery is refused: {error}")),
            }
        }
        rest = later;
    }
    let result = tokio::time::timeout(PATIENCE, run.result()).await;
    let Ok(Ok((heard, done))) = result else {
        return case.wrong(format!("12: {result:?}, accepted {:?}", answers.accepted));
    };
    case.holds(answers.runs.len() == 1, || {
        format!("8: one key is {:?}", answers.runs)
    });
    case.holds(answers.caused.len() as u64 == events, || {
        format!("8: {events} events caused {:?}", answers.caused)
    });
    let each: BTreeSet<u64> = heard.iter().copied().collect();
    case.holds(
        each.len() == heard.len() && each.len() as u64 == words,
        || format!("12: {words} words were heard as {heard:?}"),
    );
    let mut accepted = answers.accepted.clone();
    case.holds(!in_order || accepted == heard, || {
        format!("12: accepted as {accepted:?} and heard as {heard:?}")
    });
    accepted.sort_unstable();
    case.holds(accepted == (0..words).collect::<Vec<_>>(), || {
        format!("12: accepted {accepted:?} of {words} words")
    });
    case.holds(done == 7 && answers.callbacks == 1, || {
        format!(
            "12: called back with {done}, {} times accepted",
            answers.callbacks
        )
    });
    engine.until_idle().await;
    let entries = ledger.entries().len() as u64;
    case.holds(
        entries == words + events && ledger.calls().len() as u64 == entries,
        || format!("3: {entries} entries of {:?}", ledger.calls()),
    );
    let broken = check_invariants(&engine).await.expect("memory is readable");
    case.violations
        .extend(broken.iter().map(ToString::to_string));
}

/// What one delivery was answered with.
enum Answer {
    Run(RunId),
    Word(u64, Sent),
    Callback(Sent),
    Caused(u64, RunId),
}

impl Answers {
    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Run(run) => drop(self.runs.insert(run)),
            Answer::Word(word, Sent::Accepted) => self.accepted.push(word),
            Answer::Callback(Sent::Accepted) => self.callbacks += 1,
            Answer::Caused(event, run) => drop(self.caused.insert((event, run))),
            _ => {}
        }
    }
}

async fn send(
    engine: &TestEngine,
    run: RunId,
    words: u64,
    delivery: Delivery,
) -> std::result::Result<Answer, EngineError> {
    Ok(match delivery {
        Delivery::Start => Answer::Run(engine.start(hears(words)).key("one").await?.id()),
        Delivery::Word(word) => {
            Answer::Word(word, engine.signal(run, "word", &word).key(word).await?)
        }
        Delivery::Callback => {
            Answer::Callback(engine.signal_token("done", &7_u64).key("callback").await?)
        }
        Delivery::Event(event) => {
            let inbox = engine.inbox("source");
            let accepted = inbox.accept(event.to_string()).start(caused(event)).await;
            let accepted = accepted.map_err(|error| EngineError::Key(error.to_string()))?;
            Answer::Caused(event, accepted.run)
        }
    })
}
