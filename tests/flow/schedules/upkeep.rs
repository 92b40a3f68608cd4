//! Schedules that are paused, triggered, described, refused, or cannot be served.

use super::*;

#[tokio::test]
async fn a_paused_schedule_does_not_tick_and_does_not_make_up_for_it() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let quick = engine
        .schedule("quick", report("Berlin".into()))
        .every(Duration::from_millis(10))
        .overlap(Overlap::Allow)
        .await
        .expect("is declared");
    quick.pause().await.expect("is paused");
    let paused = quick.describe().await.expect("is there");
    assert!(paused.paused && paused.next.is_empty(), "{paused:?}");
    let before = runs(&engine, None).await.len();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(runs(&engine, None).await.len(), before);
    engine.shutdown().await.expect("stops");
    let store = store.reopen(Surviving::Synced);
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(
        runs(&engine, None).await.len(),
        before,
        "the pause survives a restart"
    );
    let quick = engine.schedule_handle("quick");
    let resumed = Timestamp::from(SystemTime::now()).to_string();
    quick.resume().await.expect("is resumed");
    until("it ticks", async || {
        runs(&engine, None).await.len() > before
    })
    .await;
    quick.delete().await.expect("is deleted");
    for run in &runs(&engine, None).await[before..] {
        let key = run.key.as_deref().expect("has a key");
        let tick = key
            .strip_prefix("schedule/quick/")
            .expect("of this schedule");
        // To the millisecond: both are times in UTC that sort as text.
        let to_millis = "2026-01-01T00:00:00.000".len();
        assert!(
            tick[..to_millis] >= resumed[..to_millis],
            "{tick} was made up after {resumed}"
        );
    }
}

#[tokio::test]
async fn a_trigger_starts_a_run_now_and_each_one_another() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let engine = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let rare = engine
        .schedule("rare", report("Berlin".into()))
        .cron("0 0 29 2 *")
        .time_zone("Europe/Berlin")
        .await
        .expect("is declared");
    rare.pause().await.expect("is paused");
    let first = rare.trigger().await.expect("is triggered");
    let second = rare.trigger().await.expect("is triggered");
    assert_ne!(first, second);
    let run = engine.run::<report>(second).await.expect("is there");
    run.result().await.expect("ends well");
    let described = rare.describe().await.expect("is there");
    assert_eq!(
        (described.last_run, described.last_tick),
        (Some(second), None)
    );
    until("both", async || ended(&engine).await.len() == 2).await;
    assert_eq!(
        engine.status(first).await.expect("is there"),
        RunStatus::Completed
    );
}

#[tokio::test]
async fn a_description_says_what_comes_and_a_list_names_all() {
    let world = World::new(OPEN);
    let engine = world.engine().open_in_memory().await.expect("opens");
    let nightly = engine
        .schedule("nightly", report("Berlin".into()))
        .cron("0 2 * * *")
        .time_zone("Europe/Berlin");
    let nightly = nightly.await.expect("is declared");
    let daily = engine.schedule("daily", other()).every(HOUR * 24);
    daily.await.expect("is declared");
    let described = nightly.describe().await.expect("is there");
    assert_eq!(&*described.timing, "0 2 * * * Europe/Berlin");
    assert_eq!(described.next.len(), 5);
    assert!(described.next.is_sorted());
    assert!(described.next[0] > SystemTime::now().into());
    assert_eq!(
        (described.overlap, described.catch_up),
        (Overlap::Skip, CatchUp::Last)
    );
    let all = engine.schedules().await.expect("lists");
    let names: Vec<_> = all.iter().map(|schedule| &*schedule.name).collect();
    assert_eq!(names, ["daily", "nightly"]);
    nightly.delete().await.expect("is deleted");
    assert_eq!(engine.schedules().await.expect("lists").len(), 1);
    for refused in [nightly.describe().await.err(), nightly.delete().await.err()] {
        assert!(matches!(refused, Some(EngineError::UnknownSchedule(name)) if name == "nightly"));
    }
    let elsewhere = world.engine().namespace("elsewhere").open_in_memory().await;
    let elsewhere = elsewhere.expect("opens");
    assert!(elsewhere.schedules().await.expect("lists").is_empty());
}

