//! A process that was killed when its first order was in the store and nobody had heard a word of it.
//!
//! Owns the proof that the soak blames the engine if it uses that order's number again, and that it does not.

use std::path::Path;
use std::sync::Arc;

use workflow_runtime::{Engine, RunHandle};

use super::super::scratch;
use super::super::workload::{Line, World};
use super::book::Book;
use super::orders::{Leak, engine, key, order};

async fn open(store: &Path, world: &Arc<World>) -> Engine {
    let builder = engine(Leak::Nothing).resource_arc(world.clone());
    builder.open(store).await.expect("the store opens")
}

/// Starts an order in a queue, which keeps it from saying anything if it is paused.
async fn start(engine: &Engine, number: u64) -> RunHandle<order> {
    assert_eq!(key(number), None, "a key would name the first run");
    let started = engine.start(order(number)).queue("desk").await;
    started.expect("it is acknowledged")
}

/// One process whose first order nobody hears of, and one that does its first order to its end. Says what is wrong.
async fn two_processes(mut next: impl FnMut(&mut Book) -> u64) -> Vec<String> {
    let (directory, mut book) = (scratch::directory(), Book::default());
    let (store, world) = (directory.path().join("store"), Arc::new(World::here()));
    let killed = open(&store, &world).await;
    killed.queue("desk").pause().await.expect("pauses");
    let unheard = start(&killed, next(&mut book)).await.id();
    // What it leaves in the store is what a kill would leave: an acknowledged start.
    killed.shutdown().await.expect("it stops");
    assert_eq!(world.take(), [], "nobody was told");

    let engine = open(&store, &world).await;
    let number = next(&mut book);
    let run = start(&engine, number).await;
    book.hear(Line::Started(number, run.id()));
    assert_ne!(run.id(), unheard);
    engine.queue("desk").resume().await.expect("resumes");
    let sent = run.signal("go", &number).key("go").await;
    sent.expect("it goes on");
    book.hear(Line::Sent(number, true));
    let result = run.result().await.expect("it completes");
    let said = world.take().into_iter();
    said.for_each(|line| book.hear(line));
    book.hear(Line::Finished(number, result));
    engine.shutdown().await.expect("it stops");
    book.violations
}

#[test]
fn the_number_of_an_order_that_nobody_heard_of_would_be_worked_on_by_two_runs() {
    let wrong = scratch::runtime().block_on(two_processes(|_| 65));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(wrong[0].starts_with("4: order 65 with "), "{wrong:?}");
    assert_eq!(wrong[0].matches("\"draw\"").count(), 2, "{wrong:?}");
}

#[test]
fn the_next_process_does_not_use_it() {
    let wrong = scratch::runtime().block_on(two_processes(|book| book.next()));
    assert_eq!(wrong, [""; 0]);
}
