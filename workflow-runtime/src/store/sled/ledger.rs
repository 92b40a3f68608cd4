//! The ledger of the log: what of which file is still needed, and which runs are in line
//! to be archived so that files can go.
//!
//! Owns the bookkeeping that committer and archiver share, behind the store's lock. Never
//! touches a file or the database: it says what is to be moved, the archiver moves it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::layout::Layout;
use super::overlay::{MovingNote, Overlay};
use super::table::{Entry, Live, Table, TailFrame};
use crate::ids::RunId;
use crate::store::{Mail, NoteKey, RunHeader};

/// With more bytes than this in the log, what is live in its oldest file moves to
/// segments: opening reads all of the log, and one long run must not pin it.
const MAX_LOG_BYTES: u64 = 16 * 1024 * 1024;

/// With more runs than this in line to be archived, new commits wait: what is in line is
/// memory, and work for the next open.
const MAX_DUE: usize = 4_096;

/// How many runs of an old file one commit puts in line: more than it adds.
const SWEPT_PER_COMMIT: usize = 2_048;

/// An archive is made once this many runs are in line: its syncs cost the same for one.
const ENOUGH_RUNS: usize = 64;

/// A log of which most was forgotten and that has more bytes than this is left behind when the store is closed, so that the
/// next open need not read it.
const WORTH_LEAVING: u64 = 32 * 1024;

/// The same for the bytes of their frames.
const ENOUGH_BYTES: usize = 256 * 1024;

/// The same for notes: they are small.
const ENOUGH_NOTES: usize = 512;

/// With more changed notes than this, new commits wait.
const MAX_NOTES: usize = 16_384;

/// How many bytes of notes one archive moves, unless one alone has more.
const NOTES_BUDGET: usize = 128 * 1024;

/// An archive is made, however small, once nothing was committed for this long.
const IDLE_AFTER: Duration = Duration::from_millis(20);

/// An archive is made, however small, once something was in line for this long.
const WAIT_AT_MOST: Duration = Duration::from_secs(1);

/// How many bytes of frames and headers one archive moves: what must change in one batch
/// has to stay below what may be unsynced.
const ARCHIVE_BUDGET: usize = 384 * 1024;

/// How many runs one archive moves: as many as make it worth its syncs. Each changes three or four pages of sled, of which sled
/// keeps a copy for every change until the batch is over: some 5 KB a change, and the process keeps what that took.
const RUNS_AT_ONCE: usize = ENOUGH_RUNS;

/// What a run in an archive costs beside its frames: keys, headers, lengths.
const RUN_COST: usize = 512;

/// What the ledger knows of a file of the log.
#[derive(Debug)]
struct FileInfo {
    /// The commit it begins with.
    first: u64,
    bytes: u64,
    /// How many of its frames and parkings are in no segment or `l` entry yet.
    live: u64,
    /// How many frames it holds, and how many of them were forgotten.
    frames: u64,
    forgotten: u64,
    /// The runs it tells of that were not put in line because of its age.
    runs: Vec<RunId>,
}

/// What committer and archiver know of the log.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The newest commit that is in the table.
    commit: u64,
    committed_at: Instant,
    files: VecDeque<FileInfo>,
    bytes: u64,
    /// With more bytes than this in the log, what is live in its oldest file moves to segments.
    max_bytes: u64,
    due: VecDeque<RunId>,
    /// About how many bytes of frames are in line.
    due_bytes: usize,
    due_since: Instant,
    /// Runs that need something before this commit are put in line because of its age.
    sweeping_to: u64,
    /// Runs that sleep in the log where it is too old: they have to come back into memory to be archived.
    drowsy: Vec<RunId>,
    /// Notes that changed since they were archived. Each is in line from the beginning.
    pub(super) notes: Overlay,
}

/// What one archive moves.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) moving: Vec<Moving>,
    pub(super) notes: Vec<MovingNote>,
    /// The newest commit of which the batch knows.
    pub(super) as_of: u64,
    /// The file, by its first commit, from which on the log is needed after it.
    pub(super) log_from: u64,
}

