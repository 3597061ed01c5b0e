//! The greeting: what the server says of itself, and who the client says it is.

use data_encoding::BASE64URL_NOPAD;
use nkeys::KeyPair;
use serde::{Deserialize, Serialize};

use super::address::Credentials;
use super::error::NatsError;

/// What a server says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Info {
    pub(super) version: String,
    pub(super) tls_required: bool,
    nonce: String,
}

impl Info {
    pub(super) fn read(text: &str) -> Result<Self, NatsError> {
        let info: Self = serde_json::from_str(text).map_err(|error| NatsError::Protocol(error.to_string()))?;
        // Before 2.9 a consumer has no name in its own request, and a pull no heartbeat.
        if info.version() < (2, 9) { Err(NatsError::TooOld(info.version)) } else { Ok(info) }
    }

    /// The version's first two numbers. One that can't be read counts as current.
    pub(super) fn version(&self) -> (u32, u32) {
        let mut parts = self.version.trim_start_matches('v').split('.').map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => (u32::MAX, 0),
        }
    }
}

/// What a client says of itself.
#[derive(Debug, Default, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "the protocol's")]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    tls_required: bool,
    lang: &'static str,
    version: &'static str,
    protocol: u8,
    name: &'a str,
    headers: bool,
    no_responders: bool,
    echo: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

/// The client's half of the greeting, to a server that has said this.
pub(super) async fn connect(
    info: &Info,
    name: &str,
    tls: bool,
    credentials: &Credentials,
) -> Result<Vec<u8>, NatsError> {
    let mut connect = Connect {
        tls_required: tls,
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        name,
        headers: true,
        no_responders: true,
        ..Connect::default()
    };
    match credentials {
        Credentials::None => {}
        Credentials::User { name, password } => {
            (connect.user, connect.pass) = (Some(name.clone()), Some(password.clone()));
        }
        Credentials::Token(token) => connect.auth_token = Some(token.clone()),
        Credentials::Nkey(seed) => {
            let key = key(seed)?;
            (connect.nkey, connect.sig) = (Some(key.public_key()), Some(sign(&key, info)?));
        }
        Credentials::File(path) => {
            let unreadable = |why: String| NatsError::Credentials(format!("{}: {why}", path.display()));
            let text = tokio::task::spawn_blocking({
                let path = path.clone();
                move || std::fs::read_to_string(path)
            });
            let text = text.await.map_err(|error| unreadable(error.to_string()))?;
            let text = text.map_err(|error| unreadable(error.to_string()))?;
            let (jwt, seed) = (section(&text, "NATS USER JWT"), section(&text, "USER NKEY SEED"));
            let (Some(jwt), Some(seed)) = (jwt, seed) else {
                return Err(unreadable(
                    "it has no `NATS USER JWT` and `USER NKEY SEED`, as `nsc` writes them".to_owned(),
                ));
            };
            (connect.jwt, connect.sig) = (Some(jwt.to_owned()), Some(sign(&key(seed)?, info)?));
        }
    }
    let connect = serde_json::to_string(&connect).map_err(|error| NatsError::Protocol(error.to_string()))?;
    Ok(format!("CONNECT {connect}\r\nPING\r\n").into_bytes())
}

fn key(seed: &str) -> Result<KeyPair, NatsError> {
    KeyPair::from_seed(seed.trim()).map_err(|error| NatsError::Credentials(format!("the nkey's seed: {error}")))
}

fn sign(key: &KeyPair, info: &Info) -> Result<String, NatsError> {
    let signature = key.sign(info.nonce.as_bytes()).map_err(|error| NatsError::Credentials(error.to_string()))?;
    Ok(BASE64URL_NOPAD.encode(&signature))
}

/// The line behind `-----BEGIN NAME-----`.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.contains(&format!("BEGIN {name}")));
    lines.next()?;
    lines.find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pair that the documentation of NATS shows.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";

    fn info() -> Info {
        Info::read(r#"{"version":"2.10.1","nonce":"n0nce"}"#).unwrap()
    }

    async fn said(credentials: Credentials) -> serde_json::Value {
        let frame = String::from_utf8(connect(&info(), "me", false, &credentials).await.unwrap()).unwrap();
        let json = frame.strip_prefix("CONNECT ").unwrap().strip_suffix("\r\nPING\r\n").unwrap();
        serde_json::from_str(json).unwrap()
    }

    fn check_signature(said: &serde_json::Value) {
        let signature = BASE64URL_NOPAD.decode(said["sig"].as_str().unwrap().as_bytes()).unwrap();
        KeyPair::from_public_key(PUBLIC).unwrap().verify(b"n0nce", &signature).unwrap();
    }

    #[tokio::test]
    async fn credentials_file_gives_its_token_and_signs_the_servers_challenge() {
        let path = std::env::temp_dir().join(format!("inboxed-{:016x}.creds", fastrand::u64(..)));
        let text = format!(
            "-----BEGIN NATS USER JWT-----\nthe.jwt\n------END NATS USER JWT------\n\n*** IMPORTANT ***\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        std::fs::write(&path, text).unwrap();
        let said = said(Credentials::File(path.clone())).await;
        std::fs::write(&path, "nothing").unwrap();
        let refused = connect(&info(), "me", false, &Credentials::File(path.clone())).await.unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(said["jwt"], "the.jwt");
        check_signature(&said);
        assert!(refused.to_string().contains("USER NKEY SEED"), "{refused}");
    }

    #[tokio::test]
    async fn key_signs_the_servers_challenge() {
        let said = said(Credentials::Nkey(SEED.to_owned())).await;
        assert_eq!(said["nkey"], PUBLIC);
        check_signature(&said);
    }

    #[test]
    fn server_that_is_too_old_is_refused() {
        for (version, fit) in
            [("2.8.4", false), ("2.9.10", true), ("v2.15.1-beta", true), ("3.0.0", true), ("dev", true)]
        {
            let read = Info::read(&format!(r#"{{"version":"{version}"}}"#));
            assert_eq!(read.is_ok(), fit, "{version}");
        }
    }
}
