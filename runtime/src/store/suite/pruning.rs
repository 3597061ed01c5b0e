//! Pruning: in batches, by the database's clock, never a key that somebody may still send back.

use std::time::Instant;

use super::letters::{bury_key, only_letter, received};
use super::*;
use crate::proof::bury;
use crate::store::{Filter, LetterIdentity, Reason};

const DAY: Duration = Duration::from_hours(24);

/// Registers the consumer whose number is [`CONSUMER`].
async fn registered<F: Fixture>() -> F {
    let fixture = ready::<F>().await;
    let id = super::registry::register(fixture.inbox(), "shop", "queue", &["orders"]).await.unwrap();
    assert_eq!(id, CONSUMER);
    fixture
}

/// Rows of this age, straight into the table.
async fn fill<Db: Store>(inbox: &Inbox<Db>, consumer: ConsumerId, count: u32, age: Duration) {
    let micros = i64::try_from(age.as_micros()).unwrap();
    let insert = "INSERT INTO {inbox} (consumer, message_key, received_at, payload) VALUES (?, ?, {now} - ?, 0)";
    inbox
        .write::<_, Error, _>(move |inbox, connection| {
            Box::pin(async move {
                for number in 0..count {
                    let key = inbox.held_of(&key(&format!("{micros}:{number:06}")));
                    inbox.run(connection, insert, vec![consumer.into(), key, micros.into()]).await?;
                }
                Ok(())
            })
        })
        .await
        .unwrap();
}

pub(crate) async fn old_rows_go_and_young_ones_stay<F: Fixture>() {
    let fixture = registered::<F>().await;
    fill(fixture.inbox(), CONSUMER, 30, 3 * DAY).await;
    fill(fixture.inbox(), CONSUMER, 20, DAY).await;
    let pruned = fixture.inbox().prune(CONSUMER, 2 * DAY).await.unwrap();
    assert_eq!((pruned.rows, rows(fixture.inbox()).await), (30, 20));
    assert_eq!(fixture.inbox().prune(CONSUMER, 2 * DAY).await.unwrap().rows, 0);
}

pub(crate) async fn more_rows_than_a_batch_go<F: Fixture>() {
    let fixture = registered::<F>().await;
    fill(fixture.inbox(), CONSUMER, 1_700, 3 * DAY).await;
    fill(fixture.inbox(), CONSUMER, 300, DAY).await;
    assert_eq!(fixture.inbox().prune(CONSUMER, 2 * DAY).await.unwrap().rows, 1_700);
    assert_eq!(rows(fixture.inbox()).await, 300);
}

pub(crate) async fn keys_with_an_open_letter_stay<F: Fixture>() {
    let fixture = registered::<F>().await;
    let inbox = fixture.inbox();
    deliver(inbox, &claim("order:1")).await.unwrap();
    deliver(inbox, &claim("order:2")).await.unwrap();
    let message = received(b"other");
    let conflict = LetterIdentity::Conflict(key("order:1"), 9);
    let letter = super::letters::letter(&message, conflict, Reason::KeyConflict);
    bury(inbox, None, letter, (), LIMITS).await.unwrap();
    execute(inbox, "UPDATE {inbox} SET received_at = 0", vec![]).await;
    assert_eq!(inbox.prune(CONSUMER, DAY).await.unwrap().rows, 1);
    assert_eq!(verdict(inbox, &claim("order:1")).await, DUPLICATE);
    inbox.dead_letters().discard(only_letter(inbox).await.id).await.unwrap();
    assert_eq!(inbox.prune(CONSUMER, DAY).await.unwrap().rows, 1);
}

pub(crate) async fn other_consumers_are_left_alone<F: Fixture>() {
    let fixture = registered::<F>().await;
    fill(fixture.inbox(), OTHER, 10, 3 * DAY).await;
    assert_eq!(fixture.inbox().prune(CONSUMER, DAY).await.unwrap().rows, 0);
    assert_eq!(rows(fixture.inbox()).await, 10);
}

pub(crate) async fn one_process_prunes_at_a_time<F: Fixture>() {
    let fixture = registered::<F>().await;
    fill(fixture.inbox(), CONSUMER, 10, 3 * DAY).await;
    execute(fixture.inbox(), "UPDATE {consumers} SET pruned_at = {now} + 60000000", vec![]).await;
    let pruned = fixture.inbox().prune(CONSUMER, DAY).await.unwrap();
    assert_eq!((pruned.busy, pruned.rows, rows(fixture.inbox()).await), (true, 0, 10));
    execute(fixture.inbox(), "UPDATE {consumers} SET pruned_at = {now}", vec![]).await;
    let pruned = fixture.inbox().prune(CONSUMER, DAY).await.unwrap();
    assert_eq!((pruned.busy, pruned.rows), (false, 10));
}

pub(crate) async fn closed_letters_and_forgotten_attempts_go_too<F: Fixture>() {
    let fixture = registered::<F>().await;
    let inbox = fixture.inbox();
    bury_key(inbox, "order:1", Reason::Permanent).await;
    inbox.dead_letters().discard(only_letter(inbox).await.id).await.unwrap();
    bury_key(inbox, "order:2", Reason::Permanent).await;
    inbox.record_failure(&claim("order:3"), "never came again").await.unwrap();
    execute(inbox, "UPDATE {dead_letters} SET updated_at = 0", vec![]).await;
    execute(inbox, "UPDATE {attempts} SET updated_at = 0", vec![]).await;
    assert_eq!(inbox.prune(CONSUMER, DAY).await.unwrap().letters, 1);
    let left = inbox.dead_letters().list(Filter::default()).await.unwrap();
    assert_eq!((left.len(), left[0].key.clone()), (1, Some(key("order:2"))));
    assert_eq!(number(inbox, "SELECT COUNT(*) FROM {attempts}").await, 1);
}

