//! A service whose account may not make tables, over those that somebody else has made by hand.

use super::*;
use crate::store::SchemaError;
use crate::store::suite::{CONSUMER, DUPLICATE, FRESH, Fixture as _, claim, deliver, letters, registry};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_the_right_to_make_tables_handles_messages() {
    let fixture = fixture::MySqlDatabase::bare().await;
    fixture.execute("CREATE TABLE effects (effect_key TEXT NOT NULL, note TEXT NOT NULL)").await;
    let user = format!("service_{:08x}", fastrand::u32(..));
    fixture.execute(&format!("CREATE USER {user}; GRANT SELECT ON `{}`.effects TO {user}", fixture.name())).await;
    let url = fixture.url().replacen("root@", &format!("{user}@"), 1);
    let service = Inbox::<MySql>::connect(&url).await.unwrap();
    service.migrate().await.unwrap_err();
    for script in Inbox::<MySql>::options().migrations().unwrap() {
        fixture.execute(&script).await;
    }
    assert!(
        matches!(service.verify().await, Err(SchemaError::Older { found: 0, .. })),
        "it may not read the tables yet"
    );
    fixture.execute(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON `{}`.* TO {user}", fixture.name())).await;

    // A session keeps the rights that it began with.
    let service = Inbox::<MySql>::connect(&url).await.unwrap();
    service.migrate().await.unwrap();
    service.verify().await.unwrap();
    service.check_risks().await.unwrap();
    assert_eq!(registry::register(&service, "shop", "queue", &["orders"]).await.unwrap(), CONSUMER);
    assert_eq!(deliver(&service, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(&service, &claim("order:1")).await.unwrap(), DUPLICATE);
    letters::bury_key(&service, "order:2", crate::store::Reason::Permanent).await;
    assert_eq!(service.prune(CONSUMER, Duration::ZERO).await.unwrap().rows, 1);
    let more = MySql::run(&mut service.acquire().await.unwrap(), "CREATE TABLE more (id INT)", vec![]).await;
    more.unwrap_err();
    fixture.execute(&format!("DROP USER {user}")).await;
}
