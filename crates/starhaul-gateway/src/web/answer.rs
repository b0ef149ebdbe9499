//! What is answered to a request.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{Channel, Either, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    header::{self, HeaderValue},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::snapshots::Snapshots;
use crate::shared::Shared;

/// Pages that follow events at once; scrapes keep the other connections.
const MAX_FOLLOWERS: usize = 16;
/// Interval of the events.
const INTERVAL: Duration = Duration::from_millis(500);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const EVENTS: &str = "text/event-stream";
/// The page uses nothing but its own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'";

type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// What is served.
#[derive(Debug)]
pub(super) struct Site {
    snapshots: Arc<Snapshots>,
    followers: Arc<Semaphore>,
    is_local: bool,
}

impl Site {
    pub(super) fn new(shared: Arc<Shared>, address: SocketAddr) -> Self {
        Self {
            snapshots: Arc::new(Snapshots::new(shared)),
            followers: Arc::new(Semaphore::new(MAX_FOLLOWERS)),
            is_local: address.ip().is_loopback(),
        }
    }

    pub(super) fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let host = request.headers().get(header::HOST);
        if self.is_local && !host.is_none_or(is_this_host) {
            return refusal(
                StatusCode::FORBIDDEN,
                "this is served to this host alone; ask for it by its address",
            );
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered");
        }
        match request.uri().path() {
            "/" => file(HTML, include_str!("page.html")),
            "/page.css" => file(CSS, include_str!("page.css")),
            "/page.js" => file(SCRIPT, include_str!("page.js")),
            "/metrics" => whole(StatusCode::OK, OPEN_METRICS, self.snapshots.get().metrics()),
            "/events" => self.events(),
            _ => refusal(
                StatusCode::NOT_FOUND,
                "there are / (a page), /metrics and /events",
            ),
        }
    }

    fn events(&self) -> Response<Body> {
        let Ok(place) = self.followers.clone().try_acquire_owned() else {
            return refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many pages are open; close one",
            );
        };
        // One event waits at most: a slow page misses some.
        let (sender, body) = Channel::new(1);
        tokio::spawn(send_events(sender, self.snapshots.clone(), place));
        with_head(StatusCode::OK, EVENTS, Either::Right(body))
    }
}

/// Sends events until the client is gone.
async fn send_events(
    mut sender: http_body_util::channel::Sender<Bytes>,
    snapshots: Arc<Snapshots>,
    _place: OwnedSemaphorePermit,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if sender.send_data(snapshots.get().event()).await.is_err() {
            return;
        }
    }
}

/// Whether a request was meant for this host by address. A page from elsewhere whose name was made to lead here must not read the
/// status (DNS rebinding).
fn is_this_host(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else {
        return false;
    };
    host.parse::<SocketAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.split(':').next() == Some("localhost")
}

fn file(kind: &'static str, text: &'static str) -> Response<Body> {
    whole(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Body> {
    whole(status, PLAIN, format!("{text}\n").into())
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    with_head(status, kind, Either::Left(Full::new(body)))
}

fn with_head(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_that_lead_here_are_not_taken_for_this_host() {
        for (host, taken) in [
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("[::1]", true),
            ("localhost", true),
            ("localhost:9464", true),
            ("localhost.example.org", false),
            ("example.org:9464", false),
            ("127.0.0.1.example.org", false),
            ("", false),
        ] {
            assert_eq!(
                is_this_host(&HeaderValue::from_static(host)),
                taken,
                "{host}"
            );
        }
    }
}
