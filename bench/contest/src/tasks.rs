//! The workloads, the same code for every system.
//!
//! Owns what a task does and which figures it says. A task that runs into its limit says how far it came; it never
//! extrapolates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::arguments::{Place, Task};
use crate::measure::{cpu, disk_bytes, resident, resident_of};
use crate::{Failure, Removal, System, body, say};

/// Steps of the chain that everything is warmed up with.
const WARM_UP: u64 = 10;

/// How long a system may still work after its limit, before it counts as stuck.
const GRACE: Duration = Duration::from_secs(10);

/// How long memory and disk are left alone before they are read.
const SETTLE: Duration = Duration::from_secs(5);

/// How long runs that sleep are left alone before memory is read: a system may keep them for a while (ten seconds by this
/// engine's default).
const LEAVE: Duration = Duration::from_secs(20);

/// How long a system may take to remove what has ended; the runner waits longer.
const REMOVAL: Duration = Duration::from_secs(120);

/// Callers that start the same new key at the same time.
const RACERS: usize = 64;

/// A mebibyte.
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn perform<S: System>(task: Task, place: Place) -> Result<(), Failure> {
    match task {
        // What is held says its own line, and waits to be killed.
        Task::Hold => {
            body::hold_at(place.steps);
            let system = S::open(&place).await?;
            system.chain(Some("held".into()), place.steps + 1).await?;
            Err("the chain ended, although a step of it was held".into())
        }
        Task::Resume => {
            body::hold_at(place.steps);
            let _system = S::open(&place).await?;
            sleep(place.limit).await;
            let done = body::bodies();
            Err(format!("not resumed within {:?}, {done} bodies run", place.limit).into())
        }
        Task::Sequential => sequential(opened::<S>(&place).await?, &place).await,
        Task::Many => many(opened::<S>(&place).await?, &place).await,
        Task::Long => long(opened::<S>(&place).await?, &place).await,
        Task::Asleep => asleep(opened::<S>(&place).await?, &place).await,
        Task::Duplicates => duplicates(opened::<S>(&place).await?, &place).await,
        Task::Fill => fill(opened::<S>(&place).await?, &place).await,
    }
}

/// Opens a system and lets it do a little of everything.
async fn opened<S: System>(place: &Place) -> Result<Arc<S>, Failure> {
    let system = S::open(place).await?;
    let warm = timeout(place.limit, system.chain(None, WARM_UP)).await;
    match warm.map_err(|_| "the first ten steps did not end")?? {
        WARM_UP => Ok(Arc::new(system)),
        other => Err(format!("a chain of {WARM_UP} steps came to {other}").into()),
    }
}

/// W1. The rate of all runs together: a median of single runs would leave out the disk's pauses, which are in the floor.
async fn sequential<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    let (mut done, began) = (0, Instant::now());
    while done < place.runs || began.elapsed() < place.at_least {
        let left = place.limit.saturating_sub(began.elapsed());
        match timeout(left, system.chain(None, place.steps)).await {
            Ok(result) => expect(result?, place.steps)?,
            Err(_) => return Err(stuck(place)),
        }
        done += 1;
    }
    let steps = (done * place.steps) as f64;
    say::figure("steps_per_s", steps / began.elapsed().as_secs_f64());
    Ok(())
}

fn stuck(place: &Place) -> Failure {
    let done = body::bodies();
    format!("timed out after {:?}, {done} bodies run", place.limit).into()
}

fn expect(result: u64, steps: u64) -> Result<(), Failure> {
    match result == steps {
        true => Ok(()),
        false => Err(format!("a chain of {steps} steps came to {result}").into()),
    }
}

/// What many chains came to.
struct Drive {
    steps: u64,
    took: Duration,
    failed: u64,
}

