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
    lean: bool,
}

impl Tables {
    /// Checks what goes into statements without escaping.
    pub(crate) fn new(schema: Option<&str>, prefix: &str, lean: bool) -> Result<Self, StartError> {
        if !is_plain(prefix, LONGEST_PREFIX) {
            return Err(StartError::Prefix(prefix.to_owned()));
        }
        if let Some(schema) = schema.filter(|schema| !is_plain(schema, LONGEST_SCHEMA)) {
            return Err(StartError::SchemaName(schema.to_owned()));
        }
        Ok(Self { schema: schema.map(str::to_owned), qualifier: None, prefix: prefix.to_owned(), lean })
    }

    /// The default prefix in the database's default schema.
    pub(crate) fn by_default(schema: Option<&str>) -> Self {
        let schema = schema.map(str::to_owned);
        Self { schema, qualifier: None, prefix: DEFAULT_PREFIX.to_owned(), lean: false }
    }

    /// With this before each name, if no schema is: as the database writes it, its dot included.
    pub(crate) fn within(self, qualifier: Option<String>) -> Self {
        Self { qualifier, ..self }
    }

    /// Whether claims hold digests of the keys.
    pub(crate) fn is_lean(&self) -> bool {
        self.lean
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
    ///
    /// `{key_text}` is the column with a key's text, `{key_columns}` the columns to write with a key, `{key_places}` their
    /// places.
    pub(crate) fn sql(&self, template: &str) -> String {
        let [text, columns, places] =
            if self.lean { ["key_text", "message_key, key_text", "?, ?"] } else { ["message_key", "message_key", "?"] };
        let sql = template.replace("{prefix}", &self.prefix);
        let sql = sql.replace("{key_text}", text).replace("{key_columns}", columns).replace("{key_places}", places);
        self.names().iter().fold(sql, |sql, (placeholder, name)| sql.replace(placeholder, name))
    }
}

/// The lines of a text that are of this kind of inbox: all but those marked for the other one.
pub(crate) fn lines_of_kind(text: &str, lean: bool) -> String {
    let [mark, other] = if lean { ["{lean} ", "{text} "] } else { ["{text} ", "{lean} "] };
    let lines = text.split_inclusive('\n').filter(|line| !line.trim_start().starts_with(other));
    lines.map(|line| line.replacen(mark, "", 1)).collect()
}

fn is_plain(name: &str, longest: usize) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
    let all_well = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    starts_well && all_well && name.len() <= longest
}
