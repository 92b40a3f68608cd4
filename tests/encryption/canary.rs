//! The canary: a secret on every way, and a search of all files, exports and logs for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use workflow_runtime::export::JournalFile;
use workflow_runtime::testing::{ReplayFailureKind, Replayer};
use workflow_runtime::{Engine, EngineBuilder, Error, RunError, RunId, RunStatus};

use super::stories::{self, builder, everything, failing, lives, passes, plain, secret, stuck};
use super::{encryption, open_on, until};

/// Every event and span of the process, with all fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    /// The one of this process.
    fn of_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let subscriber = tracing_subscriber::registry().with(log.clone());
            tracing::subscriber::set_global_default(subscriber).expect("is the only one");
            log
        })
    }

    fn text(&self) -> String {
        self.0.lock().expect("no panic").clone()
    }
}

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let mut text = self.0.lock().expect("no panic");
        text.push_str(&format!("{}={value:?}\n", field.name()));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        event.record(&mut self.clone());
    }

    fn on_new_span(
        &self,
        span: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        span.record(&mut self.clone());
    }
}

/// Every way on which a value reaches the store.
const WAYS: [&str; 43] = [
    "run-input",
    "published",
    "step-input",
    "step-output",
    "message-of-step",
    "attempt",
    "second-attempt",
    "step-error",
    "step-panic",
    "already-done",
    "intent",
    "fetched",
    "keyed",
    "shared",
    "message-of-workflow",
    "child-input",
    "child-output",
    "child-error",
    "signal",
    "hook",
    "inbox-signal",
    "run-output",
    "undo-input",
    "undo-output",
    "kept-call",
    "run-error",
    "checkpoint",
    "checkpoint-signal",
    "late-error",
    "continued",
    "life",
    "line-published",
    "line-signal",
    "parked",
    "aside-problem",
    "queued",
    "delayed",
    "debounced",
    "scheduled",
    "inbox-start",
    "inbox-outcome",
    "once",
    "once-again",
];

/// What a life left behind.
struct Lived {
    /// All that the engine made of texts.
    texts: String,
    /// What all exports hold that were asked for in clear.
    opened: String,
}

/// Lives through all stories, with a restart in the middle, and exports all runs.
async fn live(path: &Path, builder: impl Fn() -> EngineBuilder) -> Lived {
    let engine = open_on(path, &builder).await;
    let main = engine.start(everything(secret("run-input"))).key("main");
    let main = main.await.expect("starts").id();
    let line = engine.start(lives(secret("continued"), 0)).key("line");
    let line = line.await.expect("starts").id();
    let passing = engine.start(passes(secret("checkpoint"), 0)).key("p");
    let passing = passing.await.expect("starts").id();
    let fails = engine.start(failing()).key("f").await.expect("starts");
    let error = fails.result().await.expect_err("fails");
    assert!(error.to_string().contains(&secret("run-error")), "{error}");
    let parked = engine.start(stuck(secret("parked"))).key("s").await;
    let parked = parked.expect("starts");
    let Err(RunError::Parked(parking)) = parked.result().await else {
        panic!("is parked");
    };
    let mut texts = format!("{parking:?} {}", parking.report);
    let parked = parked.id();
    send(&engine, main, line, passing).await;
    start_later(&engine).await;
    until("it waits for the event", async || {
        let state = engine.run::<everything>(main).await.expect("is there");
        state.published::<String>("state").await.expect("reads") == Some(secret("published"))
    })
    .await;

    drop(engine);
    let engine = open_on(path, &builder).await;
    let detail = engine.parked_detail(parked).await.expect("reads");
    assert_eq!(detail, Some(secret("parked")));
    let event = engine.inbox("events").accept("evt-2");
    let event = event.signal(main, "event", &secret("inbox-signal")).await;
    event.expect("accepted");
    let run = engine.run::<everything>(main).await.expect("is there");
    assert_eq!(run.result().await.expect("ends"), secret("run-output"));
    let run = engine.run::<passes>(passing).await.expect("is there");
    let error = run.result().await.expect_err("fails");
    assert!(error.to_string().contains(&secret("late-error")), "{error}");
    let run = engine.run::<lives>(line).await.expect("is there");
    assert_eq!(run.result().await.expect("ends"), secret("line-signal"));
    let life = run.published::<String>("life").await.expect("reads");
    assert_eq!(life, Some(secret("line-published")));
    until("a message is set aside", async || {
        let aside = engine.outbox("mail").set_aside(10).await.expect("lists");
        aside.iter().any(|one| {
            let word: String = one.message.decode().expect("reads");
            assert_eq!(word, secret("message-of-workflow"));
            one.problem.contains(&secret("aside-problem"))
        })
    })
    .await;
    until("all have ended", async || {
        let runs = engine.runs().limit(1000).await.expect("lists").runs;
        runs.iter().all(|header| {
            let status = RunStatus::from(header.state.clone());
            header.run == parked || !matches!(status, RunStatus::Active)
        })
    })
    .await;
    for header in engine.runs().limit(1000).await.expect("lists").runs {
        let journal = engine.journal(header.run).await.expect("reads");
        texts.push_str(&format!("{journal} {header:?}"));
        let drawn = engine.diagram(header.run).await.expect("is drawn");
        texts.push_str(&format!("{} {}", drawn.mermaid(), drawn.dot()));
    }
    texts.push_str(&format!("{:?} {}", engine.warnings(), engine.audit()));
    let opened = export_all(&engine, path).await;
    // As long as the archiver may take: then the secrets are where they stay.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    engine.shutdown().await.expect("stops");
    Lived { texts, opened }
}

