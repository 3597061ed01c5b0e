//! Servers that don't let everybody in.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use inboxed::nats::{Nats, NatsError};
use inboxed::{Broker, ConnectError};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// A server with settings of its own, which ends with the test.
struct Guarded {
    port: u16,
    _process: Child,
    _folder: TempDir,
}

impl Guarded {
    async fn start(settings: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), settings).await
    }

    async fn start_in(folder: TempDir, settings: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.path().join("server.conf");
        let store = folder.path().join("store");
        let text =
            format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{settings}\n", store.display());
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(program());
        command.arg("--config").arg(config).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(Instant::now() < until, "the server doesn't start");
            sleep(Duration::from_millis(20)).await;
        }
        Self { port, _process: process, _folder: folder }
    }

    /// Logs in as `user@`, or as nobody.
    async fn try_in(&self, user: &str) -> Result<Nats, NatsError> {
        Nats::connect(&format!("nats://{user}127.0.0.1:{}", self.port)).await
    }
}

/// The server that `scripts/services` has installed.
fn program() -> PathBuf {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/target");
    let found = std::fs::read_dir(target).unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let found = found.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("nats-server-"));
    let mut programs = found.map(|path| path.join("bin/nats-server")).filter(|path| path.exists());
    programs.next().expect("no server is installed: run `scripts/services start nats`")
}

pub(crate) async fn user_with_password_is_let_in_and_others_are_not() {
    let server = Guarded::start(r#"authorization { users = [ { user: "me", password: "s3cr@t" } ] }"#).await;
    server.try_in("me:s3cr%40t@").await.unwrap();
    for other in ["", "me:wr0ng@", "t0ken@"] {
        let refused = server.try_in(other).await.unwrap_err();
        assert!(matches!(refused, NatsError::Denied(_)), "{refused}");
        let text = format!("{refused} {refused:?}");
        assert!(!text.contains("wr0ng") && !text.contains("t0ken"), "{text}");
    }
    let broker = Broker::connect(&format!("nats://me:wr0ng@127.0.0.1:{}", server.port)).await;
    assert!(matches!(broker, Err(ConnectError::Nats(NatsError::Denied(_)))), "{broker:?}");
    let nats = server.try_in("me:s3cr%40t@").await.unwrap();
    let shown = format!("{nats:?} {:?}", Broker::from_transport(nats.clone()));
    assert!(!shown.contains("s3cr"), "{shown}");
}

pub(crate) async fn token_is_let_in() {
    let server = Guarded::start(r#"authorization { token: "t0ken" }"#).await;
    server.try_in("t0ken@").await.unwrap();
    assert!(matches!(server.try_in("").await, Err(NatsError::Denied(_))));
}

pub(crate) async fn key_is_let_in() {
    // The pair that the documentation of NATS shows.
    let (public, seed) = (
        "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4",
        "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY",
    );
    let server = Guarded::start(&format!("authorization {{ users = [ {{ nkey: {public} }} ] }}")).await;
    let nats = Nats::new(&format!("nats://127.0.0.1:{}", server.port)).unwrap();
    nats.clone().nkey(seed).publisher().await.unwrap();
    assert!(matches!(nats.clone().publisher().await, Err(NatsError::Denied(_))));
    assert!(matches!(nats.nkey("nonsense").publisher().await, Err(NatsError::Credentials(_))));
}

/// Over TLS, by a certificate that is trusted; and not by one that isn't.
pub(crate) async fn certificate_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]);
    openssl
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    assert!(openssl.output().await.expect("openssl is installed").status.success());
    let settings = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", certificate.display(), key.display());
    let server = Guarded::start_in(folder, &settings).await;
    for scheme in ["nats", "tls"] {
        let nats = Nats::new(&format!("{scheme}://127.0.0.1:{}", server.port)).unwrap();
        let trusting = nats.clone().root_certificates(&certificate);
        trusting.publisher().await.unwrap();
        assert!(matches!(nats.publisher().await, Err(NatsError::Tls(_))));
    }
}