#[tokio::test]
async fn a_schedule_that_cannot_be_served_is_reported_and_stops_no_other() {
    let world = World::new(OPEN);
    let store = MemoryStore::new();
    let broken = Commit {
        guards: vec![],
        changes: Changes {
            notes: vec![NoteChange {
                key: NoteKey::new(0x40, &[b"default", b"broken"]),
                value: Some(vec![1, 2, 3].into()),
            }],
            ..Changes::default()
        },
    };
    store.commit(broken).await.expect("writes");
    let now = SystemTime::now();
    let first = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    let five = five_past(&first, now).catch_up(ALL).overlap(Overlap::Allow);
    five.start_at(now + Duration::from_millis(60))
        .end_at(now + Duration::from_millis(70))
        .await
        .expect("is declared");
    first.shutdown().await.expect("stops");

    let store = store.reopen(Surviving::Synced);
    let second = world.engine_without_report().open_with(store.clone()).await;
    let second = second.expect("opens");
    let quick = second
        .schedule("quick", other())
        .every(Duration::from_millis(10));
    quick.await.expect("is declared");
    let served = || world.ledger.effects().contains(&"other".to_owned());
    until("the other one ticks, both are reported", async || {
        served() && second.warnings().len() >= 2
    })
    .await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let warnings = second.warnings();
    assert_eq!(warnings.len(), 2, "each once: {warnings:?}");
    let text = warnings.iter().map(ToString::to_string).collect::<String>();
    assert!(text.contains("schedule `broken` is not served"), "{text}");
    assert!(
        text.contains("no workflow `report` version 1 is registered"),
        "{text}"
    );
    assert_eq!(second.schedules().await.expect("lists").len(), 2);
    let handle = second.schedule_handle("broken");
    assert!(matches!(
        handle.pause().await,
        Err(EngineError::Schedule { .. })
    ));
    handle
        .delete()
        .await
        .expect("what cannot be read can be deleted");
    second.shutdown().await.expect("stops");

    let store = store.reopen(Surviving::Synced);
    let third = world
        .engine()
        .open_with(store.clone())
        .await
        .expect("opens");
    until("the tick was not lost", async || {
        ended(&third).await.len() == 1
    })
    .await;
}

#[tokio::test]
async fn a_schedule_that_cannot_work_is_refused_with_the_way_out() {
    let world = World::new(OPEN);
    let engine = world.engine_without_report().open_in_memory().await;
    let engine = engine.expect("opens");
    let named = |name: &str| engine.schedule(name, other());
    let minute = Duration::from_secs(60);
    let now = SystemTime::now();
    for (schedule, words) in [
        (named("a"), "add `.cron("),
        (named("a").cron("* * * * *").every(minute), "leave one out"),
        (
            named("a").every(minute).time_zone("UTC"),
            "has no time zone",
        ),
        (named("a").every(Duration::ZERO), "the shortest is 1ms"),
        (named("a").cron("* * *"), "has five fields"),
        (named("a").cron("@daily"), "has five fields"),
        (named("a").cron("0 0 30 2 *"), "would never tick"),
        (
            named("a").cron("* * * * *").time_zone("Mars"),
            "`Mars` is not a time zone",
        ),
        (named("").every(minute), "cannot be empty"),
        (named(&"x".repeat(300)).every(minute), "at most 256"),
        (
            named("a").every(minute).start_at(now).end_at(now - HOUR),
            "before it starts",
        ),
    ] {
        let error = schedule.await.expect_err(words);
        assert!(matches!(error, EngineError::Schedule { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error} says {words}");
    }
    let unregistered = engine
        .schedule("a", report("Berlin".into()))
        .every(minute)
        .await;
    assert!(matches!(
        unregistered,
        Err(EngineError::NotRegistered { .. })
    ));
    assert!(engine.schedules().await.expect("lists").is_empty());
}
