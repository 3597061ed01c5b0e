//! A proxy before the server: for what happens to connections, and for what the service documents and the emulator doesn't do.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::server::{Answer, Server};

/// What has become of the connections that there were at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flows,
    /// Open, and nothing comes through.
    Silent,
    Cut,
}

/// What is made of a request: by default the server's own answer.
type Rule = dyn Fn(&Server, &Request) -> Answer + Send + Sync;

/// A request that came by.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `ReceiveMessage` for one.
    pub(crate) action: String,
    pub(crate) body: Value,
}

pub(crate) struct Proxy {
    port: u16,
    fate: watch::Sender<Fate>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Proxy {
    /// One that lets everything through.
    pub(crate) async fn to(url: &str) -> Self {
        Self::with(url, Server::answer).await
    }

    /// One that answers by a rule.
    pub(crate) async fn with(url: &str, rule: impl Fn(&Server, &Request) -> Answer + Send + Sync + 'static) -> Self {
        let server = Server::of(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fate, requests) = (watch::Sender::new(Fate::Flows), Arc::<Mutex<Vec<Request>>>::default());
        let (fates, seen, rule) = (fate.clone(), Arc::clone(&requests), Arc::from(Box::new(rule) as Box<Rule>));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let (server, seen, rule) = (server.clone(), Arc::clone(&seen), Arc::clone(&rule));
                let mut fate = fates.subscribe();
                tokio::spawn(async move {
                    if *fate.borrow_and_update() != Fate::Silent {
                        tokio::select! {
                            _ = carry(&mut client, server, seen, rule) => {}
                            _ = fate.changed() => {}
                        }
                    }
                    let _ = fate.wait_for(|fate| *fate != Fate::Silent).await;
                });
            }
        });
        Self { port, fate, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("sqs://test:test@127.0.0.1:{}", self.port)
    }

    /// Cuts the connections that there are.
    pub(crate) fn cut(&self) {
        self.fate.send_replace(Fate::Cut);
        self.fate.send_replace(Fate::Flows);
    }

    /// Lets nothing through, on connections that there are and on new ones, until they are cut.
    pub(crate) fn silence(&self) {
        self.fate.send_replace(Fate::Silent);
    }

    /// The requests of this kind that came by.
    pub(crate) fn requests(&self, action: &str) -> Vec<Request> {
        self.requests.lock().unwrap().iter().filter(|request| request.action == action).cloned().collect()
    }

    /// How often a batch action was asked for with this receipt handle.
    pub(crate) fn times(&self, action: &str, handle: &str) -> usize {
        self.requests(action).iter().flat_map(Request::entries).filter(|(_, known)| known == handle).count()
    }
}

impl Request {
    /// A batch action's entries: their ids and receipt handles.
    pub(crate) fn entries(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let entries = self.body["Entries"].as_array().into_iter().flatten();
        entries.map(|entry| (text(&entry["Id"]), text(&entry["ReceiptHandle"]))).collect()
    }
}

impl Server {
    /// The server's own answer to a request.
    pub(crate) fn answer(&self, request: &Request) -> Answer {
        self.request(&request.action, request.body.to_string().as_bytes())
    }

    /// The server's answer to a batch, of which it never sees the entries that fail: those with a failure by their handle,
    /// whether it is the sender's fault, and the code.
    pub(crate) fn answer_but(&self, request: &Request, fails: impl Fn(&str) -> Option<(bool, &'static str)>) -> Answer {
        let (mut failed, mut passed) = (Vec::new(), request.clone());
        for (id, handle) in request.entries() {
            if let Some((sender, code)) = fails(&handle) {
                failed.push(json!({ "Id": id, "SenderFault": sender, "Code": code, "Message": "by the test" }));
            }
        }
        let entries = passed.body["Entries"].as_array_mut().unwrap();
        entries.retain(|entry| fails(entry["ReceiptHandle"].as_str().unwrap()).is_none());
        let mut answer = json!({ "Successful": [], "Failed": [] });
        if !entries.is_empty() {
            answer = serde_json::from_slice(&self.answer(&passed).body).unwrap();
        }
        answer["Failed"].as_array_mut().unwrap().extend(failed);
        Answer::of("200 OK", &answer)
    }
}

/// Carries one connection's requests.
async fn carry(
    client: &mut TcpStream,
    server: Server,
    seen: Arc<Mutex<Vec<Request>>>,
    rule: Arc<Rule>,
) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    loop {
        let (mut action, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if client.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                Some((name, value)) if name.eq_ignore_ascii_case("x-amz-target") => {
                    action = value.trim_start_matches("AmazonSQS.").to_owned();
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body).await?;
        let request = Request { action, body: serde_json::from_slice(&body).unwrap() };
        seen.lock().unwrap().push(request.clone());
        let (server, rule) = (server.clone(), Arc::clone(&rule));
        let answer = tokio::task::spawn_blocking(move || rule(&server, &request)).await.unwrap();
        let head = format!("{}\r\ncontent-length: {}\r\n\r\n", answer.head, answer.body.len());
        client.write_all(&[head.as_bytes(), &answer.body].concat()).await?;
    }
}
