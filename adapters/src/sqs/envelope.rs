//! Envelopes that other services put around a message on its way to a queue. Which one is declared where the handler is
//! registered: a guess could take a key from the wrong level, where ids are new each time.

use std::borrow::Cow;

use bytes::Bytes;
use inboxed_runtime::{BoxError, Decode, Json, Received};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Opens what SNS delivers to a queue without raw message delivery: the message is the text in `Message`. What is inside is
/// decoded by `D`, JSON by default.
///
/// ```
/// use inboxed_adapters::sqs::Sns;
/// use inboxed_runtime::{Decode, Received};
///
/// let received = Received::new("orders", r#"{"Type":"Notification","MessageId":"1","Message":"{\"order_id\":7}"}"#);
/// let message: serde_json::Value = Sns::json().decode(&received)?;
/// assert_eq!(message["order_id"], 7);
/// # Ok::<_, inboxed_runtime::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sns<D = Json>(D);

/// Opens what EventBridge delivers to a queue: the message is the object in `detail`. What is inside is decoded by `D`, JSON by
/// default.
///
/// ```
/// use inboxed_adapters::sqs::EventBridge;
/// use inboxed_runtime::{Decode, Received};
///
/// let received = Received::new("orders", r#"{"id":"1","detail-type":"OrderPlaced","source":"shop","detail":{"order_id":7}}"#);
/// let message: serde_json::Value = EventBridge::json().decode(&received)?;
/// assert_eq!(message["order_id"], 7);
/// # Ok::<_, inboxed_runtime::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct EventBridge<D = Json>(D);

impl Sns {
    /// Decodes what is inside as JSON.
    pub fn json() -> Self {
        Self(Json)
    }
}

impl EventBridge {
    /// Decodes what is inside as JSON.
    pub fn json() -> Self {
        Self(Json)
    }
}

impl<D> Sns<D> {
    /// Decodes what is inside by another decoder, of another envelope for one.
    pub fn around(decoder: D) -> Self {
        Self(decoder)
    }
}

impl<D> EventBridge<D> {
    /// Decodes what is inside by another decoder, of another envelope for one.
    pub fn around(decoder: D) -> Self {
        Self(decoder)
    }
}

/// An SNS message. Of other types there are those that confirm a subscription.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    /// Every notification has one: an object of ours that happens to have a type and a message hasn't.
    #[serde(rename = "MessageId")]
    _message_id: serde::de::IgnoredAny,
    message: String,
}

/// An event on a bus.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Event<'a> {
    #[serde(rename = "detail-type")]
    _detail_type: serde::de::IgnoredAny,
    #[serde(rename = "source")]
    _source: serde::de::IgnoredAny,
    #[serde(borrow)]
    detail: &'a RawValue,
}

fn notified(body: &[u8]) -> Result<String, BoxError> {
    let notification = serde_json::from_slice::<Notification<'_>>(body).map_err(|error| {
        format!("this is no SNS notification, whose envelope the handler is registered with: {error}; with raw message delivery on, register it without `Sns`")
    })?;
    if notification.r#type == "Notification" {
        Ok(notification.message)
    } else {
        Err(format!(
            "this is an SNS message of type `{}`, and only a `Notification` has a message",
            notification.r#type
        )
        .into())
    }
}

fn detail(body: &[u8]) -> Result<&[u8], BoxError> {
    let event = serde_json::from_slice::<Event<'_>>(body).map_err(|error| {
        format!("this is no EventBridge event, whose envelope the handler is registered with: {error}; where a rule sends only the detail, register it without `EventBridge`")
    })?;
    Ok(event.detail.get().as_bytes())
}

/// The delivery with what was inside as its body.
fn inside(received: &Received, body: Bytes) -> Received {
    let mut inside = received.clone();
    inside.body = body;
    inside
}

impl<M, D: Decode<M>> Decode<M> for Sns<D> {
    fn decode(&self, received: &Received) -> Result<M, BoxError> {
        self.0.decode(&inside(received, notified(&received.body)?.into()))
    }

