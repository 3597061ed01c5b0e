//! Exactly-once effects on at-least-once delivery.
//!
//! A broker delivers a message again after a crash, a lost acknowledgement or a producer's retry. [`idempotent`] makes a
//! handler safe to run twice: its key, recorded under a unique constraint in the effect's own transaction, lets the effect
//! happen once, and only the commit's proof acknowledges.
//!
//! ```
//! use inboxed::{Consumer, Inbox, Outcome, idempotent};
//! use sqlx::SqliteConnection;
//!
//! #[derive(serde::Deserialize)]
//! struct OrderPlaced {
//!     order_id: u32,
//! }
//!
//! #[idempotent(key = "order:{order_id}:placed")]
//! async fn store_order(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
//!     sqlx::query("INSERT INTO orders VALUES (?)").bind(order.order_id).execute(tx).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
//! let inbox = Inbox::connect(&url).await?;
//! inbox.migrate().await?;
//! sqlx::query("CREATE TABLE orders (id INTEGER)").execute(inbox.pool()).await?;
//!
//! let app = Consumer::new("shop", inbox).handle("orders", store_order);
//! assert_eq!(app.deliver("orders", r#"{"order_id":7}"#, ()).await?, Outcome::Done);
//! assert_eq!(app.deliver("orders", r#"{"order_id":7}"#, ()).await?, Outcome::Duplicate);
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | write a handler | [`idempotent`], [`Event`](macro@Event), [`KeyPart`](macro@KeyPart), [`State`], [`Key`], [`Delivery`] |
//! | run it | [`Consumer`], [`RetryPolicy`], [`Health`], [`Shutdown`] |
//! | see beforehand whether it starts | [`Consumer::check`], [`Finding`], [`Check`]; [`topology`] makes what is missing |
//! | reach a broker | [`Broker`] by its URL; [`memory`] in the process; `inboxed::nats`, `inboxed::sqs`, `inboxed::rabbitmq`, behind the features of their names |
//! | take webhooks | `inboxed::http::Webhook`, behind the feature `http` |
//! | decode other formats, share a source | [`Decode`], [`on`] |
//! | open the inbox, look after dead letters | [`Inbox`], [`InboxOptions`], [`store::DeadLetters`] |
//! | watch it | [`telemetry`], the names of all metrics; spans carry OpenTelemetry's messaging fields |
//! | prove it | `inboxed::testing::explore`, behind the feature `testing` |
//! | write an adapter | [`broker`] |

#[cfg(feature = "http")]
#[cfg_attr(all(feature = "macros", feature = "sqlite"), doc = include_str!("../docs/webhooks.md"))]
#[doc(inline)]
pub use inboxed_adapters::http;
#[cfg(feature = "memory")]
pub use inboxed_adapters::memory;
#[cfg(feature = "nats")]
pub use inboxed_adapters::nats;
#[cfg(feature = "rabbitmq")]
pub use inboxed_adapters::rabbitmq;
#[cfg(feature = "sqs")]
pub use inboxed_adapters::sqs;
pub use inboxed_adapters::{Broker, BrokerPublisher, ConnectError};
pub use inboxed_runtime::*;

#[cfg(feature = "macros")]
#[doc = include_str!("../docs/event.md")]
pub use inboxed_macros::Event;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/key_part.md")]
pub use inboxed_macros::KeyPart;
#[cfg(feature = "macros")]
#[doc = include_str!("../docs/idempotent.md")]
pub use inboxed_macros::idempotent;
