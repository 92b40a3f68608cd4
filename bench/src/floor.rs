//! The raw floor: what the disk gives a plain file, with nothing of a journal around it.
//!
//! N tokio tasks each hand a 200-byte record to one committer thread, which appends all that is
//! queued to one file, syncs it once and wakes the tasks.

use std::fs::OpenOptions;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::report::median;

/// About what a journaled step takes.
const RECORD_LEN: usize = 200;

/// How long one measurement takes.
pub const DURATION: Duration = Duration::from_millis(1500);

/// How much of a file is prepared, if it is.
const PREPARED: usize = 64 * 1024 * 1024;

/// Records per second through one committer.
pub fn records_per_second(scratch: &Path, at_once: usize) -> f64 {
    measure(scratch, at_once, 0, DURATION).0
}

/// The same in so short a time that it can be asked for beside each of many figures.
pub fn records_per_second_for(scratch: &Path, at_once: usize, time: Duration) -> f64 {
    measure(scratch, at_once, 0, time).0
}

/// Seconds of the median record, one at a time.
pub fn sync_seconds(scratch: &Path) -> f64 {
    median(&mut measure(scratch, 1, 0, DURATION).1)
}

/// The same into a file of zeros that was prepared and synced before, as the store's own log is: a
/// sync then has no new size to write.
pub fn prepared_sync_seconds(scratch: &Path) -> f64 {
    median(&mut measure(scratch, 1, PREPARED, DURATION).1)
}

/// The rate of all, and how long each took if they go one at a time.
fn measure(scratch: &Path, at_once: usize, prepared: usize, time: Duration) -> (f64, Vec<f64>) {
    let path = scratch.join(format!("floor-{at_once}"));
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&path)
        .expect("a file can be made");
    file.write_all(&vec![0; prepared]).expect("a write");
    file.sync_all().expect("a sync");
    file.rewind().expect("a file can be rewound");
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
    let (records, seconds) = super::engine::runtime().block_on(async {
        let tasks: Vec<_> = (0..at_once)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move {
                    let (mut records, mut seconds) = (0_u64, Vec::new());
                    while began.elapsed() < time {
                        let asked = Instant::now();
                        let (done, synced) = oneshot::channel();
                        let record = vec![7; RECORD_LEN];
                        queue.send((record, done)).expect("the committer lives");
                        synced.await.expect("the committer answers");
                        records += 1;
                        if at_once == 1 {
                            seconds.push(asked.elapsed().as_secs_f64());
                        }
                    }
                    (records, seconds)
                })
            })
            .collect();
        let (mut total, mut all) = (0, Vec::new());
        for task in tasks {
            let (records, seconds) = task.await.expect("a task ends");
            total += records;
            all.extend(seconds);
        }
        (total, all)
    });
    let rate = records as f64 / began.elapsed().as_secs_f64();
    drop(queue);
    committer.join().expect("the committer ends");
    std::fs::remove_file(path).expect("the file can be removed");
    (rate, seconds)
}
