//! The doctor: what a start checks, and what [`Consumer::check`] tells of it beforehand. Both ask here, so that what one reports
//! as an error is what the other refuses.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::broker::{BrokerError, Capabilities, Source, Transport, Wanted};
use crate::consumer::Consumer;
use crate::finding::{Check, Finding, Severity};
use crate::options::{Options, margin};
use crate::run_error::RunError;
use crate::store::{RegistryError, SchemaError, StartError, Store};
use crate::suspect::POISON_STARTS;

impl<Db: Store, S> Consumer<Db, S> {
    /// Checks everything that a start at this broker checks, and answers with all that it finds: the handlers, the inbox, and
    /// each source, opened as a start would and given back. Nothing is registered and nothing is received. A source that an
    /// opening makes is made.
    ///
    /// An error is what [`run`](Self::run) would refuse; none of them means that it would start. What
    /// [`allow`](Self::allow) names is a warning here. The order is the same each time: handlers, inbox, sources by name.
    ///
    /// ```
    /// # extern crate inboxed_runtime as inboxed;
    /// # use inboxed::{Consumer, Severity, broker::Transport, store::Store};
    /// /// For a deployment's pipeline: whether this release would start there.
    /// async fn would_start<Db: Store>(app: &Consumer<Db>, broker: &impl Transport) -> bool {
    ///     let findings = app.check(broker).await;
    ///     for finding in &findings {
    ///         eprintln!("{}: {finding}", finding.severity);
    ///     }
    ///     findings.iter().all(|finding| finding.severity < Severity::Error)
    /// }
    /// ```
    pub async fn check<T: Transport>(&self, transport: &T) -> Vec<Finding> {
        let refusals = self.refusals().await;
        let mut findings = refusals.iter().flat_map(of_refusal).collect::<Vec<_>>();
        // Tables that aren't there know no handlers.
        if refusals.is_empty() {
            let orphans = self.orphans().await;
            findings.extend(orphans.unwrap_or_else(|error| of_refusal(&error)));
        }
        findings.extend(self.own_findings());
        for Opened { usage, source, findings: of_source } in self.open_sources(transport).await {
            match source {
                Ok(_) => findings.extend(of_source),
                Err(error) => findings.extend(of_unopened(&usage.name, &error)),
            }
        }
        findings
    }

    /// What the doctor finds without a broker: the declared horizon against the retentions.
    pub(crate) fn own_findings(&self) -> Vec<Finding> {
        let Some(horizon) = self.options.horizon else { return Vec::new() };
        let mut found = Vec::new();
        for Handled { consumer, retention, .. } in self.handled(|_| true) {
            if retention < horizon {
                found.push(Finding::error(
                    Check::Retention,
                    consumer,
                    format!(
                        "claims are kept for {retention:?}, and by `.horizon(…)` a duplicate may come {horizon:?} later"
                    ),
                    "raise the retention, or lower the horizon to what is true",
                ));
            }
        }
        self.options.judge(found)
    }

    /// Opens every source once, as a start does, and examines it.
    pub(crate) async fn open_sources<T: Transport>(&self, transport: &T) -> Vec<Opened<T::Source>> {
        let opening = self.sources().into_iter().map(|name| async {
            let usage = self.usage(name);
            let source = transport.open(&usage.name, &usage.wanted).await;
            let findings = source.as_ref().map(|source| usage.examine(source)).unwrap_or_default();
            Opened { usage, source, findings }
        });
        join_all(opening).await
    }

    fn usage(&self, name: Arc<str>) -> Usage {
        let handlers = self.handled(|source| *source == *name);
        Usage { wanted: self.wanted(&name), handlers, options: self.options.clone(), name }
    }

    /// The handlers of the sources that are picked, each once.
    fn handled(&self, picked: impl Fn(&str) -> bool) -> Vec<Handled> {
        let mut handlers: Vec<Handled> = Vec::new();
        for (_, handler) in self.handlers.iter().filter(|(route, _)| picked(&route.source)) {
            let spec = handler.spec();
            let consumer = format!("{}/{}", self.service, spec.consumer);
            if handlers.iter().all(|known| known.consumer != consumer) {
                let timeout = spec.timeout.or(self.options.timeout);
                handlers.push(Handled { consumer, timeout, retention: self.options.retention_of(&spec) });
            }
        }
        handlers
    }
}