    fn payload<'a>(&self, received: &'a Received) -> Cow<'a, [u8]> {
        match notified(&received.body) {
            Ok(message) => Cow::Owned(self.0.payload(&inside(received, message.into())).into_owned()),
            Err(_) => Cow::Borrowed(&received.body),
        }
    }
}

impl<M, D: Decode<M>> Decode<M> for EventBridge<D> {
    fn decode(&self, received: &Received) -> Result<M, BoxError> {
        self.0.decode(&inside(received, Bytes::copy_from_slice(detail(&received.body)?)))
    }

    fn payload<'a>(&self, received: &'a Received) -> Cow<'a, [u8]> {
        match detail(&received.body) {
            Ok(detail) => Cow::Owned(self.0.payload(&inside(received, Bytes::copy_from_slice(detail))).into_owned()),
            Err(_) => Cow::Borrowed(&received.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Eq, Deserialize)]
    struct Placed {
        order_id: String,
    }

    const RAW: &str = r#"{"order_id":"o-1"}"#;

    fn notification(id: &str, message: &str) -> Received {
        let envelope =
            serde_json::json!({ "Type": "Notification", "MessageId": id, "TopicArn": "arn", "Message": message });
        Received::new("orders", envelope.to_string())
    }

    fn event(id: &str, detail: &str) -> Received {
        let envelope =
            format!(r#"{{"version":"0","id":"{id}","detail-type":"Placed","source":"shop","detail":{detail}}}"#);
        Received::new("orders", envelope)
    }

    fn refused(decoder: &impl Decode<Placed>, received: &Received) -> String {
        decoder.decode(received).unwrap_err().to_string()
    }

    fn same_payload(received: [&Received; 2], decoder: &impl Decode<Placed>) -> bool {
        let [one, other] = received.map(|received| decoder.payload(received));
        one == other
    }

    #[test]
    fn message_inside_is_what_is_decoded_and_compared() {
        let placed = Placed { order_id: "o-1".to_owned() };
        let (sns, bus) = (Sns::json(), EventBridge::json());
        assert_eq!(sns.decode(&notification("1", RAW)).ok(), Some(placed));
        assert_eq!(bus.decode(&event("1", RAW)).ok(), Some(Placed { order_id: "o-1".to_owned() }));
        assert!(same_payload([&notification("1", RAW), &notification("2", RAW)], &sns));
        assert!(same_payload([&event("1", RAW), &event("2", RAW)], &bus));
        assert!(!same_payload([&event("1", RAW), &event("1", r#"{"order_id":"o-2"}"#)], &bus));
        assert_eq!(Decode::<Placed>::payload(&sns, &notification("1", RAW)), RAW.as_bytes());
        assert_eq!(Decode::<Placed>::payload(&bus, &event("1", RAW)), RAW.as_bytes());
    }

    #[test]
    fn envelope_in_an_envelope_is_opened_in_the_declared_order() {
        let both = notification("1", std::str::from_utf8(&event("2", RAW).body).unwrap());
        let decoder = Sns::around(EventBridge::around(Json));
        assert_eq!(decoder.decode(&both).ok(), Some(Placed { order_id: "o-1".to_owned() }));
        assert_eq!(Decode::<Placed>::payload(&decoder, &both), RAW.as_bytes());
    }

    #[test]
    fn another_envelope_than_the_declared_one_is_refused_with_what_to_do() {
        let raw = Received::new("orders", RAW);
        for received in [&raw, &event("1", RAW)] {
            let text = refused(&Sns::json(), received);
            assert!(text.contains("no SNS notification") && text.contains("raw message delivery"), "{text}");
        }
        for received in [&raw, &notification("1", RAW)] {
            let text = refused(&EventBridge::json(), received);
            assert!(text.contains("no EventBridge event"), "{text}");
        }
        for received in [&notification("1", RAW), &event("1", RAW)] {
            assert!(refused(&Json, received).contains("order_id"));
        }
        let confirmation = r#"{"Type":"SubscriptionConfirmation","MessageId":"1","Message":"You have chosen"}"#;
        assert!(refused(&Sns::json(), &Received::new("orders", confirmation)).contains("SubscriptionConfirmation"));
    }
}