pub(crate) async fn p09_claims_go_through_while_rows_are_pruned<F: Fixture>() {
    let fixture = registered::<F>().await;
    let inbox = fixture.inbox();
    fill(inbox, CONSUMER, 20_000, 3 * DAY).await;
    let pruner = inbox.clone();
    let pruning = tokio::spawn(async move { pruner.prune(CONSUMER, DAY).await.unwrap() });
    let mut delivered = 0;
    while !pruning.is_finished() {
        assert_eq!(deliver(inbox, &claim(&format!("order:{delivered}"))).await.unwrap(), FRESH);
        delivered += 1;
    }
    assert_eq!(pruning.await.unwrap().rows, 20_000);
    // The queue is fair, so a delivery waits for one batch at most: forty batches let as many through.
    assert!(delivered >= 20, "only {delivered} deliveries while 40 batches were pruned");
    assert_eq!(rows(inbox).await, delivered);
    execute(inbox, "UPDATE {inbox} SET received_at = 0", vec![]).await;
    inbox.prune(CONSUMER, DAY).await.unwrap();
    assert_eq!(verdict(inbox, &claim("order:0")).await, FRESH);
}

/// So many expired rows in random order, made by the server itself.
async fn fill_by_server<Db: Store>(inbox: &Inbox<Db>, count: i64) {
    let digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL \
                  SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let places = 0..u32::try_from((count - 1).to_string().len()).unwrap();
    let tables = places.clone().map(|place| format!("{digits} AS p{place}")).collect::<Vec<_>>().join(", ");
    let number = places.map(|place| format!("{} * p{place}.d", 10_i64.pow(place))).collect::<Vec<_>>().join(" + ");
    // A multiplier without a common factor leaves no two numbers alike.
    let fill = format!(
        "INSERT INTO {{inbox}} (consumer, message_key, received_at, payload) \
         SELECT {}, numbers.n * 1103515245 % 2147483648, {{now}} - {}, 0 \
         FROM (SELECT CAST({number} AS {}) AS n FROM {tables}) AS numbers WHERE numbers.n < {count}",
        CONSUMER.0,
        (3 * DAY).as_micros(),
        if Db::TITLE == "MySql" { "SIGNED" } else { "BIGINT" },
    );
    execute(inbox, &fill, Vec::new()).await;
}

/// `scripts/check-pruning` asks for two million rows.
fn many_rows() -> i64 {
    std::env::var("INBOXED_TEST_PRUNED_ROWS").map_or(20_000, |rows| rows.parse().unwrap())
}

/// Fifty messages a second, while all that is old goes. The bound on a claim is that of the claim itself, ten seconds,
/// beyond which it would fail.
pub(crate) async fn fifty_messages_a_second_go_through_while_many_rows_are_pruned<F: Fixture>() {
    let fixture = registered::<F>().await;
    let inbox = fixture.inbox();
    let old = many_rows();
    fill_by_server(inbox, old).await;
    let kept = inbox.read("SELECT MIN(message_key) FROM {inbox}", Vec::new()).await.unwrap()[0].held_key(0).unwrap();
    let message = received(b"other");
    let conflict = super::letters::letter(&message, LetterIdentity::Conflict(key(&kept), 9), Reason::KeyConflict);
    bury(inbox, None, conflict, (), LIMITS).await.unwrap();

    let other = inbox.clone();
    let began = Instant::now();
    let pruning = tokio::spawn(async move { other.prune(CONSUMER, DAY).await.unwrap() });
    let mut tick = tokio::time::interval(Duration::from_millis(20));
    let mut deliveries = tokio::task::JoinSet::new();
    while !pruning.is_finished() {
        tick.tick().await;
        let (inbox, claim) = (inbox.clone(), claim(&format!("order:{}", deliveries.len())));
        deliveries.spawn(async move {
            let began = Instant::now();
            assert_eq!(deliver(&inbox, &claim).await.unwrap(), FRESH);
            began.elapsed()
        });
    }
    let (pruned, lasted) = (pruning.await.unwrap(), began.elapsed());
    let mut took_each = deliveries.join_all().await;
    took_each.sort_unstable();
    let (count, slowest) = (took_each.len(), took_each.last().copied().unwrap_or_default());
    println!("{}: {} rows pruned in {lasted:.1?}, {count} messages, slowest {slowest:.1?}", F::Db::TITLE, pruned.rows);
    assert_eq!((pruned.rows, count > 0), ((old - 1).unsigned_abs(), true));
    assert!(slowest < LIMITS.claim, "{slowest:?}");
    assert_eq!(verdict(inbox, &claim(&kept)).await, DUPLICATE);
    let left = i64::try_from(count).unwrap() + 1;
    assert_eq!((rows(inbox).await, effects(inbox).await), (left, left - 1));
}

pub(crate) async fn x09_the_databases_clock_decides<F: Fixture>() {
    let fixture = registered::<F>().await;
    let inbox = fixture.inbox();
    deliver(inbox, &claim("order:1")).await.unwrap();
    let by_database = number(inbox, "SELECT {now} - received_at FROM {inbox}").await;
    assert!((0..60_000_000).contains(&by_database), "{by_database}");
    bury_key(inbox, "order:2", Reason::Permanent).await;
    let id = only_letter(inbox).await.id;
    inbox.dead_letters().redrive(id).await.unwrap();
    inbox.take_redriven(&[CONSUMER], 1, Duration::from_mins(5)).await.unwrap();
    let lease = number(inbox, "SELECT redrive_at - {now} FROM {dead_letters}").await;
    assert!((240_000_000..=300_000_000).contains(&lease), "{lease}");
}
