//! A service whose account may not make tables, over those that somebody else has made by hand.

use super::*;
use crate::store::SchemaError;
use crate::store::suite::{CONSUMER, DUPLICATE, FRESH, Fixture as _, claim, deliver, letters, registry};

/// A login that is gone at the end.
struct Login(String);

impl Drop for Login {
    fn drop(&mut self) {
        let drop = format!("DROP ROLE IF EXISTS {}", self.0);
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(on_server(drop)).unwrap();
        });
        let _ = dropping.join();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_the_right_to_make_tables_handles_messages() {
    let login = Login(format!("service_{:016x}", fastrand::u64(..)));
    on_server(format!("CREATE ROLE {} LOGIN", login.0)).await.unwrap();
    let fixture = PgDatabase::bare().await;
    ask(fixture.inbox(), "CREATE TABLE effects (effect_key TEXT NOT NULL, note TEXT NOT NULL)").await;
    let service = fixture.url().replacen("postgres@", &format!("{}@", login.0), 1);
    let service = Inbox::<Postgres>::connect(&service).await.unwrap();
    service.migrate().await.unwrap_err();
    for script in Inbox::<Postgres>::options().migrations().unwrap() {
        ask(fixture.inbox(), &script).await;
    }
    assert!(
        matches!(service.verify().await, Err(SchemaError::Older { found: 0, .. })),
        "it may not read the tables yet"
    );
    let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}", login.0);
    ask(fixture.inbox(), &grant).await;

    service.migrate().await.unwrap();
    service.verify().await.unwrap();
    service.check_risks().await.unwrap();
    assert_eq!(registry::register(&service, "shop", "queue", &["orders"]).await.unwrap(), CONSUMER);
    assert_eq!(deliver(&service, &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(&service, &claim("order:1")).await.unwrap(), DUPLICATE);
    letters::bury_key(&service, "order:2", crate::store::Reason::Permanent).await;
    assert_eq!(service.prune(CONSUMER, Duration::ZERO).await.unwrap().rows, 1);
    let more = Postgres::run(&mut service.acquire().await.unwrap(), "CREATE TABLE more (id INT)", vec![]).await;
    more.unwrap_err();
}
