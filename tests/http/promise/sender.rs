//! Senders in two processes that time out and try again, ten copies at once, to two processes that handle them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::Inbox;
use inboxed::http::Webhook;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::handlers::slowly;
use super::{Db, Shop};
use crate::client::post_with;
use crate::common::{at_once, child, event, within};
use crate::server::serve;

const MESSAGES: usize = 24;
const COPIES: usize = 10;
/// So many messages are sent at once by a process, each as so many copies.
const AT_ONCE: usize = 4;

/// How often senders were told what, or gave up waiting.
#[derive(Default)]
struct Told {
    done: AtomicU32,
    try_again: AtomicU32,
    timed_out: AtomicU32,
}

/// Handles what comes, beside other processes.
async fn handle(inbox: Inbox<Db>) -> SocketAddr {
    // A copy that comes while a failure is being recorded runs as the same attempt, and its failure counts too.
    let app = super::consumer(inbox).retry(at_once(100)).handle("events", slowly);
    serve(Webhook::new(Arc::new(app), "events").unwrap()).await
}

/// Sends a message, each time to the next process, until it is told that it is done. The first patience is shorter than
/// the body.
async fn send(mut addresses: impl Iterator<Item = SocketAddr>, message: String, told: Arc<Told>) {
    let mut patience = Duration::from_millis(10);
    loop {
        let address = addresses.next().unwrap();
        match tokio::time::timeout(patience, post_with(address, &[], &message)).await {
            Ok(Ok(answer)) if answer.status == 200 => {
                told.done.fetch_add(1, Ordering::SeqCst);
                return;
            }
            Ok(Ok(answer)) => {
                assert_eq!((answer.status, answer.retry_after()), (503, Some(1)), "{answer:?}");
                told.try_again.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Err(error)) => panic!("the server broke a connection off: {error}"),
            Err(_) => {
                told.timed_out.fetch_add(1, Ordering::SeqCst);
                patience = (patience * 2).min(Duration::from_secs(10));
            }
        }
    }
}

/// Sends all messages of one sender, and answers what it was told.
async fn send_all(addresses: [SocketAddr; 2], sender: &str) -> [u32; 3] {
    let told = Arc::new(Told::default());
    let messages = (0..MESSAGES).map(|number| event(&format!("{sender}-{number}"))).collect::<Vec<_>>();
    for at_once in messages.chunks(AT_ONCE) {
        let copies = at_once.iter().flat_map(|message| (0..COPIES).map(move |copy| (message.clone(), copy)));
        let sending = copies.map(|(message, copy)| {
            let addresses = addresses.into_iter().cycle().skip(copy);
            tokio::spawn(send(addresses, message, Arc::clone(&told)))
        });
        for sent in sending.collect::<Vec<_>>() {
            within(sent).await.unwrap();
        }
    }
    [&told.done, &told.try_again, &told.timed_out].map(|count| count.load(Ordering::SeqCst))
}

/// What a child is, and does until it ends.
async fn be(role: &str, given: &str) {
    if role == "handler" {
        let address = handle(Inbox::connect(given).await.unwrap()).await;
        println!("address: {address}");
        std::future::pending::<()>().await;
    }
    let (one, other) = given.split_once(' ').unwrap();
    let [done, try_again, timed_out] = send_all([one, other].map(|given| given.parse().unwrap()), "child").await;
    println!("told: {done} {try_again} {timed_out}");
}

/// The first line with this mark that a child prints, without it.
async fn printed(child: &mut Child, mark: &str) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    loop {
        let line = within(lines.next_line()).await.unwrap().expect("the child ended early");
        if let Some((_, printed)) = line.split_once(mark) {
            return printed.to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_copies_at_once_of_a_sender_that_times_out_have_one_effect_under_load_of_a_second_process() {
    if let Some((role, given)) = child::role() {
        return be(&role, &given).await;
    }
    let shop = Shop::open().await;
    let mut handler = child::start("handler", &shop.url());
    let there = printed(&mut handler, "address: ").await.parse().unwrap();
    let here = handle(shop.inbox.clone()).await;

    let mut sender = child::start("sender", &format!("{here} {there}"));
    let (told, told_child) = tokio::join!(send_all([here, there], "parent"), printed(&mut sender, "told: "));
    let told_child = told_child.split(' ').map(|count| count.parse().unwrap()).collect::<Vec<u32>>();

    for told in [&told[..], &told_child] {
        assert_eq!(told[0] as usize, MESSAGES * COPIES, "every copy is answered in the end");
        assert!(told[1] > 0 && told[2] > 0, "told to try again {}, timed out {}", told[1], told[2]);
    }
    let number = |sender| (0..MESSAGES).map(move |number| format!("{sender}-{number}"));
    let mut sent = ["child", "parent"].into_iter().flat_map(number).collect::<Vec<_>>();
    sent.sort();
    assert_eq!(shop.effects().await, sent);
    assert!(shop.letters().await.is_empty());
}
