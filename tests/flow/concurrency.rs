//! Any concurrency is deterministic: whatever a workflow builds from futures, a replay of its
//! journal, cut anywhere, gives what the journal says, and no recorded body runs again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, join, select_biased, try_join};
use workflow_runtime::{Engine, Error, Result, StepCall, Workflow, WorkflowCall, step, workflow};
use workflow_tests::{Ledger, cut, frames, steps};

/// Decides anew in every process how long a body takes.
#[derive(Default)]
struct Chance(AtomicU32);

impl Chance {
    fn starting_at(seed: u32) -> Self {
        Self(AtomicU32::new(seed))
    }

    fn draw(&self, below: u32) -> u32 {
        let next = self
            .0
            .fetch_add(1, Ordering::SeqCst)
            .wrapping_mul(0x9e37_79b9);
        (next >> 16) % below
    }
}

/// An impure step: another duration and another value whenever its body runs.
#[step]
async fn work(
    #[resource] ledger: &Ledger,
    #[resource] chance: &Chance,
    label: &str,
    given: u32,
) -> Result<u32> {
    for _ in 0..chance.draw(6) {
        tokio::task::yield_now().await;
    }
    ledger.act(label);
    Ok(given.wrapping_mul(31).wrapping_add(chance.draw(1000)))
}

/// Several steps, each with what the one before gave.
async fn chain(label: &str, mut given: u32, length: usize) -> Result<u32> {
    for n in 0..length {
        given = work(&format!("{label}{n}"), given).await?;
    }
    Ok(given)
}

/// Runs a workflow, then resumes its journal cut after every record: every time the records that
/// were there stay as they are and their bodies do not run; with only the end missing nothing
/// runs and the result is the same.
async fn replays_the_same<W>(call: impl Fn() -> WorkflowCall<W>)
where
    W: Workflow<Ok = Vec<u32>, Error = Error>,
{
    let builder = |ledger: &Arc<Ledger>, seed| {
        Engine::builder()
            .register::<W>()
            .resource_arc(ledger.clone())
            .resource(Chance::starting_at(seed))
    };
    for seed in [1, 77] {
        let store = workflow_runtime::store::memory::MemoryStore::new();
        let engine = builder(&Ledger::shared(), seed)
            .open_with(store.clone())
            .await
            .expect("opens");
        let run = engine.start(call()).await.expect("starts");
        let result = run.result().await.expect("ends well");
        let journal = engine.journal(run.id()).await.expect("reads");
        let recorded = frames(&store, run.id()).await;

        for records in 1..recorded.len() {
            let before = cut(journal.header(), &recorded, records).await;
            let ledger = Ledger::shared();
            let engine = builder(&ledger, seed * 1000 + records as u32)
                .open_with(before.clone())
                .await
                .expect("opens");
            let run = engine.run::<W>(run.id()).await.expect("is there");
            let again = run.result().await.expect("ends well");
            let after = frames(&before, run.id()).await;
            assert_eq!(recorded[..records], after[..records], "records changed");
            let kept: Vec<_> = steps(&journal)
                .into_iter()
                .filter(|step| {
                    journal.records()[..records].iter().any(|record| {
                        matches!(&record.event, workflow_runtime::journal::Event::StepCompleted(s) if s.step == step.step)
                    })
                })
                .collect();
            for (id, _) in ledger.attempts() {
                assert!(
                    kept.iter().all(|step| step.step != id),
                    "a recorded step ran again after {records} records"
                );
            }
            if records == recorded.len() - 1 {
                assert_eq!(again, result, "the replay gave something else");
                assert_eq!(ledger.asked(), 0);
            }
        }
    }
}

#[workflow]
async fn joined(n: u32) -> Result<Vec<u32>> {
    let (a, b, c) = join!(
        async { chain("a", n, 3).await },
        async { chain("b", n, 2).await },
        work("c", n),
    );
    Ok(vec![a?, b?, c?])
}

#[tokio::test]
async fn chained_branches_of_a_join_replay_the_same() {
    replays_the_same(|| joined(1)).await;
}

#[workflow]
async fn try_joined(n: u32) -> Result<Vec<u32>> {
    let (a, b) = try_join!(chain("a", n, 3), chain("b", n, 3))?;
    let last = chain("after", a ^ b, 2).await?;
    Ok(vec![a, b, last])
}

#[tokio::test]
async fn try_join_of_unannotated_helpers_replays_the_same() {
    replays_the_same(|| try_joined(2)).await;
}

#[workflow]
async fn tokio_joined(n: u32) -> Result<Vec<u32>> {
    let (a, b, c) = tokio::join!(chain("a", n, 2), chain("b", n, 4), async {
        chain("c", n, 3).await
    });
    let (d, e) = tokio::try_join!(chain("d", a?, 2), chain("e", b?, 2))?;
    Ok(vec![c?, d, e])
}

#[tokio::test]
async fn the_joins_of_tokio_replay_the_same() {
    replays_the_same(|| tokio_joined(3)).await;
}

#[workflow]
async fn all_joined(n: u32) -> Result<Vec<u32>> {
    // More than 30, where `join_all` becomes a `FuturesOrdered`.
    let branches = (0..34).map(|i| async move { chain(&format!("{i}-"), i + n, 1).await });
    join_all(branches).await.into_iter().collect()
}

#[tokio::test]
async fn join_all_of_many_branches_replays_the_same() {
    replays_the_same(|| all_joined(4)).await;
}

