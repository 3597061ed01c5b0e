//! A sender that times out and tries again, ten copies at once, from two processes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::http::Webhook;
use inboxed::{Consumer, RetryPolicy};

use super::shop::{Shop, event, slowly};
use crate::client::post_with;
use crate::server::serve;
use crate::{child, within};

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

/// Sends a message until it is told that it is done. The first patience is shorter than the body.
async fn send(address: SocketAddr, message: String, told: Arc<Told>) {
    let mut patience = Duration::from_millis(10);
    loop {
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
async fn send_all(address: SocketAddr, sender: &str) -> [u32; 3] {
    let told = Arc::new(Told::default());
    let messages = (0..MESSAGES).map(|number| event(&format!("{sender}-{number}"))).collect::<Vec<_>>();
    for at_once in messages.chunks(AT_ONCE) {
        let copies = at_once.iter().flat_map(|message| std::iter::repeat_n(message, COPIES));
        let sending = copies.map(|message| tokio::spawn(send(address, message.clone(), Arc::clone(&told))));
        for sent in sending.collect::<Vec<_>>() {
            within(sent).await.unwrap();
        }
    }
    [&told.done, &told.try_again, &told.timed_out].map(|count| count.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_copies_at_once_of_a_sender_that_times_out_have_one_effect_under_load_of_a_second_process() {
    if let Some((_, address)) = child::role() {
        let [done, try_again, timed_out] = send_all(address.parse().unwrap(), "child").await;
        println!("told: {done} {try_again} {timed_out}");
        return;
    }
    let shop = Shop::open().await;
    // A copy that comes while a failure is being recorded runs as the same attempt, and its failure counts too.
    let quick = RetryPolicy::default().attempts(100).backoff(Duration::from_millis(1), Duration::from_millis(4));
    let app = Consumer::new("shop", shop.inbox.clone()).retry(quick).handle("events", slowly);
    let address = serve(Webhook::new(Arc::new(app), "events").unwrap()).await;

    let child = child::start("sender", &address.to_string());
    let here = send_all(address, "parent").await;
    let printed = child::succeed(child).await;
    let there = printed.lines().find_map(|line| line.split_once("told: ")).expect("what the child was told").1;
    let there = there.split(' ').map(|count| count.parse::<u32>().unwrap()).collect::<Vec<_>>();

    for told in [&here[..], &there] {
        assert_eq!(told[0] as usize, MESSAGES * COPIES, "every copy is answered in the end");
        assert!(told[1] > 0 && told[2] > 0, "told to try again {}, timed out {}", told[1], told[2]);
    }
    let sent =
        ["child", "parent"].iter().flat_map(|sender| (0..MESSAGES).map(move |number| format!("{sender}-{number}")));
    let mut sent = sent.collect::<Vec<_>>();
    sent.sort();
    assert_eq!(shop.effects().await, sent);
    assert!(shop.letters().await.is_empty());
}
