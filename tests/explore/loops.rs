//! Consumers written by hand, each without one of the rules, under a check of their own: crashes at each step, a lost
//! acknowledgement, two copies at once. The check must turn red for each of them, and stay green for the one that keeps
//! the rules.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use inboxed::broker::{Incoming, Source};
use inboxed::memory::{Memory, MemorySettler, MemoryToken};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use sqlx::{Executor as _, SqliteConnection};

/// The steps at which a process may die.
const STEPS: [Step; 5] = [Step::Received, Step::Claimed, Step::EffectDone, Step::Committed, Step::Acknowledged];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Received,
    Claimed,
    EffectDone,
    Committed,
    Acknowledged,
}

/// One process with a consumer in it.
struct Process {
    pool: SqlitePool,
    broker: Memory,
    dies_at: Option<Step>,
    dead: Arc<AtomicBool>,
    /// Whether it takes a rest at each step, so that two of them meet everywhere.
    slow: bool,
}

impl Process {
    async fn reach(&self, step: Step) {
        if self.dies_at == Some(step) {
            self.dead.store(true, Ordering::SeqCst);
            pending::<()>().await;
        }
        if self.slow {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Hands each delivery to the loop's body until the broker has none left.
    async fn each(&self, handle: impl AsyncFn(&Self, &MemorySettler, Incoming<MemoryToken>) -> sqlx::Result<()>) {
        let mut source = self.broker.open("orders").await.unwrap();
        let settler = source.settler();
        while let Ok(deliveries) = source.receive(1).await {
            for delivery in deliveries {
                self.reach(Step::Received).await;
                // A failure is left to the lease.
                let _ = handle(self, &settler, delivery).await;
            }
        }
    }
}

async fn effect(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    connection.execute("INSERT INTO effects VALUES (1)").await?;
    Ok(())
}

/// The claim: whether the row is ours.
async fn claim(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    let claimed = connection.execute("INSERT INTO inbox VALUES ('order:1') ON CONFLICT DO NOTHING").await?;
    Ok(claimed.rows_affected() == 1)
}

/// How many scenarios ended with more and with less than one effect.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    doubled: Vec<String>,
    lost: Vec<String>,
}

/// What a consumer does with one message, `effects` rows being right for it.
async fn check(consume: impl AsyncFn(Process), effects: i64) -> Verdict {
    let mut verdict = Verdict::default();
    let crashes = STEPS.map(|step| (format!("dies at {step:?}"), Some(step), 1, 0));
    let others = [("lost acknowledgement".to_owned(), None, 1, 1), ("two copies at once".to_owned(), None, 2, 0)];
    for (scenario, dies_at, copies, lost_acks) in crashes.into_iter().chain(others) {
        let folder = tempfile::tempdir().unwrap();
        let file = SqliteConnectOptions::new().filename(folder.path().join("shop.db")).create_if_missing(true);
        let file = file.journal_mode(SqliteJournalMode::Wal);
        let pool = || SqlitePool::connect_with(file.clone());
        let tables = "CREATE TABLE effects (id INTEGER); CREATE TABLE inbox (message_key TEXT PRIMARY KEY)";
        pool().await.unwrap().execute(sqlx::raw_sql(tables)).await.unwrap();
        let lost = move |delivery: &inboxed::Received| delivery.delivery_count <= lost_acks;
        let broker = Memory::builder().lease(Duration::from_millis(400)).lose_ack_if(lost).build();
        for _ in 0..copies {
            broker.publish("orders", "1");
        }
        broker.end_when_settled("orders");
        let dead = Arc::new(AtomicBool::new(false));
        let process = async |dies_at, slow| {
            let (pool, broker, dead) = (pool().await.unwrap(), broker.clone(), Arc::clone(&dead));
            consume(Process { pool, broker, dies_at, dead, slow }).await;
        };
        if copies == 2 {
            tokio::join!(process(None, true), process(None, true));
        } else {
            let died = async {
                while !dead.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            tokio::select! { () = process(dies_at, false) => {}, () = died => {} }
            let after = tokio::time::timeout(Duration::from_secs(30), process(None, false));
            after.await.expect("the process after the crash brings it to its end");
        }
        let found: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM effects").fetch_one(&pool().await.unwrap()).await.unwrap();
        match found {
            found if found > effects => verdict.doubled.push(scenario),
            found if found < effects => verdict.lost.push(scenario),
            _ => {}
        }
    }
    verdict
}

/// Claim, effect, commit, acknowledge.
async fn by_the_rules(process: Process) {
    let handle = async |process: &Process, settler: &MemorySettler, delivery: Incoming<MemoryToken>| {
        let mut tx = process.pool.begin_with("BEGIN IMMEDIATE").await?;
        if claim(&mut tx).await? {
            process.reach(Step::Claimed).await;
            effect(&mut tx).await?;
            process.reach(Step::EffectDone).await;
            tx.commit().await?;
            process.reach(Step::Committed).await;
        } else {
            tx.rollback().await?;
        }
        settler.acknowledge_without_proof(delivery.token);
        process.reach(Step::Acknowledged).await;
        Ok(())
    };
    process.each(handle).await;
}

#[tokio::test]
async fn loop_by_the_rules_is_exact() {
    assert_eq!(check(by_the_rules, 1).await, Verdict::default());
}

async fn without_a_claim(process: Process) {
    let handle = async |process: &Process, settler: &MemorySettler, delivery: Incoming<MemoryToken>| {
        let mut tx = process.pool.begin_with("BEGIN IMMEDIATE").await?;
        effect(&mut tx).await?;
        process.reach(Step::EffectDone).await;
        tx.commit().await?;
        process.reach(Step::Committed).await;
        settler.acknowledge_without_proof(delivery.token);
        process.reach(Step::Acknowledged).await;
        Ok(())
    };
    process.each(handle).await;
}

#[tokio::test]
async fn without_a_claim_effects_are_found_doubled() {
    let Verdict { doubled, lost } = check(without_a_claim, 1).await;
    assert_eq!(doubled, ["dies at Committed", "lost acknowledgement", "two copies at once"]);
    assert!(lost.is_empty(), "{lost:?}");
}

async fn acknowledging_first(process: Process) {
    let handle = async |process: &Process, settler: &MemorySettler, delivery: Incoming<MemoryToken>| {
        let mut tx = process.pool.begin_with("BEGIN IMMEDIATE").await?;
        if claim(&mut tx).await? {
            settler.acknowledge_without_proof(delivery.token);
            process.reach(Step::Acknowledged).await;
            effect(&mut tx).await?;
            process.reach(Step::EffectDone).await;
            tx.commit().await?;
            process.reach(Step::Committed).await;
        } else {
            tx.rollback().await?;
            settler.acknowledge_without_proof(delivery.token);
        }
        Ok(())
    };
    process.each(handle).await;
}

#[tokio::test]
async fn acknowledged_before_its_commit_a_message_is_found_lost() {
    let Verdict { doubled, lost } = check(acknowledging_first, 1).await;
    assert_eq!(lost, ["dies at EffectDone", "dies at Acknowledged"]);
    assert!(doubled.is_empty(), "{doubled:?}");
}

/// Looks whether the message is known, and notes it after its effect: nothing refuses the second of two that looked.
async fn looking_before_writing(process: Process) {
    let handle = async |process: &Process, settler: &MemorySettler, delivery: Incoming<MemoryToken>| {
        let known = sqlx::query("SELECT 1 FROM inbox").fetch_optional(&process.pool).await?;
        process.reach(Step::Claimed).await;
        if known.is_none() {
            let mut tx = process.pool.begin_with("BEGIN IMMEDIATE").await?;
            effect(&mut tx).await?;
            process.reach(Step::EffectDone).await;
            tx.execute("INSERT OR REPLACE INTO inbox VALUES ('order:1')").await?;
            tx.commit().await?;
            process.reach(Step::Committed).await;
        }
        settler.acknowledge_without_proof(delivery.token);
        process.reach(Step::Acknowledged).await;
        Ok(())
    };
    process.each(handle).await;
}

#[tokio::test]
async fn select_before_insert_is_found_doubling() {
    let Verdict { doubled, lost } = check(looking_before_writing, 1).await;
    assert_eq!(doubled, ["two copies at once"]);
    assert!(lost.is_empty(), "{lost:?}");
}

/// A transaction whose body may do what it likes, with a commit that looks at nothing.
async fn unchecked(process: Process, body: impl AsyncFn(&Process, &mut SqliteConnection) -> sqlx::Result<()>) {
    let handle = async |process: &Process, settler: &MemorySettler, delivery: Incoming<MemoryToken>| {
        let mut connection = process.pool.acquire().await?;
        connection.execute("BEGIN IMMEDIATE").await?;
        if claim(&mut connection).await? {
            process.reach(Step::Claimed).await;
            body(process, &mut connection).await?;
            process.reach(Step::EffectDone).await;
            // What COMMIT answers is not looked at, as where it answers Ok to a transaction that is gone.
            let _ = connection.execute("COMMIT").await;
            process.reach(Step::Committed).await;
        } else {
            connection.execute("ROLLBACK").await?;
        }
        settler.acknowledge_without_proof(delivery.token);
        process.reach(Step::Acknowledged).await;
        connection.close().await
    };
    process.each(handle).await;
}

#[tokio::test]
async fn unchecked_commit_after_a_swallowed_error_is_found_lost() {
    let swallowing = async |_: &Process, connection: &mut SqliteConnection| {
        effect(connection).await?;
        let _ = connection.execute("INSERT OR ROLLBACK INTO inbox VALUES ('order:1')").await;
        Ok(())
    };
    let Verdict { lost, .. } = check(async |process| unchecked(process, swallowing).await, 1).await;
    assert!(lost.contains(&"lost acknowledgement".to_owned()), "{lost:?}");
}

#[tokio::test]
async fn unchecked_commit_after_the_bodys_own_rollback_and_begin_is_found_doubled() {
    let rolling_back = async |_: &Process, connection: &mut SqliteConnection| {
        connection.execute("ROLLBACK").await?;
        connection.execute("BEGIN IMMEDIATE").await?;
        effect(connection).await
    };
    let Verdict { doubled, lost } = check(async |process| unchecked(process, rolling_back).await, 1).await;
    assert!(doubled.contains(&"lost acknowledgement".to_owned()), "{doubled:?}");
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn unchecked_commit_after_the_bodys_own_commit_is_found_lost() {
    let committing = async |_: &Process, connection: &mut SqliteConnection| {
        connection.execute("COMMIT").await?;
        connection.execute("BEGIN IMMEDIATE").await?;
        effect(connection).await
    };
    let Verdict { doubled, lost } = check(async |process| unchecked(process, committing).await, 1).await;
    assert!(lost.contains(&"dies at EffectDone".to_owned()), "the claim is there, the effect isn't: {lost:?}");
    assert!(doubled.is_empty(), "{doubled:?}");
}
