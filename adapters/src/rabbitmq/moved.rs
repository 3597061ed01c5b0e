//! A message on its way through a delay queue. What the server would act on, or change, travels inside one header of ours:
//! `CC` would send copies, a foreign `user_id` is refused, and each move adds to `x-death`.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use super::headers::COUNTS;

/// The header that holds the rest.
const MOVED: &str = "inboxed-moved";

const HEADERS: &str = "headers";
const DELIVERIES: &str = "deliveries";
const USER: &str = "user-id";

/// A message's properties as its publisher set them, and what the server and earlier moves say of its deliveries.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Original {
    pub(super) properties: BasicProperties,
    /// How often it was handed out, this time included.
    pub(super) deliveries: u32,
    pub(super) redelivered: bool,
}

/// Takes a message as it came.
pub(super) fn unpack(properties: BasicProperties, redelivered: bool) -> Original {
    let fields = properties.headers().as_ref();
    let counts = COUNTS.iter().filter_map(|name| count(fields?.inner().get(*name)?));
    // Classic queues don't count.
    let here = counts.max().unwrap_or(u32::from(redelivered));
    let moved = fields.and_then(|fields| fields.inner().get(MOVED)).and_then(AMQPValue::as_field_table).cloned();
    let Some(moved) = moved else {
        return Original { properties, deliveries: here.saturating_add(1), redelivered };
    };
    let earlier = moved.inner().get(DELIVERIES).and_then(count).unwrap_or_default();
    let headers = moved.inner().get(HEADERS).and_then(AMQPValue::as_field_table).cloned();
    let user = moved.inner().get(USER).and_then(AMQPValue::as_long_string).map(ToString::to_string);
    let mut properties = with(&properties, headers);
    if let Some(user) = user.and_then(|user| ShortString::try_new(user).ok()) {
        properties = properties.with_user_id(user);
    }
    let deliveries = earlier.saturating_add(here).saturating_add(1);
    Original { properties, deliveries, redelivered: redelivered || earlier > 0 }
}

/// Packs a message for a queue that lets it go after so many milliseconds.
pub(super) fn pack(original: &Original, milliseconds: u64) -> BasicProperties {
    let mut moved = FieldTable::default();
    moved.insert(DELIVERIES.into(), AMQPValue::LongLongInt(original.deliveries.into()));
    if let Some(headers) = original.properties.headers() {
        let kept = headers.inner().iter().filter(|(name, _)| !COUNTS.contains(&name.as_str()));
        let mut headers = FieldTable::default();
        for (name, value) in kept {
            headers.insert(name.clone(), value.clone());
        }
        moved.insert(HEADERS.into(), AMQPValue::FieldTable(headers));
    }
    if let Some(user) = original.properties.user_id() {
        moved.insert(USER.into(), AMQPValue::LongString(user.as_str().into()));
    }
    let mut headers = FieldTable::default();
    headers.insert(MOVED.into(), AMQPValue::FieldTable(moved));
    let properties = with(&original.properties, Some(headers)).with_delivery_mode(2);
    properties.with_expiration(milliseconds.to_string().into())
}

/// The same properties with other headers; without the user, whom only he himself may name, and without the time to live,
/// which is the delay's on the way out and gone on the way back.
fn with(properties: &BasicProperties, headers: Option<FieldTable>) -> BasicProperties {
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    let strings: [(&Option<ShortString>, Set); 8] = [
        (properties.content_type(), BasicProperties::with_content_type),
        (properties.content_encoding(), BasicProperties::with_content_encoding),
        (properties.correlation_id(), BasicProperties::with_correlation_id),
        (properties.reply_to(), BasicProperties::with_reply_to),
        (properties.message_id(), BasicProperties::with_message_id),
        (properties.kind(), BasicProperties::with_type),
        (properties.app_id(), BasicProperties::with_app_id),
        (properties.cluster_id(), BasicProperties::with_cluster_id),
    ];
    let set = |made: BasicProperties, (value, set): (&Option<ShortString>, Set)| match value {
        Some(value) => set(made, value.clone()),
        None => made,
    };
    let mut made = strings.into_iter().fold(BasicProperties::default(), set);
    if let Some(mode) = properties.delivery_mode() {
        made = made.with_delivery_mode(*mode);
    }
    if let Some(priority) = properties.priority() {
        made = made.with_priority(*priority);
    }
    if let Some(timestamp) = properties.timestamp() {
        made = made.with_timestamp(*timestamp);
    }
    match headers {
        Some(headers) => made.with_headers(headers),
        None => made,
    }
}

