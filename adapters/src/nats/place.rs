//! Where a source's messages are: the stream, and in it the subject. The durable is the service's place in it.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::Config;

use super::api::ALREADY_THERE;
use super::connection::Connection;
use super::error::NatsError;
use super::options::{Binding, Options};

/// A stream, and the part of it that a source stands for.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) stream: Config,
    /// All of the stream without it.
    pub(super) subject: Option<String>,
    pub(super) durable: String,
    /// Whether the stream is ours to make again.
    pub(super) ours: bool,
    /// Whether it was made just now.
    pub(super) made: bool,
}

/// What a place is looked for, which decides whether a stream that isn't there is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// To make it: what is there must be what would be made.
    Making,
    /// To open the source; where it was found the last time decides too.
    Opening(Option<&'a Place>),
}

/// Finds a source's place. Without a binding a source is the stream of its name, or else the subject of its name in the
/// stream that holds it, or else a stream that is made for that subject.
pub(super) async fn find(
    server: &Connection,
    source: &str,
    service: &str,
    options: &Options,
    purpose: Purpose<'_>,
) -> Result<Place, NatsError> {
    let Binding { stream, subject, durable } = options.binding(source);
    let (found, subject, made) = match stream {
        Some(name) => (existing(server, &name, source).await?, subject, false),
        None => match (by_name(server, source).await?, server.stream_of(source).await?) {
            (Some(named), Some(holder)) if named.name != holder => {
                return Err(NatsError::Ambiguous(format!(
                    "source `{source}` may be stream `{source}` or the subject in stream `{holder}`: say which, by \
                     `.source(\"{source}\", Binding::stream(\"…\"))`"
                )));
            }
            (Some(named), _) => {
                if let Purpose::Making = purpose {
                    hold_against(&named, &wished(source, options)?)?;
                }
                (named, subject, false)
            }
            (None, Some(holder)) => {
                let subject = subject.unwrap_or_else(|| source.to_owned());
                (existing(server, &holder, source).await?, Some(subject), false)
            }
            (None, None) => {
                let (found, made) = create(server, source, options, purpose).await?;
                (found, subject, made)
            }
        },
    };
    // A stream of just this subject needs no filter.
    let subject = subject.filter(|subject| found.subjects != [subject.as_str()]);
    let durable = match durable.or_else(|| options.durable.clone()) {
        Some(durable) => valid(durable, "durable", "choose another by `.durable(…)`")?,
        None => durable_of(service, subject.as_deref()),
    };
    let ours_before =
        matches!(purpose, Purpose::Opening(Some(before)) if before.ours && before.stream.name == found.name);
    Ok(Place { stream: found, subject, durable, ours: made || ours_before, made })
}

async fn existing(server: &Connection, stream: &str, source: &str) -> Result<Config, NatsError> {
    let missing = || NatsError::NoStream(format!("there is no stream `{stream}` for source `{source}`: make it first"));
    server.stream(stream).await?.ok_or_else(missing)
}

async fn by_name(server: &Connection, source: &str) -> Result<Option<Config>, NatsError> {
    if is_valid(source) { server.stream(source).await } else { Ok(None) }
}

/// The stream that would be made for a source.
fn wished(source: &str, options: &Options) -> Result<Config, NatsError> {
    let name = source.replace('.', "_");
    Ok(Config {
        name: valid(name, "stream", "name it by `.source(…, Binding::stream(…))`")?,
        subjects: vec![source.to_owned()],
        max_age: options.max_age,
        ..Config::default()
    })
}

