//! Switches one mutant on after the other and runs the tests that reach it.
//!
//! Owns the verdicts, a line each in `verdicts.tsv`: what has one is not tried again, unless it lived and that is asked for. It
//! never runs a test that does not reach the mutant.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::list::Mutant;
use crate::tests::{self, Ended, Test, WORKERS};

/// The fastest tests go first and few at a time, because most mutants do not survive them.
const PORTIONS: [usize; 3] = [6, 40, 150];

/// How long tests may take with a mutant, beside ten times what they take without.
const PATIENCE: Duration = Duration::from_secs(25);

/// How long is hunted.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) minutes: u64,
    /// How many tests a mutant has to live through.
    pub(crate) most: usize,
}

/// Hunts until all are judged or the time is over.
pub(crate) fn hunt(
    output: &Path,
    mutants: Vec<Mutant>,
    left_out: &HashMap<u32, &'static str>,
    tests: &[Test],
    patience: Patience,
    again: bool,
) -> Result<(), String> {
    let path = output.join("verdicts.tsv");
    let known = fs::read_to_string(&path).unwrap_or_default();
    let mut judged: HashMap<&str, &str> = HashMap::new();
    for line in known.lines() {
        let mut fields = line.split('\t');
        if let (Some(verdict), Some(name)) = (fields.next(), fields.next()) {
            judged.insert(name, verdict);
        }
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(|error| error.to_string())?;
    let open = |mutant: &Mutant| match judged.get(mutant.name.as_str()) {
        None => true,
        Some(verdict) => again && matches!(*verdict, "lived" | "unreached"),
    };
    let waiting: Vec<Mutant> = mutants.into_iter().filter(open).collect();
    println!("{} mutants to judge", waiting.len());
    let (waiting, file) = (Mutex::new(waiting.into_iter()), Mutex::new(file));
    let until = Instant::now() + Duration::from_secs(patience.minutes * 60);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (waiting, file) = (&waiting, &file);
            scope.spawn(move || {
                while Instant::now() < until {
                    let next = waiting.lock().expect("no panic").next();
                    let Some(mutant) = next else { break };
                    let began = Instant::now();
                    let (verdict, by) = match left_out.get(&mutant.id) {
                        Some(why) => ((*why).to_owned(), String::new()),
                        None => judge(output, worker, &mutant, tests, patience.most),
                    };
                    let millis = began.elapsed().as_millis();
                    let line = format!("{verdict}\t{}\t{by}\t{millis}\n", mutant.name);
                    let _ = file.lock().expect("no panic").write_all(line.as_bytes());
                }
            });
        }
    });
    Ok(())
}

fn judge(
    output: &Path,
    worker: usize,
    mutant: &Mutant,
    tests: &[Test],
    most: usize,
) -> (String, String) {
    let mut reaching: Vec<&Test> = tests
        .iter()
        .filter(|test| test.reaches.contains(&mutant.id))
        .collect();
    if reaching.is_empty() {
        return ("unreached".into(), String::new());
    }
    reaching.sort_by_key(|test| test.time);
    let count = reaching.len();
    reaching.truncate(most);
    let run = reaching.len();
    let mut rest = &reaching[..];
    let mut sizes = PORTIONS.into_iter();
    while !rest.is_empty() {
        let (portion, behind) = rest.split_at(sizes.next().unwrap_or(150).min(rest.len()));
        rest = behind;
        let mut binaries: HashMap<&Path, Vec<&Test>> = HashMap::new();
        for test in portion {
            binaries.entry(&test.binary).or_default().push(test);
        }
        for (binary, tests) in binaries {
            let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
            let usual: Duration = tests.iter().map(|test| test.time).sum();
            let environment = [("MUTANT", mutant.id.to_string())];
            match tests::run(
                output,
                worker,
                binary,
                &names,
                PATIENCE + usual * 10,
                &environment,
            ) {
                Ended::Passed => {}
                Ended::Failed(test) => return ("caught".into(), test),
                Ended::TimedOut => {
                    return (
                        "timeout".into(),
                        names.join(" ").chars().take(200).collect(),
                    );
                }
            }
        }
    }
    ("lived".into(), format!("{run} of {count} tests"))
}
