//! Orders are placed, and each is to be shipped once: over any broker and any database, by their features and URLs.
//!
//! `fulfilment consume BROKER DATABASE` ships until Ctrl-C; `… publish …` places orders; `… demo …` does both, and counts.

use std::time::{Duration, Instant, SystemTime};

use inboxed::broker::{BrokerError, Outgoing, Publisher as _};
use inboxed::store::Store;
use inboxed::{Broker, BrokerPublisher, Consumer, Inbox, InboxConnection, idempotent};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The source: a stream or a queue of this name.
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
    let broker = connect(url).await?;
    for created in app().await?.create_topology(&broker).await? {
        println!("made: {created}");
    }
    // Numbers that no earlier run has used.
    let first = i64::try_from(SystemTime::UNIX_EPOCH.elapsed()?.as_millis())?;
    match what {
        "consume" => {
            println!("shipping; Ctrl-C or SIGTERM ends it");
            app().await?.run(broker).await?;
            println!("ended: what was begun is finished, the rest is given back");
        }
        "publish" => println!("{HALF} orders in {} messages", place(&broker.publisher().await?, first).await?),
        "demo" => {
            let (publisher, mut messages) = (broker.publisher().await?, 0);
            for half in 0..2 {
                let (app, broker, began) = (app().await?, broker.clone(), Instant::now());
                let shutdown = app.shutdown();
                let running = tokio::spawn(async move { app.run(broker).await });
                messages += place(&publisher, first + half * HALF).await?;
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

/// The broker of a URL. The one in the process repeats some deliveries by itself.
async fn connect(url: &str) -> Result<Broker> {
    #[cfg(feature = "memory")]
    if url.starts_with("memory:") {
        let memory = inboxed::memory::Memory::builder().duplicates(0.1).lose_acks(0.1).build();
        return Ok(Broker::from_transport(memory.clone()).with_publisher(memory));
    }
    Ok(Broker::connect(url).await?)
}

/// Publishes orders, every fifth twice, as a producer does that isn't sure; answers with the number of messages.
async fn place(publisher: &BrokerPublisher, first: i64) -> Result<usize> {
    let orders = (first..first + HALF).flat_map(|order| vec![order; if order % 5 == 0 { 2 } else { 1 }]);
    let messages = orders.map(|order| format!(r#"{{"order_id":{order},"parcels":{}}}"#, 1 + order % 3));
    let messages = messages.collect::<Vec<_>>();
    for message in &messages {
        // Nobody knows then whether the message is there: it may be there twice.
        while let Err(error) = publisher.publish(ORDERS, Outgoing::new(message.clone())).await {
            let BrokerError::Unreachable(reason) = error else { return Err(error.into()) };
            eprintln!("again: {reason}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(messages.len())
}