/// A source after one attempt to open it.
pub(crate) struct Opened<S> {
    pub usage: Usage,
    pub source: Result<S, BrokerError>,
    pub findings: Vec<Finding>,
}

impl<S> Opened<S> {
    /// A source that is refused will not come back by itself.
    pub(crate) fn unless_refused(self) -> Result<Self, RunError> {
        match self.source {
            Err(error @ BrokerError::Refused(_)) => Err(RunError::Source { name: self.usage.name.to_string(), error }),
            _ => Ok(self),
        }
    }
}

/// A source as this consumer uses it, which is what the broker's settings are held against.
pub(crate) struct Usage {
    pub name: Arc<str>,
    pub wanted: Wanted,
    handlers: Vec<Handled>,
    options: Options,
}

/// A handler, as far as a broker's settings matter to it.
struct Handled {
    consumer: String,
    timeout: Option<Duration>,
    retention: Duration,
}

impl Usage {
    /// Holds an open source against how it is used; last comes what the adapter found by itself.
    pub(crate) fn examine<S: Source>(&self, source: &S) -> Vec<Finding> {
        let capabilities = source.capabilities();
        let mut found = self.lease(&capabilities);
        found.extend(self.retention(&capabilities));
        found.extend(self.delivery_limit(&capabilities));
        found.extend(source.findings());
        self.options.judge(found)
    }

    /// A body that may run on when its lease is over runs twice at once, or loses its channel with all that is on it.
    fn lease(&self, capabilities: &Capabilities) -> Vec<Finding> {
        let Some(lease) = capabilities.lease else { return Vec::new() };
        let extended = self.options.keep_leases && !capabilities.fixed_lease;
        // What is left after the body is for the commit and the acknowledgement.
        let most = lease.saturating_sub(margin(lease));
        let too_long = self.handlers.iter().filter_map(|handler| Some((handler, handler.timeout?)));
        let too_long = too_long.filter(|(_, timeout)| !extended && *timeout > most);
        let finding = |(handler, timeout): (&Handled, Duration)| {
            let found = format!(
                "a body may run for {timeout:?}, and source `{}` takes a delivery back after {lease:?} without extending it",
                self.name
            );
            let subject = handler.consumer.clone();
            if capabilities.fixed_lease {
                let cure = format!("lower the handler's timeout to {most:?}, or raise the broker's limit");
                Finding::error(Check::Lease, subject, found, cure)
            } else {
                let cure = format!("leave out `.keep_leases(false)`, or lower the handler's timeout to {most:?}");
                Finding::warning(Check::Lease, subject, found, cure)
            }
        };
        too_long.map(finding).collect()
    }

    /// A duplicate that comes when its claim is pruned would run again.
    fn retention(&self, capabilities: &Capabilities) -> Vec<Finding> {
        let Some(kept) = capabilities.retention else {
            let declared = self.options.horizon.is_some();
            let found = format!(
                "the broker keeps messages without end, and claims are kept for {:?} at the shortest",
                self.wanted.retention
            );
            let cure = "declare by `.horizon(…)` how late a duplicate may come";
            let unknown = Finding::warning(Check::Retention, &*self.name, found, cure);
            return if declared { Vec::new() } else { vec![unknown] };
        };
        let short = self.handlers.iter().filter(|handler| handler.retention < kept);
        let finding = |Handled { consumer, retention, .. }: &Handled| {
            let found = format!(
                "claims are kept for {retention:?}, and source `{}` may deliver a duplicate {kept:?} after the message",
                self.name
            );
            let cure = format!("raise the retention to {kept:?} or more, or lower what the broker keeps");
            Finding::error(Check::Retention, consumer.clone(), found, cure)
        };
        short.map(finding).collect()
    }

