//! A queue as it is: its attributes, and those of the queue that its redrive policy names.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use inboxed_runtime::broker::Capabilities;
use serde::Deserialize;

use super::error::SqsError;
use super::options::Place;

/// The longest that a message is kept from the queue's other consumers, from when it was received.
pub(super) const LONGEST_LEASE: Duration = Duration::from_hours(12);

/// The longest that SQS keeps a message.
const LONGEST_RETENTION: Duration = Duration::from_hours(14 * 24);

/// A queue's attributes, as far as they matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) url: String,
    /// A delivery's visibility timeout.
    pub(super) lease: Duration,
    /// How long a message stays.
    pub(super) retention: Duration,
    pub(super) redrive: Option<Redrive>,
}

/// Where a queue moves a message that was received too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redrive {
    /// `maxReceiveCount`.
    pub(super) limit: u32,
    pub(super) arn: String,
    pub(super) target: Target,
}

/// The queue that a redrive policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Keeps(Duration),
    /// It isn't there, or these credentials may not look at it.
    Hidden(String),
}

impl Queue {
    /// Reads the queue that is there.
    pub(super) async fn read(client: &Client, place: &Place) -> Result<Self, SqsError> {
        let url = match place {
            Place::Queue(name) => url(client, name, None).await?,
            Place::Url(url) => url.clone(),
        };
        let name = url.rsplit('/').next().unwrap_or(&url).to_owned();
        let attributes = attributes(client, &name, &url).await?;
        let redrive = match attributes.get(&Name::RedrivePolicy).and_then(|policy| policy_of(policy)) {
            Some(Policy { target, limit }) => {
                Some(Redrive { limit, target: look_at(client, &target).await?, arn: target })
            }
            None => None,
        };
        Ok(Self {
            lease: seconds(&attributes, &Name::VisibilityTimeout),
            retention: seconds(&attributes, &Name::MessageRetentionPeriod),
            redrive,
            name,
            url,
        })
    }

    pub(super) fn is_fifo(&self) -> bool {
        is_fifo(&self.name)
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = self.is_fifo();
        capabilities.persistent = true;
        capabilities.lease = Some(self.lease);
        capabilities.delivery_count = true;
        capabilities.delivery_limit = self.redrive.as_ref().map(|redrive| redrive.limit);
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        capabilities.retention = Some(self.latest_duplicate());
        capabilities
    }

    /// How late a duplicate may come: a message goes to the dead-letter queue in its last moment, is sent back from there in
    /// its last moment, and is then a new message for the queue.
    fn latest_duplicate(&self) -> Duration {
        let Some(redrive) = &self.redrive else { return self.retention };
        let kept = match redrive.target {
            Target::Keeps(kept) => kept,
            Target::Hidden(_) => LONGEST_RETENTION,
        };
        // Its age begins anew there in a FIFO queue only.
        let before = if self.is_fifo() { self.retention + kept } else { self.retention.max(kept) };
        before + self.retention
    }
}

/// Whether a queue's name says that it keeps an order.
pub(super) fn is_fifo(name: &str) -> bool {
    name.strip_suffix(".fifo").is_some()
}

/// Where the queue of this name is; in the client's own account without another.
pub(super) async fn url(client: &Client, name: &str, account: Option<&str>) -> Result<String, SqsError> {
    let asked = client.get_queue_url().queue_name(name).set_queue_owner_aws_account_id(account.map(str::to_owned));
    let found = asked.send().await.map_err(|error| SqsError::of("where a queue is", name, &error))?;
    found.queue_url.ok_or_else(|| SqsError::NoQueue(name.to_owned()))
}

pub(super) type Attributes = HashMap<Name, String>;

pub(super) async fn attributes(client: &Client, name: &str, url: &str) -> Result<Attributes, SqsError> {
    let asked = client.get_queue_attributes().queue_url(url).attribute_names(Name::All).send();
    let found = asked.await.map_err(|error| SqsError::of("a queue's attributes", name, &error))?;
    Ok(found.attributes.unwrap_or_default())
}

pub(super) fn seconds(attributes: &Attributes, name: &Name) -> Duration {
    Duration::from_secs(attributes.get(name).and_then(|value| value.parse().ok()).unwrap_or_default())
}

/// The service counts in whole seconds; what isn't one is rounded up.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

async fn look_at(client: &Client, arn: &str) -> Result<Target, SqsError> {
    let mut parts = arn.rsplit(':');
    let (name, account) = (parts.next().unwrap_or_default(), parts.next());
    let found = async { attributes(client, name, &url(client, name, account).await?).await };
    match found.await {
        Ok(attributes) => Ok(Target::Keeps(seconds(&attributes, &Name::MessageRetentionPeriod))),
        // The service answers so too where these credentials have no access.
        Err(SqsError::NoQueue(_)) => Ok(Target::Hidden("no such queue, or no access to it".to_owned())),
        Err(SqsError::Refused { why, .. }) => Ok(Target::Hidden(why)),
        Err(error) => Err(error),
    }
}

/// A redrive policy. Its figure comes as a number or as text.
struct Policy {
    target: String,
    limit: u32,
}

fn policy_of(text: &str) -> Option<Policy> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Json {
        dead_letter_target_arn: String,
        max_receive_count: serde_json::Value,
    }
    let Json { dead_letter_target_arn: target, max_receive_count } = serde_json::from_str(text).ok()?;
    let limit = max_receive_count.as_str().map_or_else(|| max_receive_count.to_string(), str::to_owned);
    Some(Policy { target, limit: limit.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn queue(name: &str, kept: Option<Target>) -> Queue {
        Queue {
            name: name.to_owned(),
            url: String::new(),
            lease: Duration::from_secs(30),
            retention: 4 * DAY,
            redrive: kept.map(|target| Redrive { limit: 5, arn: String::new(), target }),
        }
    }

    #[test]
    fn duplicate_comes_at_the_latest_when_a_message_sent_back_from_the_dead_letters_ends() {
        let latest = |name, kept| queue(name, kept).latest_duplicate();
        assert_eq!(latest("orders", None), 4 * DAY);
        assert_eq!(latest("orders", Some(Target::Keeps(14 * DAY))), 18 * DAY);
        assert_eq!(latest("orders", Some(Target::Keeps(DAY))), 8 * DAY);
        assert_eq!(latest("orders.fifo", Some(Target::Keeps(14 * DAY))), 22 * DAY);
        assert_eq!(latest("orders", Some(Target::Hidden("no".to_owned()))), 18 * DAY);
    }

    #[test]
    fn redrive_policy_is_read_with_its_figure_in_either_form() {
        for count in ["5", "\"5\""] {
            let text = format!(r#"{{"deadLetterTargetArn":"arn:aws:sqs:x:1:dead","maxReceiveCount":{count}}}"#);
            let policy = policy_of(&text).unwrap();
            assert_eq!((&*policy.target, policy.limit), ("arn:aws:sqs:x:1:dead", 5));
        }
        assert!(policy_of("").is_none() && policy_of("{}").is_none());
    }
}