/// A count in whatever type of integer it is; anything else is none.
fn count(value: &AMQPValue) -> Option<u32> {
    let number = match value {
        AMQPValue::ShortShortInt(number) => i64::from(*number),
        AMQPValue::ShortShortUInt(number) => i64::from(*number),
        AMQPValue::ShortInt(number) => i64::from(*number),
        AMQPValue::ShortUInt(number) => i64::from(*number),
        AMQPValue::LongInt(number) => i64::from(*number),
        AMQPValue::LongUInt(number) => i64::from(*number),
        AMQPValue::LongLongInt(number) => *number,
        _ => return None,
    };
    Some(u32::try_from(number.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(fields: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> FieldTable {
        let mut table = FieldTable::default();
        for (name, value) in fields {
            table.insert(name.into(), value);
        }
        table
    }

    #[test]
    fn message_comes_back_from_a_delay_as_it_was_published() {
        let headers = table([
            (
                "CC",
                AMQPValue::FieldArray(
                    vec!["a".into()].into_iter().map(AMQPValue::LongString).collect::<Vec<_>>().into(),
                ),
            ),
            ("x-death", AMQPValue::LongInt(7)),
        ]);
        let published = BasicProperties::default()
            .with_headers(headers)
            .with_user_id("somebody".into())
            .with_message_id("7".into())
            .with_timestamp(9)
            .with_priority(1);
        let first = unpack(published.clone(), false);
        assert_eq!(first, Original { properties: published.clone(), deliveries: 1, redelivered: false });

        let out = pack(&first, 250);
        assert_eq!(out.expiration().as_ref().map(ShortString::as_str), Some("250"));
        assert!(out.user_id().is_none() && out.headers().as_ref().unwrap().inner().len() == 1);
        // The server takes the time to live away, and says where it was.
        let back =
            table([(MOVED, out.headers().as_ref().unwrap().inner()[MOVED].clone()), ("x-death", AMQPValue::Void)]);
        let again = unpack(with(&out, Some(back)), false);
        assert_eq!(again.properties, published.with_delivery_mode(2));
        assert_eq!((again.deliveries, again.redelivered), (2, true));
    }

    #[test]
    fn deliveries_are_counted_through_queues_and_moves() {
        let counted = |count: AMQPValue| BasicProperties::default().with_headers(table([("x-delivery-count", count)]));
        assert_eq!(unpack(counted(AMQPValue::LongLongInt(2)), true).deliveries, 3);
        assert_eq!(unpack(BasicProperties::default(), true).deliveries, 2, "a classic queue");
        assert_eq!(unpack(counted(AMQPValue::LongString("many".into())), false).deliveries, 1);
        let moved = pack(&unpack(counted(AMQPValue::LongLongInt(2)), true), 1);
        let mut back = moved.headers().clone().unwrap();
        back.insert("x-acquired-count".into(), AMQPValue::LongUInt(1));
        assert_eq!(unpack(moved.with_headers(back), true).deliveries, 5);
    }

    #[test]
    fn odd_fields_of_our_own_name_break_nothing() {
        for odd in [AMQPValue::LongString("x".into()), AMQPValue::FieldTable(FieldTable::default())] {
            let original = unpack(BasicProperties::default().with_headers(table([(MOVED, odd)])), false);
            assert_eq!(original.deliveries, 1);
        }
    }
}