/// Makes the stream of a source, and answers with it and with whether it was made here: another may be first.
async fn create(
    server: &Connection,
    source: &str,
    options: &Options,
    purpose: Purpose<'_>,
) -> Result<(Config, bool), NatsError> {
    if let Purpose::Opening(before) = purpose {
        if let Some(before) = before.filter(|before| !before.ours) {
            return Err(NatsError::NoStream(format!(
                "stream `{}` of source `{source}` is gone, and wasn't made here: make it again",
                before.stream.name
            )));
        }
        if options.existing_only {
            return Err(NatsError::NoStream(format!(
                "no stream is named `{source}` or holds that subject, and `.existing_only()` forbids to make one: make it by \
                 `create_topology`"
            )));
        }
    }
    if source.contains(['*', '>']) {
        return Err(NatsError::NoStream(format!("no stream holds the subjects `{source}`: make one first")));
    }
    let wished = wished(source, options)?;
    match server.create_stream(&wished).await {
        Ok(created) => {
            tracing::info!(stream = %created.name, subject = source, max_age = ?options.max_age, "the stream was made");
            Ok((created, true))
        }
        Err(NatsError::JetStream { code, .. }) if ALREADY_THERE.contains(&ErrorCode(code)) => {
            // Another consumer was first; what it made holds the same subject, or it is something else of this name.
            let made = existing(server, &wished.name, source).await?;
            if made.subjects == wished.subjects {
                return Ok((made, true));
            }
            Err(NatsError::Ambiguous(format!(
                "source `{source}` needs a stream of its own, and stream `{}` holds other subjects, {:?}: name one by \
                 `.source(\"{source}\", Binding::stream(\"…\"))`",
                made.name, made.subjects
            )))
        }
        Err(error) => Err(error),
    }
}

/// Refuses a stream that differs from the one that would be made in its place, with both values.
fn hold_against(found: &Config, wished: &Config) -> Result<(), NatsError> {
    let settings = |config: &Config| {
        let storage = format!("{:?}", config.storage).to_ascii_lowercase();
        [
            ("its subjects", format!("{:?}", config.subjects)),
            ("its age of messages", format!("{:?}", config.max_age)),
            ("its storage", storage),
        ]
    };
    let pairs = settings(found).into_iter().zip(settings(wished));
    let different = pairs.filter(|((_, found), (_, wished))| found != wished);
    let differences = different
        .map(|((name, found), (_, wished))| format!("{name}: {found}, and {wished} wanted"))
        .collect::<Vec<_>>();
    if differences.is_empty() {
        return Ok(());
    }
    let stream = found.name.clone();
    let difference = format!(
        "is there and differs; {}: change it, set up the same here, or take it as it is by \
         `.source(…, Binding::stream(\"{stream}\"))`",
        differences.join("; ")
    );
    Err(NatsError::Stream { stream, difference })
}

/// A service's durable. Services of different names never share one: each would get half of the messages.
fn durable_of(service: &str, subject: Option<&str>) -> String {
    let mut durable = String::new();
    for char in service.chars() {
        if char.is_ascii_alphanumeric() || matches!(char, '-' | '_') {
            durable.push(char);
        } else {
            let mut bytes = [0; 4];
            for byte in char.encode_utf8(&mut bytes).bytes() {
                durable.extend(format!("%{byte:02X}").chars());
            }
        }
    }
    // Subjects that come to one name here are told apart by the filter, which is checked.
    if let Some(subject) = subject {
        durable.push('-');
        durable.extend(subject.chars().map(|char| if is_valid_char(char) { char } else { '_' }));
    }
    durable
}

fn valid(name: String, what: &'static str, cure: &'static str) -> Result<String, NatsError> {
    if is_valid(&name) { Ok(name) } else { Err(NatsError::Name(name, what, cure)) }
}

fn is_valid(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_valid_char)
}

fn is_valid_char(char: char) -> bool {
    !(char.is_whitespace() || char.is_control() || matches!(char, '.' | '*' | '>' | '/' | '\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_different_names_never_share_a_durable() {
        let services = ["shop", "a.b", "a_b", "a b", "a%2Eb", "\u{e4}", "a-b", "A-b"];
        let durables = services.map(|service| durable_of(service, None));
        assert!(durables.iter().all(|durable| is_valid(durable)), "{durables:?}");
        let distinct = durables.iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(distinct.len(), services.len(), "{durables:?}");
        assert_eq!(durable_of("shop", None), "shop");
        assert_eq!(durable_of("shop", Some("orders.placed.>")), "shop-orders_placed__");
    }
}