async fn send(engine: &Engine, main: RunId, line: RunId, passing: RunId) {
    let word = secret("line-signal");
    engine.signal(line, "word", &word).await.expect("sent");
    engine.signal(line, "begin", &()).await.expect("sent");
    let word = secret("checkpoint-signal");
    engine.signal(passing, "word", &word).await.expect("sent");
    let word = secret("signal");
    let signal = engine.signal(main, "word", &word).key("once");
    signal.await.expect("sent");
    let word = secret("hook");
    until("the token is held", async || {
        engine.signal_token("token", &word).await.is_ok()
    })
    .await;
}

/// Starts runs that do not begin at once, and work outside of runs.
async fn start_later(engine: &Engine) {
    let short = Duration::from_millis(30);
    let queued = engine.start(plain(secret("queued"))).queue("queue");
    queued.await.expect("queued");
    let delayed = engine.start(plain(secret("delayed"))).queue("queue");
    delayed.delay(short).await.expect("queued");
    let start = engine.start(plain(secret("debounced"))).queue("queue");
    start.debounce("k", short).await.expect("taken");
    let schedule = engine
        .schedule("s", plain(secret("scheduled")))
        .every(short)
        .await
        .expect("is declared");
    until("it has run", async || {
        let runs = engine.runs().limit(1000).await.expect("lists").runs;
        let of_schedule = |it: &workflow_runtime::store::RunHeader| &*it.workflow == "plain";
        runs.into_iter().filter(of_schedule).count() >= 5
    })
    .await;
    schedule.delete().await.expect("is deleted");
    let inbox = engine.inbox("events");
    let event = inbox.accept("evt-1").start(plain(secret("inbox-start")));
    event.await.expect("accepted");
    for way in ["inbox-outcome", "not done again"] {
        let event = inbox.accept("evt-3");
        let word = event.run(|| async { Ok::<_, Error>(secret(way)) }).await;
        assert_eq!(word.expect("is done"), secret("inbox-outcome"));
    }
    for (key, way) in [("a", "once"), ("b", "once-again"), ("a", "not again")] {
        let once = engine.once(key).ttl(Duration::from_secs(3600));
        let word = once.run(|| async { Ok::<_, Error>(secret(way)) }).await;
        let expected = if key == "a" { "once" } else { "once-again" };
        assert_eq!(word.expect("is done"), secret(expected));
    }
}

/// Exports all runs beside the store, in both forms, and gives what they hold if they are opened.
async fn export_all(engine: &Engine, path: &Path) -> String {
    let folder = path.with_extension("exports");
    std::fs::create_dir(&folder).expect("is made");
    let mut opened = String::new();
    for header in engine.runs().limit(1000).await.expect("lists").runs {
        let file = engine.export(header.run).await.expect("exports");
        for form in ["journal.json", "journal"] {
            let name = folder.join(format!("{}.{form}", header.run));
            file.write(&name).expect("writes");
            assert_eq!(JournalFile::read(&name).expect("reads"), file);
        }
        let encrypted = file.is_coded();
        assert_eq!(
            file.key_ids(),
            if encrypted { vec![1] } else { vec![] },
            "{header:?}"
        );
        let open = engine.export(header.run).opened().await.expect("opens");
        assert_eq!(file.open_with(&encryption()).expect("opens"), open);
        opened.push_str(&open.to_json());
    }
    opened
}

