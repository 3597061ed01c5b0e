//! Headers, between AMQP's typed fields and properties, and the runtime, which holds bytes.
//!
//! | a field of type | arrives as |
//! |---|---|
//! | string, byte array | its bytes, as they are |
//! | integer, timestamp (in seconds since 1970) | decimal digits |
//! | boolean | `true` or `false` |
//! | float, decimal | decimal digits with a point |
//! | nothing | no bytes |
//! | array, table | JSON |

use bytes::Bytes;
use inboxed_runtime::Headers;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, DecimalValue, FieldTable, ShortString};
use serde_json::Value;

use super::error::RabbitMqError;

/// What the server adds to say how often it has handed a message out.
pub(super) const COUNTS: [&str; 2] = ["x-delivery-count", "x-acquired-count"];

/// The headers of a message, and then its properties, unless a header has the property's name.
pub(super) fn received(properties: &BasicProperties) -> Headers {
    let fields = properties.headers().iter().flat_map(FieldTable::inner);
    let fields = fields.filter(|(name, _)| !COUNTS.contains(&name.as_str()));
    let mut headers = fields.map(|(name, value)| (name.to_string(), bytes(value))).collect::<Headers>();
    let properties = [
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("message-id", properties.message_id()),
        ("type", properties.kind()),
        ("user-id", properties.user_id()),
        ("app-id", properties.app_id()),
    ];
    for (name, value) in properties {
        if let Some(value) = value
            && headers.get_bytes(name).is_none()
        {
            headers.push(name, value.to_string());
        }
    }
    headers
}

/// The headers of a message to publish, each a string.
pub(super) fn sent(headers: &Headers) -> Result<FieldTable, RabbitMqError> {
    let mut table = FieldTable::default();
    for (name, value) in headers.iter() {
        let unfit = |why: &str| RabbitMqError::Message(format!("its header `{name}` {why}"));
        if table.contains_key(name) {
            return Err(unfit("is there twice, and AMQP holds one value for a name"));
        }
        let name = ShortString::try_new(name).map_err(|_| unfit("has a name of more than 255 bytes"))?;
        table.insert(name, AMQPValue::LongString(value.into()));
    }
    Ok(table)
}

fn bytes(value: &AMQPValue) -> Bytes {
    match value {
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::Void => Bytes::new(),
        // These have no more digits as text than in JSON, and may be no number of JSON's.
        AMQPValue::Float(number) => number.to_string().into(),
        AMQPValue::Double(number) => number.to_string().into(),
        AMQPValue::DecimalValue(number) => decimal(*number).into(),
        other => json(other).to_string().into(),
    }
}

/// A field as JSON. Bytes that aren't UTF-8 are replaced: only inside arrays and tables do they come here.
fn json(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(yes) => (*yes).into(),
        AMQPValue::ShortShortInt(number) => (*number).into(),
        AMQPValue::ShortShortUInt(number) => (*number).into(),
        AMQPValue::ShortInt(number) => (*number).into(),
        AMQPValue::ShortUInt(number) => (*number).into(),
        AMQPValue::LongInt(number) => (*number).into(),
        AMQPValue::LongUInt(number) => (*number).into(),
        AMQPValue::LongLongInt(number) => (*number).into(),
        AMQPValue::Float(number) => (*number).into(),
        AMQPValue::Double(number) => (*number).into(),
        AMQPValue::DecimalValue(number) => decimal(*number).into(),
        AMQPValue::ShortString(text) => text.as_str().into(),
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        AMQPValue::ByteArray(bytes) => String::from_utf8_lossy(bytes.as_slice()).into(),
        AMQPValue::Timestamp(seconds) => (*seconds).into(),
        AMQPValue::FieldArray(values) => values.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => {
            table.inner().iter().map(|(name, value)| (name.to_string(), json(value))).collect()
        }
        AMQPValue::Void => Value::Null,
    }
}

fn decimal(DecimalValue { scale, value }: DecimalValue) -> String {
    let scale = usize::from(scale);
    let digits = format!("{value:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_field_arrives_in_the_documented_way() {
        let table = |name: &str, value| {
            let mut table = FieldTable::default();
            table.insert(name.into(), value);
            table
        };
        let strings = vec![AMQPValue::LongString("a".into()), AMQPValue::Void].into();
        let fields: [(AMQPValue, &[u8]); 16] = [
            (AMQPValue::LongString(vec![0xff, 0].into()), b"\xff\0"),
            (AMQPValue::ByteArray(vec![0xff].into()), b"\xff"),
            (AMQPValue::ShortString("x".into()), b"x"),
            (AMQPValue::Boolean(true), b"true"),
            (AMQPValue::ShortShortInt(-1), b"-1"),
            (AMQPValue::ShortShortUInt(200), b"200"),
            (AMQPValue::LongLongInt(i64::MIN), b"-9223372036854775808"),
            (AMQPValue::Timestamp(1_700_000_000), b"1700000000"),
            (AMQPValue::Double(1.5), b"1.5"),
            (AMQPValue::Float(f32::NAN), b"NaN"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 1234 }), b"12.34"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 3, value: 7 }), b"0.007"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 0, value: 7 }), b"7"),
            (AMQPValue::Void, b""),
            (AMQPValue::FieldArray(strings), br#"["a",null]"#),
            (AMQPValue::FieldTable(table("n", AMQPValue::LongInt(1))), br#"{"n":1}"#),
        ];
        for (value, expected) in fields {
            let headers = received(&BasicProperties::default().with_headers(table("key", value.clone())));
            assert_eq!(headers.get_bytes("key"), Some(expected), "{value:?}");
        }
    }

    #[test]
    fn property_is_a_header_unless_one_has_its_name() {
        let mut table = FieldTable::default();
        table.insert("Type".into(), AMQPValue::LongString("of the header".into()));
        table.insert("x-delivery-count".into(), AMQPValue::LongLongInt(3));
        let properties = BasicProperties::default().with_type("of the property".into()).with_message_id("7".into());
        assert!(received(&BasicProperties::default()).iter().next().is_none());
        let headers = received(&properties.with_headers(table));
        let expected = [("Type", &b"of the header"[..]), ("message-id", b"7")];
        assert!(headers.iter().eq(expected), "{headers:?}");
    }

    #[test]
    fn header_that_cannot_be_sent_is_an_error_that_names_it() {
        let twice = sent(&Headers::from([("a", "1"), ("a", "2")])).unwrap_err().to_string();
        assert!(twice.contains("`a`"), "{twice}");
        assert!(sent(&Headers::from([("n".repeat(256), "1")])).is_err());
        let bytes = [("a", Bytes::from_static(b"\xff"))].into_iter().collect::<Headers>();
        assert_eq!(sent(&bytes).unwrap().inner()["a"], AMQPValue::LongString(vec![0xff].into()));
    }
}
