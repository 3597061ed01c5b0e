//! Settings of the server by which it may forget a commit that it reported.

use inboxed::store::Risk;
use inboxed::{Consumer, Inbox, Outcome, RunError, StartError};

use super::{Database, Db, SERVICE, Shop, deliver, record};
use crate::common::services::Own;
use crate::common::{event, until};

#[tokio::test]
async fn fsync_off_refuses_the_start_unless_allowed_by_name() {
    // A setting of the whole server, which other tests must not meet.
    let server = Own::start(SERVICE).await;
    let shop = Shop::over(Database::on(server.url().await)).await;
    shop.execute("ALTER SYSTEM SET fsync = off").await;
    shop.execute("SELECT pg_reload_conf()").await;
    let is_off = "SELECT COUNT(*) FROM pg_settings WHERE name = 'fsync' AND setting = 'off'";
    until(async || shop.number(is_off).await == 1).await;

    let refused = shop.consumer().handle("events", record).deliver("events", event("a"), ()).await.unwrap_err();
    assert!(matches!(&refused, RunError::Start(StartError::Risks(risks)) if *risks == [Risk::FsyncOff]), "{refused}");
    assert!(refused.to_string().contains("fsync = off") && refused.to_string().contains("Risk::FsyncOff"), "{refused}");
    let allowing = Inbox::<Db>::options().allow(Risk::FsyncOff).connect(&shop.database.url()).await.unwrap();
    assert_eq!(
        deliver(&Consumer::new("shop", allowing).handle("events", record), "events", event("a")).await,
        Outcome::Done
    );
    assert_eq!(shop.effects().await, ["a"]);
}