#[workflow]
async fn as_they_come(n: u32) -> Result<Vec<u32>> {
    let mut running: FuturesUnordered<_> = (0..4)
        .map(|i| async move { chain(&format!("{i}-"), n + i, 2).await }.boxed())
        .collect();
    let mut seen = Vec::new();
    while let Some(value) = running.next().await {
        let value = value?;
        if seen.len() < 2 {
            let label = format!("more{}-", seen.len());
            running.push(async move { chain(&label, value, 1).await }.boxed());
        }
        seen.push(value);
    }
    Ok(seen)
}

#[tokio::test]
async fn futures_unordered_gives_the_same_order_in_replay() {
    replays_the_same(|| as_they_come(5)).await;
}

/// Waits for so many milliseconds, or not at all.
#[step]
async fn wait_for(millis: u64) -> u64 {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    millis
}

/// Bodies that do not wait and bodies that do, alone and in a crowd that has wakers of its own, by turns.
#[workflow]
async fn by_turns(rounds: u64) -> u64 {
    let mut waited = 0;
    for _ in 0..rounds {
        for (alone, crowd) in [(0, [5, 3]), (0, [0, 4]), (2, [0, 0]), (1, [2, 0])] {
            waited += wait_for(alone).await;
            let mut crowd: FuturesUnordered<_> = crowd.into_iter().map(wait_for).collect();
            while let Some(millis) = crowd.next().await {
                waited += millis;
            }
        }
    }
    waited
}

#[tokio::test]
async fn the_waker_of_a_body_wakes_whoever_polls_the_next_one() {
    let engine = Engine::builder().register::<by_turns>();
    let engine = engine.open_in_memory().await.expect("opens");
    let run = engine.start(by_turns(3)).await.expect("starts");
    let ended = tokio::time::timeout(Duration::from_secs(20), run.result()).await;
    let waited = ended.expect("every body that waited was polled again");
    assert_eq!(waited.expect("ends"), 3 * (8 + 4 + 2 + 3));
}

#[workflow]
async fn raced(n: u32) -> Result<Vec<u32>> {
    let left = Box::pin(async { chain("left", n, 2).await });
    let right = Box::pin(async { chain("right", n, 2).await });
    let winner = match select(left, right).await {
        Either::Left((value, _loser)) => vec![1, value?],
        Either::Right((value, _loser)) => vec![2, value?],
    };
    let mut all = winner;
    all.push(chain("after", all[1], 2).await?);
    Ok(all)
}

#[tokio::test]
async fn a_race_with_its_loser_dropped_has_the_same_winner_in_replay() {
    replays_the_same(|| raced(6)).await;
}

#[workflow]
async fn selected(n: u32) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    let mut slow = Box::pin(async { chain("slow", n, 4).await }.fuse());
    for round in 0..3 {
        let label = format!("quick{round}");
        let quick = work(&label, n).fuse();
        futures::pin_mut!(quick);
        select_biased! {
            value = slow => { seen.push(value?); break; }
            value = quick => seen.push(value?),
        }
        seen.push(round);
    }
    Ok(seen)
}

#[tokio::test]
async fn select_biased_in_a_loop_replays_the_same() {
    replays_the_same(|| selected(7)).await;
}

#[workflow]
async fn tokio_selected(n: u32) -> Result<Vec<u32>> {
    let mut seen = Vec::new();
    for round in 0..3u32 {
        let label = format!("b{round}");
        tokio::select! {
            biased;
            value = async { chain(&format!("a{round}-"), n, 2).await } => seen.push(value?),
            value = work(&label, n + round) => seen.push(value?),
            () = workflow_runtime::sleep(Duration::from_millis(1)) => seen.push(round),
        }
    }
    Ok(seen)
}

#[tokio::test]
async fn a_biased_select_with_a_timer_replays_the_same() {
    replays_the_same(|| tokio_selected(8)).await;
}

/// Polls two calls in turns, and gives both values in the order in which they came.
struct InTurns<'a> {
    calls: [Option<StepCall<'a, Result<u32>>>; 2],
    first: usize,
    seen: Vec<u32>,
}

impl Future for InTurns<'_> {
    type Output = Result<Vec<u32>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.first = 1 - self.first;
        for n in [self.first, 1 - self.first] {
            let Some(call) = &mut self.calls[n] else {
                continue;
            };
            if let Poll::Ready(value) = Pin::new(call).poll(cx) {
                self.calls[n] = None;
                match value {
                    Ok(value) => self.seen.push(value),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        if self.seen.len() == 2 {
            Poll::Ready(Ok(std::mem::take(&mut self.seen)))
        } else {
            Poll::Pending
        }
    }
}

#[workflow]
async fn by_hand(n: u32) -> Result<Vec<u32>> {
    InTurns {
        calls: [Some(work("x", n)), Some(work("y", n))],
        first: 0,
        seen: Vec::new(),
    }
    .await
}

#[tokio::test]
async fn a_hand_written_future_replays_the_same() {
    replays_the_same(|| by_hand(9)).await;
}

#[workflow]
async fn polled_once_and_left(n: u32) -> Result<Vec<u32>> {
    let mut early = Box::pin(work("early", n));
    let nothing_yet = futures::poll!(&mut early).is_pending();
    let later = chain("later", n, 2).await?;
    Ok(vec![u32::from(nothing_yet), later, early.await?])
}

#[tokio::test]
async fn an_outcome_that_comes_while_its_call_is_not_polled_is_kept_for_it() {
    replays_the_same(|| polled_once_and_left(10)).await;
}
