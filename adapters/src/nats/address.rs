//! Where the servers are, and who asks: `nats://user:password@host:4222,other:4222`.

use std::fmt;
use std::path::PathBuf;

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

use super::error::NatsError;

/// The servers of a URL. Any of them will do.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// Without credentials: async-nats prints them.
    pub(super) servers: Vec<ServerAddr>,
}

/// Who asks. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) enum Credentials {
    #[default]
    None,
    User {
        name: String,
        password: String,
    },
    Token(String),
    /// The seed of a key.
    Nkey(String),
    /// A file with a JWT and a key's seed, read at each connection, so that it may be renewed.
    File(PathBuf),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::User { .. } => "user and password",
            Self::Token(_) => "token",
            Self::Nkey(_) => "nkey",
            Self::File(_) => "file",
        })
    }
}

impl Credentials {
    /// Says who asks.
    pub(super) async fn log_in(&self, options: ConnectOptions) -> Result<ConnectOptions, NatsError> {
        Ok(match self {
            Self::None => options,
            Self::User { name, password } => options.user_and_password(name.clone(), password.clone()),
            Self::Token(token) => options.token(token.clone()),
            Self::Nkey(seed) => options.nkey(seed.trim().to_owned()),
            Self::File(path) => options
                .credentials_file(path)
                .await
                .map_err(|error| NatsError::Credentials(format!("{}: {error}", path.display())))?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, server) in self.servers.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}:{}", server.host(), server.port())?;
        }
        Ok(())
    }
}

/// Reads `nats://` or `tls://`, then hosts with or without ports, separated by commas. What stands before `@` in the first is
/// a user with a password, or a token.
pub(super) fn parse(url: &str) -> Result<(Address, Credentials), NatsError> {
    // The URL may hold a password, so no error repeats any of it.
    let (scheme, rest) = url.split_once("://").ok_or(NatsError::Url("it has no scheme"))?;
    if !matches!(scheme, "nats" | "tls") {
        return Err(NatsError::Url("its scheme is neither `nats` nor `tls`"));
    }
    let mut credentials = Credentials::None;
    let mut servers = Vec::new();
    for part in rest.trim_end_matches('/').split(',') {
        let part = part.split_once("://").map_or(part, |(_, part)| part);
        let host = match part.rsplit_once('@') {
            Some((user, host)) => {
                credentials = self::credentials(user)?;
                host
            }
            None => part,
        };
        if host.is_empty() || host.contains(['/', '?', '#']) {
            return Err(NatsError::Url("it is read as nats://USER:PASSWORD@HOST:PORT, without a path or parameters"));
        }
        let server = format!("{scheme}://{host}").parse::<ServerAddr>();
        servers.push(server.map_err(|_| NatsError::Url("its host or port can't be one"))?);
    }
    Ok((Address { servers }, credentials))
}

fn credentials(user: &str) -> Result<Credentials, NatsError> {
    let decoded = |text: &str| {
        let decoded = percent_decode_str(text).decode_utf8();
        decoded.map(String::from).map_err(|_| NatsError::Url("its user or password isn't UTF-8"))
    };
    Ok(match user.split_once(':') {
        Some((name, password)) => Credentials::User { name: decoded(name)?, password: decoded(password)? },
        None => Credentials::Token(decoded(user)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(url: &str) -> Vec<(String, u16)> {
        let servers = parse(url).unwrap().0.servers;
        servers.iter().map(|server| (server.host().to_owned(), server.port())).collect()
    }

    #[test]
    fn hosts_have_the_usual_port_unless_they_name_one() {
        assert_eq!(servers("nats://localhost"), [("localhost".to_owned(), 4222)]);
        assert_eq!(servers("nats://a:1,b"), [("a".to_owned(), 1), ("b".to_owned(), 4222)]);
        assert_eq!(servers("tls://[::1]:7/"), [("::1".to_owned(), 7)]);
        assert_eq!(servers("nats://a,nats://u:p@b:2"), [("a".to_owned(), 4222), ("b".to_owned(), 2)]);
    }

    #[test]
    fn what_stands_before_the_host_is_a_user_or_a_token() {
        let (address, user) = parse("nats://me:p%40ss@host").unwrap();
        assert!(user == Credentials::User { name: "me".into(), password: "p@ss".into() });
        assert_eq!(format!("{address} {user:?}"), "host:4222 user and password");
        assert!(parse("nats://s3cret@host").unwrap().1 == Credentials::Token("s3cret".into()));
    }

    #[test]
    fn unreadable_url_is_refused_without_repeating_its_password() {
        for url in [
            "me:s3cret@host",
            "amqp://me:s3cret@host",
            "nats://me:s3cret@",
            "nats://me:s3cret@host/path",
            "nats://me:s3cret@host:http",
        ] {
            let refused = parse(url).unwrap_err().to_string();
            assert!(!refused.contains("s3cret") && refused.contains("URL"), "{refused}");
        }
    }
}
