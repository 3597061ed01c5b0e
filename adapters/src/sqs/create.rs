//! Making the queue of a source, with its dead-letter queue.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::error::SqsError;
use super::options::{Options, Place};
use super::queue::{Attributes, LONGEST_LEASE, Queue, Redrive, attributes, is_fifo, seconds, url, whole_seconds};

/// `maxReceiveCount`, the highest that there is: the count rises also when a message is given back unstarted, and a handler's
/// attempts are counted in the inbox.
const MOST_RECEIVES: u32 = 1_000;

/// The longest name of a queue.
const LONGEST_NAME: usize = 80;

/// How long a new queue may take to be known everywhere.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);

/// Makes what isn't there of a queue and its dead-letter queue, and answers with a line for each.
pub(super) async fn create(client: &Client, place: &Place, options: &Options) -> Result<Vec<String>, SqsError> {
    let name = match place {
        Place::Queue(name) => name,
        // A queue that is named by its URL is somebody's already.
        Place::Url(_) => return Queue::read(client, place).await.map(|_| Vec::new()),
    };
    let dead = dead_letter_name(name);
    for name in [name, &dead] {
        check_name(name)?;
    }
    let lease = whole_seconds(options.visibility_timeout.min(LONGEST_LEASE)).to_string();
    let mut lines = Vec::new();

    let kept = whole_seconds(options.dead_letter_retention).to_string();
    let dead_wanted = Attributes::from([(Name::MessageRetentionPeriod, kept)]);
    let target = existing_or_made(client, &dead, dead_wanted, &mut lines).await?;
    let arn = target.get(&Name::QueueArn).cloned().unwrap_or_default();
    let policy = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": MOST_RECEIVES }).to_string();
    let wanted = Attributes::from([
        (Name::VisibilityTimeout, lease),
        (Name::MessageRetentionPeriod, whole_seconds(options.retention).to_string()),
        (Name::RedrivePolicy, policy),
    ]);
    existing_or_made(client, name, wanted, &mut lines).await?;
    let made = Queue::read(client, place).await?;
    match &made.redrive {
        Some(Redrive { arn: there, limit: MOST_RECEIVES, .. }) if *there == arn => Ok(lines),
        other => Err(redrive_differs(name, other.as_ref(), &arn)),
    }
}

/// `orders-dead`, `orders-dead.fifo`.
fn dead_letter_name(name: &str) -> String {
    match name.strip_suffix(".fifo") {
        Some(name) => format!("{name}-dead.fifo"),
        None => format!("{name}-dead"),
    }
}

fn check_name(name: &str) -> Result<(), SqsError> {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
    if stem.is_empty() || !stem.chars().all(fits) {
        let why = "names are of letters, digits, `-` and `_`, with `.fifo` at the end of an ordered one: choose another, or \
                   give the source one by `Sqs::source`";
        return Err(SqsError::Name(name.to_owned(), why));
    }
    if name.len() > LONGEST_NAME {
        let why = "it has more than 80 characters: choose another, or give the source one by `Sqs::source`";
        return Err(SqsError::Name(name.to_owned(), why));
    }
    Ok(())
}

/// The attributes of the queue of this name, which are the wanted ones. Its redrive policy is left for the caller to compare.
async fn existing_or_made(
    client: &Client,
    name: &str,
    wanted: Attributes,
    lines: &mut Vec<String>,
) -> Result<Attributes, SqsError> {
    match url(client, name, None).await {
        Ok(url) => {
            let there = attributes(client, name, &url).await?;
            differences(name, &there, &wanted)?;
            Ok(there)
        }
        Err(SqsError::NoQueue(_)) => {
            let made = make(client, name, wanted).await?;
            lines.push(format!("queue `{name}`"));
            Ok(made)
        }
        Err(error) => Err(error),
    }
}

async fn make(client: &Client, name: &str, mut wanted: Attributes) -> Result<Attributes, SqsError> {
    if is_fifo(name) {
        wanted.insert(Name::FifoQueue, "true".to_owned());
    }
    let made = client.create_queue().queue_name(name).set_attributes(Some(wanted)).send().await;
    let made = made.map_err(|error| SqsError::of("to make a queue", name, &error))?;
    let url = made.queue_url.unwrap_or_default();
    let until = Instant::now() + KNOWN_WITHIN;
    loop {
        match attributes(client, name, &url).await {
            Err(SqsError::NoQueue(_)) if Instant::now() < until => sleep(Duration::from_millis(500)).await,
            known => return known,
        }
    }
}

fn differences(name: &str, there: &HashMap<Name, String>, wanted: &Attributes) -> Result<(), SqsError> {
    let figures = [
        (Name::VisibilityTimeout, ".visibility_timeout(…)"),
        (Name::MessageRetentionPeriod, ".retention(…)` or `.dead_letter_retention(…)"),
    ];
    for (attribute, option) in figures {
        let (there, wanted) = (seconds(there, &attribute), wanted.get(&attribute));
        if wanted.is_some_and(|wanted| *wanted != there.as_secs().to_string()) {
            let difference = format!(
                "has the {attribute} {}, and would be made with {}: change it, or say what it has by `{option}`",
                there.as_secs(),
                wanted.map_or("", String::as_str)
            );
            return Err(SqsError::Differs { queue: name.to_owned(), difference });
        }
    }
    Ok(())
}

fn redrive_differs(name: &str, there: Option<&Redrive>, wanted: &str) -> SqsError {
    let there = match there {
        Some(there) => format!("moves a message to {} after {} deliveries", there.arn, there.limit),
        None => "has no redrive policy".to_owned(),
    };
    let difference = format!(
        "{there}, and would be made to move one to {wanted} after {MOST_RECEIVES}: change its RedrivePolicy, or name the queue by \
         `Binding::url`, to take it as it is"
    );
    SqsError::Differs { queue: name.to_owned(), difference }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letter_queue_is_of_its_queues_kind() {
        assert_eq!(dead_letter_name("orders"), "orders-dead");
        assert_eq!(dead_letter_name("orders.fifo"), "orders-dead.fifo");
    }

    #[test]
    fn name_that_no_queue_can_have_is_refused() {
        for name in ["orders.placed", "", ".fifo", "a b", "\u{e4}", &"x".repeat(81)] {
            assert!(matches!(check_name(name), Err(SqsError::Name(..))), "{name}");
        }
        assert!(check_name("orders_1-a.fifo").is_ok());
    }

    #[test]
    fn times_are_rounded_up_to_whole_seconds() {
        assert_eq!(whole_seconds(Duration::from_millis(1_001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
    }
}
