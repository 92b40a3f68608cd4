//! Random calls on the sled store and on the memory store: both must say the same, whatever
//! was archived when, and over restarts.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;

use super::{SledOptions, SledStore};
use crate::clock::Timestamp;
use crate::digest::Digest;
use crate::ids::RunId;
use crate::store::memory::{MemoryStore, Surviving};
use crate::store::{
    Append, Changes, Commit, Durability, EndKind, Epoch, Guard, KeptJournal, Letter, NewRun,
    Newest, NoteChange, NoteKey, Origin, ParkReason, Parking, Reopening, RunEnd, RunHeader,
    RunOrder, RunQuery, RunState, Sleeper, Store, StoreResult,
};

/// How many runs there are: few, so that ids are used again.
const RUNS: u64 = 12;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        super::bytes::mix(self.0) % limit
    }

    fn bytes(&mut self) -> Bytes {
        let len = match self.below(12) {
            0 => 5_000,
            1 => 1_500,
            _ => self.below(60),
        };
        let byte = self.below(256) as u8;
        vec![byte; usize::try_from(len).expect("short")].into()
    }
}

fn id(n: u64) -> RunId {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&super::bytes::mix(n).to_be_bytes());
    RunId::from_bytes(bytes)
}

fn header(n: u64, numbers: &mut Numbers) -> RunHeader {
    RunHeader {
        run: id(n),
        namespace: "default".into(),
        workflow: "w".into(),
        version: 1,
        key: None,
        input_digest: Digest::from_bytes([0; 16]),
        created_at: Timestamp::from_micros(n / 2),
        origin: match numbers.below(3) {
            0 => Some(Origin::Continued(id(numbers.below(RUNS)))),
            _ => None,
        },
        state: match numbers.below(4) {
            0 => RunState::Asleep {
                wake_at: wake_at(numbers),
            },
            _ => RunState::Active,
        },
    }
}

fn wake_at(numbers: &mut Numbers) -> Option<Timestamp> {
    let time = numbers.below(5);
    (time > 0).then(|| Timestamp::from_micros(time))
}

fn key(numbers: &mut Numbers) -> NoteKey {
    let name = numbers.below(6);
    match numbers.below(2) {
        0 => NoteKey::of_run(id(numbers.below(RUNS)), &[&name.to_be_bytes()]),
        _ => NoteKey::new(1, &[&name.to_be_bytes()]),
    }
}

fn changes(numbers: &mut Numbers) -> Changes {
    let mut changes = Changes::default();
    if numbers.below(4) == 0 {
        let n = numbers.below(RUNS);
        changes.create.push(new_run(n, numbers));
    }
    for _ in 0..numbers.below(3) {
        let to = id(numbers.below(RUNS));
        let body = numbers.bytes();
        changes.post.push(Letter { to, body });
    }
    for _ in 0..numbers.below(3) {
        let key = key(numbers);
        let value = (numbers.below(3) > 0).then(|| numbers.bytes());
        changes.notes.push(NoteChange { key, value });
    }
    if numbers.below(2) == 0 {
        let newest = Newest {
            run: id(numbers.below(RUNS)),
            ordinal: 1,
        };
        changes.notes.push(NoteChange {
            key: Newest::key(id(numbers.below(RUNS))),
            value: Some(newest.encode()),
        });
    }
    changes
}

fn new_run(n: u64, numbers: &mut Numbers) -> NewRun {
    NewRun {
        header: header(n, numbers),
        first: numbers.bytes(),
        rest: Vec::new(),
        durability: Durability::Buffered,
    }
}

/// How many records a journal has, with those that were forgotten.
fn length(kept: &KeptJournal) -> u64 {
    kept.frames.len() as u64 + kept.kept_from.saturating_sub(2)
}

/// Both stores, with who owns what in each.
struct Pair {
    stores: [Box<dyn Store>; 2],
    owners: [BTreeMap<RunId, Epoch>; 2],
}

/// What a call answered, without epochs.
fn told<T: std::fmt::Debug>(answer: &StoreResult<T>) -> String {
    format!("{answer:?}")
}

impl Pair {
    fn same(&self, answers: &[String; 2], what: &str) {
        assert_eq!(answers[0], answers[1], "{what}");
    }

