//! The names of the inbox's tables.

use super::StartError;

const LONGEST_PREFIX: usize = 40;

/// The tables' names, all with one checked prefix.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    prefix: String,
}

impl Default for Tables {
    fn default() -> Self {
        Self { prefix: "inbox".to_owned() }
    }
}

impl Tables {
    /// Checks the prefix, which goes into statements unquoted.
    pub(crate) fn new(prefix: &str) -> Result<Self, StartError> {
        let starts_well = prefix.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        let all_well = prefix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if starts_well && all_well && prefix.len() <= LONGEST_PREFIX {
            Ok(Self { prefix: prefix.to_owned() })
        } else {
            Err(StartError::Prefix(prefix.to_owned()))
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Each placeholder of a statement and the name of its table.
    pub(crate) fn names(&self) -> [(&'static str, String); 5] {
        let name = |suffix: &str| format!("{}_{suffix}", self.prefix);
        [
            ("{inbox}", self.prefix.clone()),
            ("{consumers}", name("consumers")),
            ("{attempts}", name("attempts")),
            ("{dead_letters}", name("dead_letters")),
            ("{schema}", name("schema")),
        ]
    }

    /// The statement with the tables' names filled in, each in its schema; `{inbox.name}` stays without it.
    pub(crate) fn sql(&self, template: &str, schema: &str) -> String {
        self.names().iter().fold(template.to_owned(), |sql, (placeholder, name)| {
            let bare = placeholder.replace('}', ".name}");
            sql.replace(&bare, name).replace(placeholder, &format!("{schema}{name}"))
        })
    }
}
