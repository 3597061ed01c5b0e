//! Which queue a source is.

use super::connection::Connection;
use super::error::RabbitMqError;
use super::options::Binding;

/// Where a service's messages of a source are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The queue that is the service's own, or the one that was named.
    pub(super) queue: String,
    /// A queue of the source's own name, which will do if the other isn't there.
    pub(super) or_queue: Option<String>,
    /// What the queue is bound to.
    pub(super) exchange: Option<Exchange>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// One by the source's name: each message goes to each service.
    OfSource(String),
    /// One that was named, and by which keys.
    Named(String, Vec<String>),
}

/// Where a source is said to be.
pub(super) fn of(source: &str, service: &str, binding: Option<&Binding>) -> Place {
    let own = || format!("{source}.{service}");
    match binding {
        None => Place {
            queue: own(),
            or_queue: Some(source.to_owned()),
            exchange: Some(Exchange::OfSource(source.to_owned())),
        },
        Some(Binding { queue, exchange, keys }) => Place {
            queue: queue.clone().unwrap_or_else(own),
            or_queue: None,
            exchange: exchange.clone().map(|exchange| {
                let keys = if keys.is_empty() { vec!["#".to_owned()] } else { keys.clone() };
                Exchange::Named(exchange, keys)
            }),
        },
    }
}

/// The queue that is there.
pub(super) async fn find(connection: &Connection, source: &str, place: &Place) -> Result<String, RabbitMqError> {
    let own = connection.queue(&place.queue).await?.is_some();
    let other = match &place.or_queue {
        Some(queue) => connection.queue(queue).await?.is_some(),
        None => false,
    };
    match (own, other, &place.or_queue) {
        (true, true, Some(queue)) => Err(RabbitMqError::Ambiguous(format!(
            "source `{source}` may be queue `{}`, which is bound to an exchange, or queue `{queue}`: say which by \
             `.source(\"{source}\", Binding::queue(…))`",
            place.queue
        ))),
        (false, true, Some(queue)) => Ok(queue.clone()),
        (true, ..) => Ok(place.queue.clone()),
        (false, ..) => Err(RabbitMqError::NoQueue(match &place.or_queue {
            Some(queue) => format!(
                "there is neither a queue `{}` nor a queue `{queue}`: call `create_topology` of the consumer, or make one \
                 by hand",
                place.queue
            ),
            None => format!(
                "there is no queue `{}`: call `create_topology` of the consumer, or make it by hand",
                place.queue
            ),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_a_queue_of_the_service_or_of_its_own_name_unless_it_is_bound() {
        let plain = of("orders", "shop", None);
        assert_eq!((&*plain.queue, plain.or_queue.as_deref()), ("orders.shop", Some("orders")));
        let named = of("orders", "shop", Some(&Binding::queue("in")));
        assert_eq!(named, Place { queue: "in".to_owned(), or_queue: None, exchange: None });
        let bound = of("orders", "shop", Some(&Binding::exchange("events")));
        let exchange = Exchange::Named("events".to_owned(), vec!["#".to_owned()]);
        assert_eq!((&*bound.queue, bound.exchange), ("orders.shop", Some(exchange)));
    }
}
