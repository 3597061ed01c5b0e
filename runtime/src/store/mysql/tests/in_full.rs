//! The statements that MySQL is sent, in the store suite: in full, not by the names of what `MariaDB` prepares.

use super::super::lanes::Dialect;
use super::*;
use crate::store::suite::Fixture;

suite!(super::InFull);

/// A database whose server is taken for MySQL.
pub(crate) struct InFull(fixture::MySqlDatabase);

fn in_full(inbox: &Inbox<MySql>) {
    inbox.shared().as_if.set(Dialect::MySql).unwrap();
}

impl Fixture for InFull {
    type Db = MySql;

    async fn bare() -> Self {
        let fixture = fixture::MySqlDatabase::bare().await;
        in_full(fixture.inbox());
        Self(fixture)
    }

    fn inbox(&self) -> &Inbox<MySql> {
        self.0.inbox()
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn another(&self) -> Inbox<MySql> {
        let another = self.0.another().await;
        in_full(&another);
        another
    }

    async fn with_prefix(&self, prefix: &str) -> Inbox<MySql> {
        let inbox = self.0.with_prefix(prefix).await;
        in_full(&inbox);
        inbox
    }
}