/// Replays all exported files with the key: nothing but the run that panics is to be said against any of them.
fn replay_all(path: &Path) {
    let replayer = Replayer::new().configure(|_| builder().payload_codec(encryption()));
    let Err(failures) = replayer.dir(path.with_extension("exports")) else {
        panic!("one of them panics");
    };
    for failure in failures.failures() {
        assert_eq!(failure.kind(), ReplayFailureKind::Panicked, "{failure}");
    }
    assert_eq!(
        failures.failures().len(),
        2,
        "one run in two forms: {failures}"
    );
}

/// All words of ours in some bytes.
fn words(bytes: &[u8], found: &mut BTreeSet<String>) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == b'c') {
        rest = &rest[at..];
        if rest.starts_with(b"canary") {
            let word = rest.iter().take_while(|byte| **byte != b'.');
            let word: Vec<u8> = word.copied().take(40).collect();
            found.insert(String::from_utf8_lossy(&word).into_owned());
        }
        rest = &rest[1..];
    }
}

/// Looks again and again at all files below a directory: what stands there for a moment only is seen as well, unless it is
/// shorter than a look.
struct Watch {
    stop: Arc<AtomicBool>,
    looking: std::thread::JoinHandle<(BTreeSet<String>, usize)>,
}

impl Watch {
    fn over(dir: &Path) -> Self {
        let (dir, stop) = (dir.to_owned(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let looking = std::thread::spawn(move || {
            let (mut found, mut most) = (BTreeSet::new(), 0);
            loop {
                let last = stopped.load(Ordering::SeqCst);
                most = most.max(look(&dir, &mut found));
                if last {
                    return (found, most);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, looking }
    }

    /// Looks for a last time, and gives all that was found and the most bytes that were seen at once.
    fn end(self) -> (BTreeSet<String>, usize) {
        self.stop.store(true, Ordering::SeqCst);
        self.looking.join().expect("does not panic")
    }
}

/// Looks at all files below a directory; they may go while it does.
fn look(dir: &Path, found: &mut BTreeSet<String>) -> usize {
    let mut seen = 0;
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            seen += look(&path, found);
        } else if let Ok(bytes) = std::fs::read(&path) {
            words(&bytes, found);
            seen += bytes.len();
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_encryption_no_secret_is_in_a_file_an_export_a_log_or_a_timeline_and_without_it_each_is()
 {
    let log = Log::of_process();
    let nothing = BTreeSet::new();
    let dir = tempfile::tempdir().expect("a directory");
    let (store, watch) = (dir.path().join("store"), Watch::over(dir.path()));
    let lived = live(&store, || builder().payload_codec(encryption())).await;
    let (found, seen) = watch.end();
    assert!(seen > 10_000, "{seen}");
    assert_eq!(found, nothing, "in a file of the store or an export");
    let said = log.text();
    assert!(said.contains("step"), "nothing was logged");
    let mut found = BTreeSet::new();
    words(said.as_bytes(), &mut found);
    assert_eq!(found, nothing, "in the log");
    words(lived.texts.as_bytes(), &mut found);
    assert_eq!(found, nothing, "{}", lived.texts);
    replay_all(&store);

    // The same without encryption: each of them is found, so each can be.
    let dir = tempfile::tempdir().expect("a directory");
    let watch = Watch::over(dir.path());
    let plain = live(&dir.path().join("store"), builder).await;
    let (found, _) = watch.end();
    let all = WAYS.map(|way| secret(way).trim_end_matches('.').to_owned());
    assert_eq!(found, BTreeSet::from(all));
    // What was opened on purpose is all that the journals of runs without encryption hold.
    let [mut opened, mut in_clear] = [BTreeSet::new(), BTreeSet::new()];
    words(lived.opened.as_bytes(), &mut opened);
    words(plain.opened.as_bytes(), &mut in_clear);
    assert!(opened.len() > 20, "{opened:?}");
    assert_eq!(opened, in_clear);
    // What is logged holds no payload even then.
    let mut found = BTreeSet::new();
    words(log.text().as_bytes(), &mut found);
    assert_eq!(found, nothing, "in the log");
    let _ = stories::child::NAME;
}