/// One run whose frames move to segments.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) header: RunHeader,
    /// Whether it needs no memory after that, if nothing happens to it meanwhile.
    pub(super) leaves: bool,
    /// The frames to be moved, and where in the journal they are.
    pub(super) frames: Arc<Vec<TailFrame>>,
    pub(super) layout: Layout,
    /// The letters to be moved.
    pub(super) letters: Vec<Mail>,
    /// Letters below the first number were taken, the second is that of the next one.
    pub(super) mailbox: (u64, u64),
    pub(super) changes: usize,
    /// What the database has of it: before the archive the old one, after it the new one.
    pub(super) entry: Option<Box<Entry>>,
}

/// What an archive made superfluous.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Files of the log, by their first commits.
    pub(super) files: Vec<u64>,
    /// Runs that left the table: freed by whoever gets this, outside the lock.
    #[expect(clippy::vec_box, reason = "they come boxed, and are only to be freed")]
    runs: Vec<Box<Live>>,
    /// Frames that are in segments now: the same.
    frames: Vec<Arc<Vec<TailFrame>>>,
}

/// When the archiver has something to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Instant),
    Never,
}

impl Ledger {
    /// Begins with a log whose newest commit is this one.
    pub(super) fn new(commit: u64) -> Self {
        let now = Instant::now();
        Self {
            commit,
            committed_at: now,
            files: VecDeque::new(),
            bytes: 0,
            max_bytes: MAX_LOG_BYTES,
            due: VecDeque::new(),
            due_bytes: 0,
            due_since: now,
            sweeping_to: 0,
            drowsy: Vec::new(),
            notes: Overlay::new(),
        }
    }

    /// Sets how long the log gets before its oldest file is emptied.
    pub(super) fn limit_log(&mut self, bytes: u64) {
        self.max_bytes = bytes;
    }

    /// Returns the newest commit that is in the table.
    pub(super) fn commit(&self) -> u64 {
        self.commit
    }

    /// Enters a file, newer than all before.
    fn enter_file(&mut self, first: u64) {
        self.files.push_back(FileInfo {
            first,
            bytes: 0,
            live: 0,
            frames: 0,
            forgotten: 0,
            runs: Vec::new(),
        });
    }

    /// Enters a block of the newest file, and says whether the file is a new one.
    pub(super) fn enter_block(&mut self, commit: u64, first: u64, bytes: usize) -> bool {
        let is_new = self.files.back().is_none_or(|file| file.first != first);
        if is_new {
            self.enter_file(first);
        }
        self.commit = commit;
        self.committed_at = Instant::now();
        self.bytes += bytes as u64;
        self.newest().bytes += bytes as u64;
        is_new
    }

    /// Counts what the newest file holds of a run.
    pub(super) fn count(&mut self, run: RunId, things: usize) {
        self.count_after(run, things, None);
    }

    /// The same for a run of which something else is needed of a commit: if that is in the file too, the run is known to be.
    pub(super) fn count_after(&mut self, run: RunId, things: usize, before: Option<u64>) {
        let file = self.newest();
        file.live += things as u64;
        file.frames += things as u64;
        let is_listed = before.is_some_and(|commit| commit >= file.first);
        if !is_listed && file.runs.last() != Some(&run) {
            file.runs.push(run);
        }
    }

    /// Returns the commit that the file begins with in which a commit's block lies.
    pub(super) fn file_of(&self, commit: u64) -> u64 {
        self.files[self.index_of(commit)].first
    }

    fn index_of(&self, commit: u64) -> usize {
        self.files.partition_point(|file| file.first <= commit) - 1
    }

    /// Says whether the log is so short that runs may sleep in it.
    pub(super) fn has_room(&self) -> bool {
        self.bytes <= self.max_bytes
    }