    /// The broker's count rises at restarts and outages too, and what reaches its limit never becomes a dead letter here.
    fn delivery_limit(&self, capabilities: &Capabilities) -> Option<Finding> {
        let limit = capabilities.delivery_limit?;
        let attempts = self.wanted.attempts;
        // Twice what a message may need here: its attempts, and the deliveries by which one that kills the process is known.
        let ample = attempts.saturating_add(self.options.suspect_after).saturating_add(POISON_STARTS).saturating_mul(2);
        let found = format!(
            "the broker gives a message up after {limit} deliveries, those of restarts and outages included, and a handler \
             has {attempts} attempts"
        );
        let cure = format!("raise the broker's limit to {ample} or more, or lower the attempts by `.retry(…)`");
        match limit {
            buries if buries <= attempts => Some(Finding::error(Check::DeliveryLimit, &*self.name, found, cure)),
            tight if tight < ample => Some(Finding::warning(Check::DeliveryLimit, &*self.name, found, cure)),
            _ => None,
        }
    }
}

impl Options {
    /// An error that is allowed is a warning.
    fn judge(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        for finding in &mut findings {
            if self.allowed.contains(&finding.check) {
                finding.severity = Severity::Warning;
            }
        }
        findings
    }
}

/// Refuses errors, all of them at once; else logs the warnings that aren't known yet.
pub(crate) fn conclude(findings: Vec<Finding>, known: &mut Vec<Finding>) -> Result<(), RunError> {
    let (errors, warnings) = findings.into_iter().partition::<Vec<_>, _>(|finding| finding.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(RunError::Findings(errors));
    }
    for warning in warnings {
        if !known.contains(&warning) {
            let Finding { check, subject, found, cure, .. } = &warning;
            tracing::warn!(%check, %subject, "{found}: {cure}");
            known.push(warning);
        }
    }
    Ok(())
}

/// What refuses a start whatever is allowed, as findings.
fn of_refusal(refusal: &RunError) -> Vec<Finding> {
    let handlers = |subject: &str| vec![told(Check::Handlers, subject, &refusal.to_string())];
    let inbox = |text: String| told(Check::Inbox, "inbox", &text);
    let unread = |text: String| {
        Finding::error(Check::Inbox, "inbox", text, "see that the inbox's database answers and lets this account in")
    };
    match refusal {
        RunError::Ambiguous { from } => handlers(from),
        RunError::SameName { consumer } => handlers(consumer),
        RunError::Start(StartError::Risks(risks)) => risks.iter().map(|risk| inbox(risk.to_string())).collect(),
        RunError::Start(StartError::Schema(SchemaError::Different(differences))) => {
            let found =
                format!("the inbox's tables differ from what `Inbox::migrate` makes: {}", differences.join("; "));
            vec![Finding::error(Check::Inbox, "inbox", found, "change them back")]
        }
        RunError::Start(StartError::Registry(
            error @ (RegistryError::KeyChanged { consumer, .. } | RegistryError::SourcesChanged { consumer, .. }),
        )) => vec![told(Check::Handlers, consumer, &error.to_string())],
        RunError::Start(
            StartError::Database(_)
            | StartError::Connect(_)
            | StartError::Schema(SchemaError::Database(_))
            | StartError::Registry(RegistryError::Database(_)),
        ) => vec![unread(refusal.to_string())],
        RunError::Start(error) => vec![inbox(error.to_string())],
        other => vec![told(Check::Handlers, "consumer", &other.to_string())],
    }
}

/// A source that a start would wait for, or refuse.
fn of_unopened(name: &str, error: &BrokerError) -> Option<Finding> {
    let found = error.to_string();
    match error {
        BrokerError::Unreachable(_) => {
            let cure = "start the broker, or check its URL; a start waits for it";
            Some(Finding::warning(Check::Source, name, found, cure))
        }
        BrokerError::Refused(_) => {
            let cure = "mend that; a queue, stream or durable that isn't there is made by `create_topology`";
            Some(Finding::error(Check::Source, name, found, cure))
        }
        BrokerError::Ended => None,
    }
}

/// A finding of an error whose text says what is wrong, then what to do.
fn told(check: Check, subject: &str, text: &str) -> Finding {
    let parts = text.rsplit_once(". ").or_else(|| text.split_once(": "));
    let (found, cure) = parts.unwrap_or((text, "see the documentation of this error"));
    Finding::error(check, subject, found, cure)
}