    async fn claim(&mut self, run: RunId, seed: u64) {
        let from = self.kept(run).await.kept_from;
        let mut answers = [String::new(), String::new()];
        for (which, answer) in answers.iter_mut().enumerate() {
            let claim = self.stores[which].claim(run, from).await;
            if let Ok(Some(claim)) = &claim {
                let old = self.owners[which].insert(run, claim.epoch);
                let ended = claim.header.end().is_some();
                assert!(ended || old.is_none_or(|old| old < claim.epoch), "{seed}");
            }
            let claim = claim.map(|claim| {
                claim.map(|claim| (claim.header, claim.frames, claim.mail, claim.next_letter))
            });
            *answer = told(&claim);
        }
        self.same(&answers, &format!("claim, seed {seed}"));
    }

    async fn kept(&self, run: RunId) -> KeptJournal {
        self.stores[1].journal(run).await.expect("readable")
    }

    fn epoch(&self, which: usize, run: RunId) -> Epoch {
        self.owners[which]
            .get(&run)
            .copied()
            .unwrap_or(Epoch::FIRST)
    }

    /// Makes the same call on both.
    async fn call(&mut self, numbers: &mut Numbers, seed: u64) {
        let n = numbers.below(RUNS);
        let run = id(n);
        let seq = length(&self.kept(run).await);
        let kind = numbers.below(22);
        if kind == 0 {
            return self.claim(run, seed).await;
        }
        let state = self.stores[1].header(run).await.expect("readable");
        let is_parked = state.is_some_and(|header| matches!(header.state, RunState::Parked(_)));
        if is_parked && matches!(kind, 15 | 16) {
            // The engine lets no parked run sleep. Which of the two it is after a restart is open.
            return;
        }
        let (new, more) = (new_run(n, numbers), changes(numbers));
        let guard = Guard {
            key: key(numbers),
            expected: (numbers.below(2) == 0).then(Bytes::new),
        };
        let guards = match numbers.below(3) {
            0 => vec![guard],
            _ => Vec::new(),
        };
        let append = self.append(run, seq, numbers, &more).await;
        let parking = Parking {
            reason: ParkReason::Paused,
            at: Timestamp::from_micros(1),
            report: "".into(),
            detail: None,
        };
        let parking = (numbers.below(2) == 0).then_some(parking);
        let wake_at = wake_at(numbers);
        let reopening = Reopening {
            run,
            seq,
            frame: numbers.bytes(),
            guards: Vec::new(),
            notes: Vec::new(),
            letters: (0..numbers.below(3)).map(|_| numbers.bytes()).collect(),
        };
        let forgotten = numbers.below(seq + 2);
        let gone: Vec<RunId> = (0..3).map(|_| id(numbers.below(RUNS))).collect();
        let mut answers = [String::new(), String::new()];
        for (which, answer) in answers.iter_mut().enumerate() {
            let epoch = self.epoch(which, run);
            let store = &self.stores[which];
            *answer = match kind {
                1 | 2 => {
                    let created = store.create(new.clone()).await;
                    if matches!(&created, Ok(crate::store::Creation::Created(_))) {
                        self.owners[which].insert(run, Epoch::FIRST);
                    }
                    told(&created)
                }
                3..=10 => {
                    let mut append = append.clone();
                    append.epoch = epoch;
                    told(&store.append(append).await)
                }
                11..=13 => {
                    let (guards, changes) = (guards.clone(), more.clone());
                    told(&store.commit(Commit { guards, changes }).await)
                }
                14 => told(&store.park(run, epoch, parking.clone()).await),
                15 | 16 => told(&store.put_to_sleep(run, epoch, wake_at).await),
                17 | 18 => {
                    let revived = store.revive(reopening.clone()).await;
                    if let Ok(epoch) = revived {
                        self.owners[which].insert(run, epoch);
                    }
                    told(&revived.map(|_| ()))
                }
                19 => told(&store.delete(gone.clone()).await),
                _ => told(&store.forget(run, epoch, forgotten).await),
            };
        }
        self.same(&answers, &format!("call {kind} on {n}, seed {seed}"));
        self.forget_owners().await;
    }

    async fn append(&self, run: RunId, seq: u64, numbers: &mut Numbers, more: &Changes) -> Append {
        let frames = (0..numbers.below(3)).map(|_| numbers.bytes()).collect();
        let kind = match numbers.below(3) {
            0 => EndKind::Failed,
            1 => EndKind::Continued,
            _ => EndKind::Completed,
        };
        let at = Timestamp::from_micros(9);
        let mail = self.stores[1].mail(run, 0).await.expect("readable");
        let waiting = mail.first().map_or(0, |mail| mail.number);
        Append {
            run,
            epoch: Epoch::FIRST,
            first_seq: seq + u64::from(numbers.below(15) == 0),
            frames,
            end: (numbers.below(6) == 0).then_some(RunEnd { kind, at }),
            taken: waiting + numbers.below(3),
            changes: (numbers.below(3) == 0).then(|| Box::new(more.clone())),
            durability: Durability::Buffered,
        }
    }

