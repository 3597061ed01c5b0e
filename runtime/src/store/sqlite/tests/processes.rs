//! Several processes on one file: this test binary starts itself again as the others.

use std::process::{Child, Command, Stdio};

use sqlx::Sqlite;

use super::SqliteFile;
use crate::store::suite::{Fixture, LIMITS, claim, effects, number, ready, rows};
use crate::store::{Inbox, Store as _, Value, Verdict};

const TASK: &str = "INBOXED_TEST_TASK";
const URL: &str = "INBOXED_TEST_URL";

fn start(task: &str, fixture: &SqliteFile) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::sqlite::tests::processes::as_another_process", "--ignored", "--nocapture"])
        .env(TASK, task)
        .env(URL, fixture.url())
        // Its summary would be counted with ours.
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn all_succeed(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "what the tests beside it start as another process"]
async fn as_another_process() {
    let inbox = Inbox::<Sqlite>::connect(&std::env::var(URL).unwrap()).await.unwrap();
    match std::env::var(TASK).unwrap().as_str() {
        "work" => {
            let workers = (0..8).map(|worker| tokio::spawn(read_then_write(inbox.clone(), worker)));
            for worker in workers.collect::<Vec<_>>() {
                worker.await.unwrap();
            }
        }
        "die" => {
            let (mut tx, verdicts) = Sqlite::begin(&inbox, &[claim("order:1")], LIMITS).await.unwrap();
            assert!(matches!(verdicts[0], Verdict::Fresh { .. }));
            crate::store::suite::effect::<Sqlite>(&mut tx, &claim("order:1")).await.unwrap();
            std::process::abort();
        }
        task => panic!("no such task: {task}"),
    }
}

const MESSAGES: u32 = 500;

/// Every worker of every process is given every eighth message: each comes twice, once to each process.
async fn read_then_write(inbox: Inbox<Sqlite>, worker: u32) {
    for message in (0..MESSAGES).filter(|message| message % 8 == worker) {
        let claim = claim(&format!("order:{message}"));
        let (mut tx, verdicts) = Sqlite::begin(&inbox, std::slice::from_ref(&claim), LIMITS).await.unwrap();
        if !matches!(verdicts[0], Verdict::Fresh { .. }) {
            Sqlite::rollback(tx).await;
            continue;
        }
        let read = Sqlite::run(&mut tx, "SELECT COUNT(*) FROM effects", vec![]).await.unwrap();
        let note = format!("after {}", read[0].int(0).unwrap());
        let write = "INSERT INTO effects (effect_key, note) VALUES (?, ?)";
        let arguments = vec![Value::from(claim.identity.name().as_str()), note.into()];
        Sqlite::run(&mut tx, write, arguments).await.unwrap();
        Sqlite::commit(tx).await.unwrap();
    }
}

#[tokio::test]
async fn l01_two_processes_of_eight_workers_that_read_then_write() {
    let fixture = ready::<SqliteFile>().await;
    all_succeed(vec![start("work", &fixture), start("work", &fixture)]);
    let messages = i64::from(MESSAGES);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (messages, messages));
    // Each body saw what all before it had committed, or two notes would be the same.
    assert_eq!(number(fixture.inbox(), "SELECT COUNT(DISTINCT note) FROM effects").await, messages);
}

#[tokio::test]
async fn p01_a_killed_process_frees_its_claim() {
    let fixture = ready::<SqliteFile>().await;
    assert!(!start("die", &fixture).wait().unwrap().success());
    let delivered = crate::store::suite::deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    assert_eq!(delivered, crate::store::suite::FRESH);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (1, 1));
}
