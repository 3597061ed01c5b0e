//! Orders are placed, and each is to be shipped once: over any broker and any database, by their URLs.
//!
//! `fulfilment consume BROKER DATABASE` ships until Ctrl-C; `… publish …` places orders; `… demo …` does both, and counts.

use std::time::{Duration, Instant, SystemTime};

use inboxed::memory::Memory;
use inboxed::nats::Nats;
use inboxed::store::Store;
use inboxed::{Broker, Consumer, Inbox, InboxConnection, idempotent};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The source: with NATS a stream of this name, which the first consumer makes.
const ORDERS: &str = "fulfilment-orders";
/// How many orders are placed at once; the demo places as many again after its deploy.
const HALF: i64 = 100;
const USAGE: &str = "usage: fulfilment consume|publish|demo BROKER_URL DATABASE_URL";

#[derive(serde::Deserialize)]
struct OrderPlaced {
    order_id: i64,
    parcels: i32,
}

/// The handler and its table, for one database: only the connection's type and the placeholders differ.
macro_rules! shop {
    ($feature:literal, $database:ident, $connection:ty, $first:literal, $second:literal) => {
        #[cfg(feature = $feature)]
        mod $database {
            use super::*;

            #[idempotent(key = "order:{order_id}:placed")]
            async fn ship(order: OrderPlaced, tx: &mut $connection) -> inboxed::Result<()> {
                let insert = concat!("INSERT INTO shipments VALUES (", $first, ", ", $second, ")");
                sqlx::query(insert).bind(order.order_id).bind(order.parcels).execute(tx).await?;
                println!("order {}: {} parcels", order.order_id, order.parcels);
                Ok(())
            }

            async fn app(url: &str) -> Result<Consumer<<$connection as InboxConnection>::Db>> {
                let inbox = Inbox::connect(url).await?;
                inbox.migrate().await?;
                // Without a unique index: a second shipment wouldn't be refused.
                let table = "CREATE TABLE IF NOT EXISTS shipments (id BIGINT NOT NULL, parcels INT NOT NULL)";
                sqlx::query(table).execute(inbox.pool()).await?;
                Ok(Consumer::new("fulfilment", inbox).handle(ORDERS, ship))
            }

            /// How many shipments there are of how many orders, from this one on.
            async fn shipped(url: &str, first: i64) -> Result<(i64, i64)> {
                let mut connection = <$connection as sqlx::Connection>::connect(url).await?;
                let select = concat!("SELECT COUNT(*), COUNT(DISTINCT id) FROM shipments WHERE id >= ", $first);
                Ok(sqlx::query_as(select).bind(first).fetch_one(&mut connection).await?)
            }

            pub(super) async fn run(what: &str, broker: &str, url: &str) -> Result<()> {
                super::run(what, broker, async || app(url).await, async |first| shipped(url, first).await).await
            }
        }
    };
}

shop!("sqlite", sqlite, sqlx::SqliteConnection, "?", "?");
shop!("mysql", mysql, sqlx::MySqlConnection, "?", "?");
shop!("postgres", postgres, sqlx::PgConnection, "$1", "$2");

#[tokio::main]
async fn main() -> Result<()> {
    let [what, broker, database] = &*std::env::args().skip(1).collect::<Vec<_>>() else { return Err(USAGE.into()) };
    match database.split(':').next() {
        #[cfg(feature = "sqlite")]
        Some("sqlite") => sqlite::run(what, broker, database).await,
        #[cfg(feature = "mysql")]
        Some("mysql" | "mariadb") => mysql::run(what, broker, database).await,
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => postgres::run(what, broker, database).await,
        _ => Err("the database's URL begins with a feature that is on: sqlite:, mysql: or postgres:".into()),
    }
}

async fn run<Db: Store>(
    what: &str,
    url: &str,
    app: impl AsyncFn() -> Result<Consumer<Db>>,
    shipped: impl AsyncFn(i64) -> Result<(i64, i64)>,
) -> Result<()> {
    // The broker in the process repeats some deliveries by itself.
    let memory = url.starts_with("memory:").then(|| Memory::builder().duplicates(0.1).lose_acks(0.1).build());
    let broker = match &memory {
        Some(memory) => Broker::from_transport(memory.clone()),
        None => Broker::connect(url).await?,
    };
    // Numbers that no earlier run has used.
    let first = i64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?;
    match what {
        "consume" => {
            println!("shipping; Ctrl-C or SIGTERM ends it");
            app().await?.run(broker).await?;
            println!("ended: what was begun is finished, the rest is given back");
        }
        "publish" => println!("{HALF} orders in {} messages", place(memory.as_ref(), url, first).await?),
        "demo" => {
            let mut messages = 0;
            for half in 0..2 {
                let (app, broker, began) = (app().await?, broker.clone(), Instant::now());
                let shutdown = app.shutdown();
                let running = tokio::spawn(async move { app.run(broker).await });
                messages += place(memory.as_ref(), url, first + half * HALF).await?;
                // A deploy doesn't wait: what the first process gives back is the second one's.
                while half == 1 && shipped(first).await?.1 < 2 * HALF && began.elapsed() < Duration::from_mins(1) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                shutdown.begin();
                running.await??;
            }
            let (shipments, orders) = shipped(first).await?;
            let verdict = if (shipments, orders) == (2 * HALF, 2 * HALF) { "exact" } else { "wrong" };
            println!("{verdict}: {orders} orders in {messages} messages, {shipments} shipments");
            std::process::exit(i32::from(verdict != "exact"));
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

/// Publishes orders, every fifth twice, as a producer does that isn't sure; answers with the number of messages.
async fn place(memory: Option<&Memory>, url: &str, first: i64) -> Result<usize> {
    let orders = (first..first + HALF).flat_map(|order| vec![order; if order % 5 == 0 { 2 } else { 1 }]);
    let messages = orders.map(|order| format!(r#"{{"order_id":{order},"parcels":{}}}"#, 1 + order % 3));
    let messages = messages.collect::<Vec<_>>();
    if let Some(memory) = memory {
        for message in &messages {
            memory.publish(ORDERS, message.clone());
        }
        return Ok(messages.len());
    }
    let nats = Nats::new(url)?;
    let mut publisher = nats.publisher().await?;
    for message in &messages {
        // After an error nobody knows whether the message is there: it may be there twice then.
        while let Err(error) = publisher.publish(ORDERS, message.clone(), ()).await {
            eprintln!("again: {error}");
            tokio::time::sleep(Duration::from_millis(500)).await;
            publisher = nats.publisher().await?;
        }
    }
    Ok(messages.len())
}