    /// A run that was deleted and made again has an owner under the first epoch.
    async fn forget_owners(&mut self) {
        for n in 0..RUNS {
            let there = self.stores[1].header(id(n)).await.expect("readable");
            if there.is_none() {
                for owners in &mut self.owners {
                    owners.remove(&id(n));
                }
            }
        }
    }

    /// Compares everything that can be read.
    async fn compare(&self, numbers: &mut Numbers, seed: u64) {
        let mut answers = [String::new(), String::new()];
        for (store, answer) in self.stores.iter().zip(&mut answers) {
            store.check().await.expect("sound");
            let mut all = String::new();
            for order in [RunOrder::NewestFirst, RunOrder::OldestFirst] {
                let query = RunQuery {
                    order,
                    limit: 100,
                    ..RunQuery::default()
                };
                all += &told(&store.list(query).await);
            }
            all += &told(&store.unfinished().await);
            all += &format!("{:?}", asleep(&**store).await);
            for n in 0..RUNS {
                all += &told(&store.header(id(n)).await);
                all += &told(&store.journal(id(n)).await);
                all += &told(&store.frames(id(n), 0, usize::MAX).await);
                all += &told(&store.mail(id(n), 0).await);
            }
            let everything = NoteKey::from_bytes(Bytes::new());
            all += &told(&store.notes(everything, None, 1_000).await);
            *answer = all;
        }
        self.same(&answers, &format!("seed {seed}"));
        let from = numbers.below(8);
        for n in 0..RUNS {
            let parts = [
                told(&self.stores[0].frames(id(n), from, 3).await),
                told(&self.stores[1].frames(id(n), from, 3).await),
            ];
            self.same(&parts, &format!("frames from {from}, seed {seed}"));
        }
    }
}

async fn asleep(store: &dyn Store) -> Vec<Sleeper> {
    let mut all: Vec<Sleeper> = Vec::new();
    loop {
        let page = store.asleep(all.last().cloned(), 3).await.expect("listed");
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

fn open(path: &Path) -> SledStore {
    // So small that files of the log come and go.
    let options = SledOptions::default().log_file_bytes_for_tests(16 * 1024);
    SledStore::open(path, options).expect("it opens")
}

async fn run(seed: u64, calls: u64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("store");
    let mut numbers = Numbers(seed << 32);
    let mut memory = MemoryStore::new();
    let mut sled = open(&path);
    for _ in 0..calls {
        let mut pair = Pair {
            stores: [Box::new(sled), Box::new(memory.clone())],
            owners: Default::default(),
        };
        for n in 0..RUNS {
            // The last owner died with its process.
            pair.claim(id(n), seed).await;
        }
        for _ in 0..numbers.below(60) {
            pair.call(&mut numbers, seed).await;
            if numbers.below(30) == 0 {
                let pause = std::time::Duration::from_millis(numbers.below(40));
                tokio::time::sleep(pause).await;
                pair.compare(&mut numbers, seed).await;
            }
        }
        pair.compare(&mut numbers, seed).await;
        drop(pair);
        memory = memory.reopen(Surviving::All);
        sled = open(&path);
        if numbers.below(2) == 0 {
            sled.settled();
        }
        // That a run sleeps may be lost in a restart; then it does not sleep here either.
        for header in sled.unfinished().await.expect("readable") {
            let other = memory.header(header.run).await.expect("readable");
            let other = other.expect("both have it");
            if other.state != header.state {
                assert!(
                    matches!(other.state, RunState::Asleep { .. }),
                    "seed {seed}"
                );
                let kept = memory.journal(header.run).await.expect("readable");
                let claim = memory.claim(header.run, kept.kept_from).await;
                claim.expect("claimed");
            }
        }
        let pair = Pair {
            stores: [Box::new(sled), Box::new(memory.clone())],
            owners: Default::default(),
        };
        pair.compare(&mut numbers, seed).await;
        drop(pair);
        sled = open(&path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_say_the_same_whatever_was_called() {
    let seeds = std::env::var("STORE_SEEDS").ok();
    let seeds = seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(6);
    for seed in 1..=seeds {
        run(seed, 8).await;
    }
}