/// Runs chains of ten steps or as many as are asked for, so many at once, until all are done or the time is up. Goes on with more of them
/// as long as a measurement is to last: a fast system is done with a thousand before anything but its beginning is seen.
async fn drive<S: System>(system: &Arc<S>, place: &Place) -> Result<Drive, Failure> {
    let (handed_out, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (before, began) = (body::bodies(), Instant::now());
    let (runs, steps, limit, at_least) = (place.runs, place.steps, place.limit, place.at_least);
    let tasks = (0..place.at_once).map(|_| {
        let (system, handed_out, failed) = (system.clone(), handed_out.clone(), failed.clone());
        tokio::spawn(async move {
            while began.elapsed() < limit
                && (handed_out.fetch_add(1, Ordering::Relaxed) < runs || began.elapsed() < at_least)
            {
                if !matches!(system.chain(None, steps).await, Ok(result) if result == steps) {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let all = async {
        for task in tasks {
            task.await?;
        }
        Ok::<(), Failure>(())
    };
    let ended = timeout(limit + GRACE, all).await;
    let (took, done) = (began.elapsed(), body::bodies() - before);
    match ended {
        Ok(ended) => ended?,
        Err(_) => say::note("some runs did not end within the limit and ten seconds"),
    }
    if done < runs * steps {
        // Without the number, which differs every time.
        say::note(&format!(
            "not all of {} steps within {limit:?}",
            runs * steps
        ));
    }
    Ok(Drive {
        steps: done,
        took,
        failed: failed.load(Ordering::Relaxed),
    })
}

/// W2 and W7.
async fn many<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    let before = cpu(&place.servers);
    let drive = drive(&system, place).await?;
    let after = cpu(&place.servers);
    if drive.steps == 0 {
        return Err(stuck(place));
    }
    let per_step = |seconds: f64| seconds * 1e6 / drive.steps as f64;
    say::figure("steps_per_s", drive.steps as f64 / drive.took.as_secs_f64());
    say::figure("failed_runs", drive.failed as f64);
    say::figure("cpu_us_per_step", per_step(after.own - before.own));
    if !place.servers.is_empty() {
        let servers = per_step(after.servers - before.servers);
        say::figure("server_cpu_us_per_step", servers);
    }
    Ok(())
}

/// W3.
async fn long<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    body::forget_times();
    let (before, began) = (body::bodies(), Instant::now());
    let ended = timeout(place.limit, system.chain(None, place.steps)).await;
    let took = began.elapsed().as_secs_f64();
    let done = body::bodies() - before;
    match ended {
        Ok(result) => expect(result?, place.steps)?,
        Err(_) => say::note(&format!(
            "not all of {} steps within {:?}",
            place.steps, place.limit
        )),
    }
    say::figure("steps_per_s", done as f64 / took);
    say::figure("steps", done as f64);
    let thousands = body::thousands();
    if let [first, .., last] = thousands.as_slice() {
        say::figure("first_thousand_ms", first.as_secs_f64() * 1e3);
        say::figure("last_thousand_ms", last.as_secs_f64() * 1e3);
        say::figure("last_to_first", last.as_secs_f64() / first.as_secs_f64());
    }
    Ok(())
}

/// W6.
async fn asleep<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    sleep(SETTLE).await;
    let (before, servers) = (resident(), resident_of(&place.servers));
    let began = Instant::now();
    let handed_out = Arc::new(AtomicU64::new(0));
    let tasks = (0..place.at_once).map(|_| {
        let (system, handed_out) = (system.clone(), handed_out.clone());
        let (runs, limit) = (place.runs, place.limit);
        tokio::spawn(async move {
            while began.elapsed() < limit && handed_out.fetch_add(1, Ordering::Relaxed) < runs {
                system.fall_asleep().await?;
            }
            Ok::<(), Failure>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        let left = (place.limit + GRACE).saturating_sub(began.elapsed());
        timeout(left, task).await.map_err(|_| stuck(place))???;
    }
    while body::runs_asleep() < place.runs && began.elapsed() < place.limit {
        sleep(Duration::from_millis(20)).await;
    }
    let sleeping = body::runs_asleep().min(place.runs);
    say::figure("fell_asleep_s", began.elapsed().as_secs_f64());
    if sleeping < place.runs {
        say::note(&format!("{sleeping} of {} runs fell asleep", place.runs));
    }
    sleep(LEAVE).await;
    say::figure("grown_mib", (resident() - before) / MIB);
    if !place.servers.is_empty() {
        let servers = resident_of(&place.servers) - servers;
        say::figure("servers_grown_mib", servers / MIB);
    }
    Ok(())
}

/// W8.
async fn duplicates<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    let before = body::bodies();
    let racers = (0..RACERS).map(|_| {
        let system = system.clone();
        tokio::spawn(async move { system.chain(Some("race".into()), 1).await })
    });
    let mut refused = 0;
    for racer in racers.collect::<Vec<_>>() {
        let result = timeout(place.limit, racer).await;
        match result.map_err(|_| stuck(place))?? {
            Ok(result) => expect(result, 1)?,
            Err(_) => refused += 1,
        }
    }
    say::figure("bodies_of_64_at_once", (body::bodies() - before) as f64);
    say::figure("refused_of_64_at_once", f64::from(refused));
    expect(system.chain(Some("order".into()), 1).await?, 1)?;
    let (bodies, began) = (body::bodies(), Instant::now());
    let mut done = 0_u64;
    while began.elapsed() < place.at_least {
        expect(system.chain(Some("order".into()), 1).await?, 1)?;
        done += 1;
    }
    say::figure(
        "duplicates_per_s",
        done as f64 / began.elapsed().as_secs_f64(),
    );
    say::figure("bodies_of_duplicates", (body::bodies() - bodies) as f64);
    Ok(())
}

/// W9.
async fn fill<S: System>(system: Arc<S>, place: &Place) -> Result<(), Failure> {
    let before = disk_bytes(&place.footprint) as f64;
    let drive = drive(&system, place).await?;
    if drive.steps == 0 {
        return Err(stuck(place));
    }
    sleep(SETTLE).await;
    let filled = disk_bytes(&place.footprint) as f64 - before;
    say::figure("steps", drive.steps as f64);
    say::figure("bytes_per_step", filled / drive.steps as f64);
    let began = Instant::now();
    match timeout(REMOVAL, system.remove_ended()).await {
        Ok(removed) => match removed? {
            Removal::Done => {}
            Removal::NotOffered(why) => {
                say::not_offered(why);
                return Ok(());
            }
        },
        Err(_) => return Err(format!("the removal timed out after {REMOVAL:?}").into()),
    }
    say::figure("removal_s", began.elapsed().as_secs_f64());
    sleep(SETTLE).await;
    let left = disk_bytes(&place.footprint) as f64 - before;
    say::figure("bytes_per_step_after_removal", left / drive.steps as f64);
    Ok(())
}
