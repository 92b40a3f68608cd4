//! The raw floor: what the disk gives a plain file, with nothing of a journal around it.
//!
//! N tokio tasks each hand a 200-byte record to one committer thread, which appends all that is
//! queued to one file, syncs it once and wakes the tasks.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// About what a journaled step takes.
const RECORD_LEN: usize = 200;

/// How long one measurement takes.
pub const DURATION: Duration = Duration::from_millis(1500);

/// Records per second through one committer.
pub fn records_per_second(scratch: &Path, at_once: usize) -> f64 {
    let path = scratch.join(format!("floor-{at_once}"));
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .expect("a file can be made");
    let (queue, queued) = mpsc::channel::<(Vec<u8>, oneshot::Sender<()>)>();
    let committer = std::thread::spawn(move || {
        let (mut batch, mut waiting) = (Vec::new(), Vec::new());
        while let Ok(first) = queued.recv() {
            for (record, done) in std::iter::once(first).chain(queued.try_iter()) {
                batch.extend_from_slice(&record);
                waiting.push(done);
            }
            file.write_all(&batch).expect("a write");
            file.sync_data().expect("a sync");
            batch.clear();
            for done in waiting.drain(..) {
                let _ = done.send(());
            }
        }
    });
    let began = Instant::now();
    let records: u64 = super::engine::runtime().block_on(async {
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let mut records = 0;
                    while began.elapsed() < DURATION {
                        let (done, synced) = oneshot::channel();
                        let record = vec![7; RECORD_LEN];
                        queue.send((record, done)).expect("the committer lives");
                        synced.await.expect("the committer answers");
                        records += 1;
                    }
                    records
                })
            })
            .collect();
        let mut total = 0;
        for task in tasks {
            total += task.await.expect("a task ends");
        }
        total
    });
    let rate = records as f64 / began.elapsed().as_secs_f64();
    drop(queue);
    committer.join().expect("the committer ends");
    std::fs::remove_file(path).expect("the file can be removed");
    rate
}
