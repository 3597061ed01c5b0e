//! Where the server is, and who asks: `amqp://user:password@host:5672/vhost`.

use std::fmt;

use lapin::uri::AMQPUri;

use super::error::RabbitMqError;

/// How often each side says that it is there, in seconds. One that isn't heard of for two such times isn't.
const HEARTBEAT: u16 = 10;

/// A server's address, with the credentials, which are never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) uri: AMQPUri,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AMQPUri { authority, vhost, .. } = &self.uri;
        let colons = authority.host.contains(':');
        let (open, close) = if colons { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}, virtual host `{vhost}`", authority.host, authority.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as `{}`", self, self.uri.authority.userinfo.username)
    }
}

/// Reads a URL of RabbitMQ's own form. A virtual host is percent-encoded; none, or nothing behind the slash, is `/`.
pub(super) fn parse(url: &str) -> Result<Address, RabbitMqError> {
    // The URL may hold a password, so no error repeats any of it.
    let (scheme, rest) = url.split_once("://").ok_or(RabbitMqError::Url("it has no scheme"))?;
    match scheme {
        "amqp" => {}
        "amqps" if cfg!(feature = "rabbitmq-tls") => {}
        "amqps" => return Err(RabbitMqError::Url("`amqps://` needs the feature `rabbitmq-tls` of `inboxed`")),
        _ => return Err(RabbitMqError::Url("its scheme is neither `amqp` nor `amqps`")),
    }
    let mut uri: AMQPUri = url.parse().map_err(|_| {
        RabbitMqError::Url("it is read as amqp://USER:PASSWORD@HOST:PORT/VHOST, percent-encoded where need be")
    })?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.is_empty() || host.starts_with(':') {
        return Err(RabbitMqError::Url("it names no host"));
    }
    // The client takes an IPv6 address for no host at all, and would go to localhost.
    if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        address.clone_into(&mut uri.authority.host);
    }
    if uri.vhost.is_empty() {
        "/".clone_into(&mut uri.vhost);
    }
    uri.query.heartbeat = Some(uri.query.heartbeat.unwrap_or(HEARTBEAT));
    Ok(Address { uri })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        format!("{:?}", parse(url).unwrap())
    }

    #[test]
    fn address_has_the_usual_port_host_and_user_unless_it_names_one() {
        assert_eq!(shown("amqp://localhost"), "localhost:5672, virtual host `/` as `guest`");
        assert_eq!(shown("amqp://localhost/"), "localhost:5672, virtual host `/` as `guest`");
        assert_eq!(shown("amqp://me:p%40ss@host:7/a%2fb?heartbeat=3"), "host:7, virtual host `a/b` as `me`");
        assert_eq!(shown("amqp://127.0.0.1:7/x"), "127.0.0.1:7, virtual host `x` as `guest`");
        assert_eq!(shown("amqp://me@[::1]:7"), "[::1]:7, virtual host `/` as `me`");
        let uri = parse("amqp://me:p%40ss@host").unwrap().uri;
        assert_eq!((&*uri.authority.userinfo.password, uri.query.heartbeat), ("p@ss", Some(HEARTBEAT)));
    }

    #[test]
    fn unreadable_url_is_refused_without_repeating_its_password() {
        for url in [
            "me:s3cret@host",
            "nats://me:s3cret@host",
            "amqp://me:s3cret@",
            "amqp://me:s3cret@:5672",
            "amqp://me:s3cret@host:http",
            "amqp://me:s3cret@host?heartbeat=never",
        ] {
            let refused = parse(url).unwrap_err().to_string();
            assert!(!refused.contains("s3cret") && refused.contains("URL"), "{refused}");
        }
    }

    #[cfg(not(feature = "rabbitmq-tls"))]
    #[test]
    fn tls_without_its_feature_names_the_feature() {
        assert!(parse("amqps://host").unwrap_err().to_string().contains("`rabbitmq-tls`"));
    }
}
