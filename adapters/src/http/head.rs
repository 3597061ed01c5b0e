//! Which of a request's headers become the message's, and so may stand in a dead letter.

use ::http::HeaderMap;
use ::http::header::CONNECTION;
use bytes::Bytes;
use inboxed_runtime::Headers;

/// What concerns one connection (RFC 9110, 7.6.1) or the framing of the body there.
const OF_THE_CONNECTION: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What lets its holder in. A dead letter is read by people.
const SECRETS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The headers that a message keeps: names in lower case, values byte for byte.
pub(super) fn kept(headers: &HeaderMap, without: &[String]) -> Headers {
    let named_by_connection = |name: &str| {
        let listed = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
        listed.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(name))
    };
    let kept = headers.iter().filter(|(name, value)| {
        let name = name.as_str();
        !value.is_sensitive()
            && !OF_THE_CONNECTION.contains(&name)
            && !SECRETS.contains(&name)
            && !without.iter().any(|without| without == name)
            && !named_by_connection(name)
    });
    kept.map(|(name, value)| (name.as_str(), Bytes::copy_from_slice(value.as_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    fn kept_of(headers: &[(&'static str, &[u8])]) -> Vec<(String, Vec<u8>)> {
        let headers = headers.iter().map(|(name, value)| {
            (::http::HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap())
        });
        let kept = kept(&headers.collect(), &["x-gitlab-token".to_owned()]);
        kept.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn values_stay_byte_for_byte_and_in_their_order() {
        let headers: [(&str, &[u8]); 3] = [("X-Type", b"placed"), ("X-Name", b"M\xfcller"), ("X-Type", b"again")];
        let mut expected = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())).to_vec();
        expected.sort();
        let mut kept = kept_of(&headers);
        assert_eq!(
            kept.iter().filter(|(name, _)| name == "x-type").map(|(_, v)| &v[..]).collect::<Vec<_>>(),
            [&b"placed"[..], b"again"]
        );
        kept.sort();
        assert_eq!(kept, expected);
    }

    #[test]
    fn secrets_and_what_concerns_the_connection_are_left_out() {
        let left_out: [(&str, &[u8]); 8] = [
            ("Authorization", b"Bearer 1"),
            ("Cookie", b"session=1"),
            ("Proxy-Authorization", b"Basic 1"),
            ("X-Gitlab-Token", b"1"),
            ("Content-Length", b"2"),
            ("Transfer-Encoding", b"chunked"),
            ("Connection", b"close, X-Hop"),
            ("X-Hop", b"1"),
        ];
        assert_eq!(kept_of(&left_out), []);
        assert_eq!(kept_of(&[("X-Hop", b"1")]), [("x-hop".to_owned(), b"1".to_vec())]);
    }

    #[test]
    fn values_that_a_layer_has_marked_are_left_out() {
        let mut marked = HeaderValue::from_static("1");
        marked.set_sensitive(true);
        let headers = HeaderMap::from_iter([(::http::HeaderName::from_static("x-token"), marked)]);
        assert_eq!(kept(&headers, &[]).iter().count(), 0);
    }
}