    /// A run sleeps in the log from now on: it needs the newest commit's block, and nothing before.
    pub(super) fn doze(&mut self, live: &Live) {
        let newest = self.newest().first;
        let frames = live.frames().map(|frame| frame.commit);
        let unneeded: Vec<u64> = frames.chain(live.changed_in.iter().copied()).collect();
        // First the new one: a file of which nothing is needed forgets who needed it.
        match unneeded.iter().any(|commit| *commit >= newest) {
            true => self.newest().live += 1,
            false => self.count(live.header.run, 1),
        }
        for commit in unneeded {
            self.release(commit);
        }
    }

    /// A run that slept in the log is back in memory: each of its frames needs the block now.
    pub(super) fn rouse(&mut self, live: &mut Live, commit: u64) {
        let file = self.index_of(commit);
        self.files[file].live += live.tail.len() as u64 - 1;
        if live.needs_before(self.sweeping_to) {
            self.enqueue(live);
        }
    }

    /// Takes some of the runs that have to come back into memory to be archived.
    pub(super) fn take_drowsy(&mut self) -> Vec<RunId> {
        let left = self.drowsy.len().saturating_sub(RUNS_AT_ONCE);
        self.drowsy.split_off(left)
    }

    /// Returns how often runs are listed for files of the log.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.files.iter().map(|file| file.runs.len()).sum()
    }

    /// Enters a committed change of a note.
    pub(super) fn note(&mut self, key: NoteKey, value: Option<Bytes>, commit: u64) {
        self.newest().live += 1;
        if let Some(old) = self.notes.set(key, value, commit) {
            self.release(old);
        }
    }

    /// Has a run forget records, as a commit of the newest file says. Says whether there was anything to forget.
    pub(super) fn forget(&mut self, live: &mut Live, below: u64, commit: u64) -> bool {
        let Some((frames, older)) = live.forget(below, commit) else {
            return false;
        };
        for unneeded in frames {
            let file = self.release(unneeded);
            self.files[file].forgotten += 1;
        }
        if let Some(older) = older {
            self.release(older);
        }
        // The block that says so: what it is about may be gone when the log is read again.
        self.count(live.header.run, 1);
        true
    }

    fn newest(&mut self) -> &mut FileInfo {
        self.files.back_mut().expect("there always is a file")
    }

    /// Puts a run in line to be archived.
    pub(super) fn enqueue(&mut self, live: &mut Live) {
        if live.due {
            return;
        }
        live.due = true;
        if self.due.is_empty() {
            self.due_since = Instant::now();
        }
        self.due_bytes += live.tail_bytes;
        self.due.push_back(live.header.run);
    }

    /// Puts a run in line if it should be, after something was committed to it.
    pub(super) fn look_at(&mut self, live: &mut Live, bytes: usize) {
        if live.due {
            self.due_bytes += bytes;
        } else if live.wants_archiving() {
            self.enqueue(live);
        }
    }

    /// Puts a run in line if it should be, after frames and nothing else were committed to it.
    pub(super) fn grown(&mut self, live: &mut Live, bytes: usize) {
        if live.due {
            self.due_bytes += bytes;
        } else if live.is_long() {
            self.enqueue(live);
        }
    }

    /// Says whether so much waits to be archived that commits must wait for it.
    pub(super) fn is_behind(&self) -> bool {
        self.due.len() > MAX_DUE
            || self.notes.waiting() > MAX_NOTES
            || (self.bytes > 2 * self.max_bytes && self.has_work())
    }

    /// Says whether most of the log was forgotten, so that little would have to move for all of it to go.
    pub(super) fn is_hardly_needed(&self) -> bool {
        let sum = |of: fn(&FileInfo) -> u64| self.files.iter().map(of).sum::<u64>();
        let frames = sum(|file| file.frames);
        self.bytes > WORTH_LEAVING
            && sum(|file| file.forgotten) * 2 > frames
            && sum(|file| file.live) * 4 < frames
    }

    /// Says whether there is something to archive.
    pub(super) fn has_work(&self) -> bool {
        self.oldest_is_dead()
            || !self.due.is_empty()
            || !self.drowsy.is_empty()
            || self.notes.waiting() > 0
    }

    fn oldest_is_dead(&self) -> bool {
        self.files.len() > 1 && self.files[0].live == 0
    }

    /// Says when the next archive is to be made.
    pub(super) fn due(&self) -> Due {
        if !self.has_work() {
            return Due::Never;
        }
        let enough = self.due.len() >= ENOUGH_RUNS
            || !self.drowsy.is_empty()
            || self.due_bytes + self.notes.waiting_bytes() >= ENOUGH_BYTES
            || self.notes.waiting() >= ENOUGH_NOTES;
        if enough || self.is_behind() {
            return Due::Now;
        }
        let idle = self.committed_at + IDLE_AFTER;
        // Notes alone are not worth an archive after every lull: most change again soon.
        let notes = (self.notes.waiting() > 0).then(|| self.notes.since + WAIT_AT_MOST);
        let runs = idle.min(self.due_since + WAIT_AT_MOST);
        let at = match notes {
            Some(notes) if self.due.is_empty() && !self.oldest_is_dead() => notes,
            _ => runs,
        };
        if at <= Instant::now() {
            Due::Now
        } else {
            Due::At(at)
        }
    }

    /// Takes what the next archive moves. Nothing is encoded here: this is under the lock.
    pub(super) fn take(&mut self, table: &mut Table) -> Batch {
        let notes = self.notes.take(NOTES_BUDGET);
        let mut moving = Vec::new();
        // All that is not a frame or a letter changes in one batch, notes included.
        let mut spent: usize = notes
            .iter()
            .map(|note| note.value.as_ref().map_or(0, Bytes::len))
            .sum();
        while spent < ARCHIVE_BUDGET && moving.len() < RUNS_AT_ONCE {
            let Some(run) = self.due.pop_front() else {
                self.due_bytes = 0;
                break;
            };
            let live = table.runs.get_mut(&run);
            let live = live.expect("a run in line is in the table");
            if live.leaves() && live.pins > 0 {
                // It is put in line again when that is over.
                live.due = false;
                continue;
            }
            self.due_bytes = self.due_bytes.saturating_sub(live.tail_bytes);
            let letters = live.mailbox.as_mut().map(|mail| mail.leave_log());
            let letters = letters.unwrap_or_default();
            let letter_bytes: usize = letters.iter().map(|(mail, _)| mail.body.len()).sum();
            spent += live.tail_bytes + letter_bytes + RUN_COST;
            for frame in &live.tail {
                self.release(frame.commit);
            }
            for commit in live
                .changed_in
                .iter()
                .chain(letters.iter().map(|(_, at)| at))
            {
                self.release(*commit);
            }
            if let Some(commit) = live.gap_is_archived() {
                self.release(commit);
            }
            moving.push(Moving::new(live, letters.into_iter().map(|(mail, _)| mail)));
        }
        self.due_since = Instant::now();
        self.batch(moving, notes)
    }

    /// Takes the notes that are deleted with some runs.
    pub(super) fn take_notes_of(&mut self, runs: &[RunId]) -> Batch {
        let mut notes = Vec::new();
        for run in runs {
            notes.extend(self.notes.take_all(&NoteKey::of_run(*run, &[])));
        }
        self.batch(Vec::new(), notes)
    }

    fn batch(&mut self, moving: Vec<Moving>, notes: Vec<MovingNote>) -> Batch {
        for note in &notes {
            self.release(note.commit);
        }
        let newest = self.files.len() - 1;
        let needed = self.files.iter().position(|file| file.live > 0);
        Batch {
            moving,
            notes,
            as_of: self.commit,
            log_from: self.files[needed.unwrap_or(newest).min(newest)].first,
        }
    }

    /// Counts that something in a commit's block is no longer needed, and returns the file's place.
    pub(super) fn release(&mut self, commit: u64) -> usize {
        let file = self.index_of(commit);
        let known = &mut self.files[file];
        known.live -= 1;
        if known.live == 0 {
            // Nobody needs anything of it: who did is of no account.
            known.runs = Vec::new();
        }
        file
    }

    /// Makes an archive visible that is on the disk.
    pub(super) fn archived(&mut self, batch: Batch, table: &mut Table) -> Gone {
        let mut gone = Gone::default();
        self.notes.archived(&batch.notes);
        for moved in batch.moving {
            let run = moved.header.run;
            let live = table
                .runs
                .get_mut(&run)
                .expect("a run leaves the table only here");
            if moved.leaves && live.pins == 0 && live.leaves() && moved.is_all_of(live) {
                gone.frames.push(moved.frames);
                gone.runs.extend(table.remove(run));
                continue;
            }
            live.due = false;
            live.entry = moved.entry;
            gone.frames.push(moved.frames);
            live.end_move();
            live.changed_in.drain(..moved.changes);
            // It went on while it was moved.
            if live.wants_archiving() || live.needs_before(self.sweeping_to) {
                self.enqueue(live);
            }
        }
        while self.files[0].first < batch.log_from {
            let file = self.files.pop_front().expect("it was just looked at");
            self.bytes -= file.bytes;
            gone.files.push(file.first);
        }
        gone
    }

    /// Puts all runs in line that need something before the newest file.
    pub(super) fn sweep_all(&mut self, table: &mut Table) {
        let end = self.newest().first;
        self.sweeping_to = self.sweeping_to.max(end);
        for live in table.runs.values_mut() {
            if live.needs_before(end) {
                self.enqueue(live);
            }
        }
        let dozing = table.dozing.iter();
        let old = dozing.filter(|(_, doze)| doze.place.commit < end);
        self.drowsy = old.map(|(run, _)| run).collect();
    }

    /// Puts runs of the oldest file in line to be archived if the log is too long.
    pub(super) fn sweep(&mut self, table: &mut Table) {
        let in_line = self.due.len() + self.drowsy.len();
        let mut left = SWEPT_PER_COMMIT.min(MAX_DUE.saturating_sub(in_line));
        let mut unswept = self.bytes;
        for index in 0..self.files.len() - 1 {
            if unswept <= self.max_bytes && !self.files[index].is_hardly_needed() {
                return;
            }
            unswept -= self.files[index].bytes;
            let end = self.files[index + 1].first;
            self.sweeping_to = self.sweeping_to.max(end);
            while let Some(run) = self.files[index].runs.pop() {
                match table.runs.get_mut(&run) {
                    Some(live) if live.needs_before(end) => self.enqueue(live),
                    Some(_) => {}
                    None => {
                        let place = table.dozing.place(run);
                        let is_old = place.is_some_and(|place| place.commit < end);
                        self.drowsy.extend(is_old.then_some(run));
                    }
                }
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
            }
        }
    }
}

impl FileInfo {
    /// Says whether most of it was forgotten, and little else is in it: then what is needed of it moves to segments,
    /// so that it can go.
    fn is_hardly_needed(&self) -> bool {
        self.forgotten * 2 > self.frames && self.live * 8 < self.frames
    }
}

impl Moving {
    fn new(live: &mut Live, letters: impl Iterator<Item = Mail>) -> Self {
        let mailbox = live.mailbox.as_ref();
        let mailbox = mailbox.map_or((0, 0), |mail| (mail.taken, mail.next));
        let (frames, layout) = live.begin_move();
        Self {
            header: live.header.clone(),
            leaves: live.leaves(),
            frames,
            layout,
            letters: letters.collect(),
            mailbox,
            changes: live.changed_in.len(),
            entry: live.entry.clone(),
        }
    }

    /// Says whether nothing was committed to the run since.
    fn is_all_of(&self, live: &Live) -> bool {
        live.tail.is_empty() && self.changes == live.changed_in.len() && live.forgot_in().is_none()
    }
}
