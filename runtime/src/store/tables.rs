//! The names of the inbox's tables.

use super::StartError;

const LONGEST_PREFIX: usize = 40;
const LONGEST_SCHEMA: usize = 63;

/// What the tables' names begin with if nothing else is said.
pub(crate) const DEFAULT_PREFIX: &str = "inbox";

/// The tables' names, all in one checked schema and with one checked prefix.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    schema: Option<String>,
    qualifier: Option<String>,
    prefix: String,
}

impl Tables {
    /// Checks what goes into statements without escaping.
    pub(crate) fn new(schema: Option<&str>, prefix: &str) -> Result<Self, StartError> {
        if !is_plain(prefix, LONGEST_PREFIX) {
            return Err(StartError::Prefix(prefix.to_owned()));
        }
        if let Some(schema) = schema.filter(|schema| !is_plain(schema, LONGEST_SCHEMA)) {
            return Err(StartError::SchemaName(schema.to_owned()));
        }
        Ok(Self { schema: schema.map(str::to_owned), qualifier: None, prefix: prefix.to_owned() })
    }

    /// The default prefix in the database's default schema.
    pub(crate) fn by_default(schema: Option<&str>) -> Self {
        Self { schema: schema.map(str::to_owned), qualifier: None, prefix: DEFAULT_PREFIX.to_owned() }
    }

    /// With this before each name, if no schema is: as the database writes it, its dot included.
    pub(crate) fn within(self, qualifier: Option<String>) -> Self {
        Self { qualifier, ..self }
    }

    /// Each placeholder of a statement and the name of its table.
    pub(crate) fn names(&self) -> [(&'static str, String); 5] {
        let schema = self.schema.as_ref().map(|schema| format!("\"{schema}\"."));
        let within = schema.or_else(|| self.qualifier.clone()).unwrap_or_default();
        let name = |suffix: &str| format!("{within}{}_{suffix}", self.prefix);
        [
            ("{inbox}", format!("{within}{}", self.prefix)),
            ("{consumers}", name("consumers")),
            ("{attempts}", name("attempts")),
            ("{dead_letters}", name("dead_letters")),
            ("{schema}", name("schema")),
        ]
    }

    /// The statement with the tables' names filled in; `{prefix}` begins a name that can't have a schema before it.
    pub(crate) fn sql(&self, template: &str) -> String {
        let sql = template.replace("{prefix}", &self.prefix);
        self.names().iter().fold(sql, |sql, (placeholder, name)| sql.replace(placeholder, name))
    }
}

fn is_plain(name: &str, longest: usize) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let all_well = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    starts_well && all_well && name.len() <= longest
}
