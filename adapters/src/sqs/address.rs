//! Where the service is, and who asks: `sqs://`, or `sqs://KEY:SECRET@127.0.0.1:4566`, with `?region=REGION` behind either.

use aws_sdk_sqs::config::Credentials;
use percent_encoding::percent_decode_str;

use super::error::SqsError;

/// Emulators have some region by default, and most have this.
const REGION_OF_EMULATORS: &str = "us-east-1";

/// A URL that was read, and what the environment adds to it.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// Where an emulator is; AWS's own endpoint of the region without it.
    pub(super) endpoint: Option<String>,
    pub(super) region: String,
    /// The SDK doesn't print the secret.
    pub(super) credentials: Credentials,
}

/// Reads a URL. What it doesn't say is asked for by the names of AWS's environment variables.
pub(super) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Address, SqsError> {
    // The URL may hold a secret, so no error repeats any of it.
    let rest = url.strip_prefix("sqs://").ok_or(SqsError::Url("its scheme isn't `sqs`"))?;
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, host) = place.rsplit_once('@').map_or((None, place), |(user, host)| (Some(user), host));
    let host = host.trim_end_matches('/');
    if host.contains(['/', '#', '@']) || host.chars().any(char::is_whitespace) {
        return Err(SqsError::Url("it is read as sqs://KEY:SECRET@HOST:PORT?region=REGION, without a path"));
    }
    if host.split(':').next().is_some_and(|host| host.ends_with(".amazonaws.com")) {
        return Err(SqsError::Url(
            "a host is an emulator, reached by plain http: for AWS write `sqs://?region=REGION`",
        ));
    }
    let set = |name: &str| environment(name).filter(|value| !value.is_empty());
    let region = match region(parameters)? {
        Some(region) => region,
        None => set("AWS_REGION")
            .or_else(|| set("AWS_DEFAULT_REGION"))
            .or_else(|| (!host.is_empty()).then(|| REGION_OF_EMULATORS.to_owned()))
            .ok_or(SqsError::Environment("a region: write `sqs://?region=…`, or set AWS_REGION"))?,
    };
    let credentials = match user {
        Some(user) => {
            let (key, secret) = user.split_once(':').ok_or(SqsError::Url("its key has no secret: KEY:SECRET@"))?;
            Credentials::new(decoded(key)?, decoded(secret)?, None, None, "inboxed URL")
        }
        None => Credentials::new(
            set("AWS_ACCESS_KEY_ID").ok_or(SqsError::Environment("a key: set AWS_ACCESS_KEY_ID"))?,
            set("AWS_SECRET_ACCESS_KEY").ok_or(SqsError::Environment("a secret: set AWS_SECRET_ACCESS_KEY"))?,
            set("AWS_SESSION_TOKEN"),
            None,
            "environment",
        ),
    };
    Ok(Address { endpoint: (!host.is_empty()).then(|| format!("http://{host}")), region, credentials })
}

fn region(parameters: &str) -> Result<Option<String>, SqsError> {
    let mut region = None;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let ("region", value) = parameter.split_once('=').unwrap_or((parameter, "")) else {
            return Err(SqsError::Url("of parameters it knows only `region`"));
        };
        let fits = |char: char| char.is_ascii_alphanumeric() || char == '-';
        if value.is_empty() || !value.chars().all(fits) {
            return Err(SqsError::Url("its region can't be one"));
        }
        region = Some(value.to_owned());
    }
    Ok(region)
}

fn decoded(text: &str) -> Result<String, SqsError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| SqsError::Url("its key or secret isn't UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "AWS_REGION" => "eu-central-1",
            "AWS_ACCESS_KEY_ID" => "key",
            "AWS_SECRET_ACCESS_KEY" => "s3cret",
            "AWS_SESSION_TOKEN" => "token",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn emulator_is_named_with_its_key_and_region() {
        let address = parse("sqs://k%2F1:s%2B3@127.0.0.1:4566?region=us-east-1", |_| None).unwrap();
        assert_eq!(address.endpoint.as_deref(), Some("http://127.0.0.1:4566"));
        assert_eq!(address.region, "us-east-1");
        assert_eq!((address.credentials.access_key_id(), address.credentials.secret_access_key()), ("k/1", "s+3"));
        assert_eq!(address.credentials.session_token(), None);
        assert_eq!(parse("sqs://k:s@localhost", |_| None).unwrap().region, "us-east-1");
    }

    #[test]
    fn what_the_url_does_not_say_comes_from_the_environment() {
        let address = parse("sqs://", environment).unwrap();
        assert_eq!((address.endpoint, &*address.region), (None, "eu-central-1"));
        assert_eq!((address.credentials.access_key_id(), address.credentials.session_token()), ("key", Some("token")));
        let lacking = |name: &'static str| move |asked: &str| environment(asked).filter(|_| asked != name);
        for name in ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            let refused = parse("sqs://", lacking(name)).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn refused_url_is_not_repeated() {
        let wrong = [
            "https://me:s3cret@host",
            "sqs://me:s3cret@host/000000000000/orders",
            "sqs://me:s3cret@host?regoin=x",
            "sqs://s3cret@host?region=us-east-1",
            "sqs://me:s3cret@host?region=",
            "sqs://me:%ff@host?region=us-east-1",
            "sqs://me:s3cret@sqs.eu-central-1.amazonaws.com",
        ];
        for url in wrong {
            let refused = parse(url, environment).unwrap_err().to_string();
            assert!(!refused.contains("s3cret"), "{refused}");
        }
        let debug = format!("{:?}", parse("sqs://me:s3cret@host?region=us-east-1", |_| None).unwrap());
        assert!(!debug.contains("s3cret"), "{debug}");
    }
}
