//! Answers, with what browsers may do with them.

use bytes::Bytes;
use http_body_util::{Channel, Either, Full, channel::Sender};
use hyper::{
    Response, StatusCode,
    header::{self, HeaderValue},
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const EVENTS: &str = "text/event-stream";
/// A page uses nothing but its own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'";

pub(crate) type Body = Either<Full<Bytes>, Channel<Bytes>>;

/// An answer to an HTTP request.
#[derive(Debug)]
pub struct Answer(Response<Body>);

/// Sends events to the client of an answer.
#[derive(Debug)]
pub struct Events(Sender<Bytes>);

/// The client of an answer is gone.
#[derive(Clone, Copy, Debug)]
pub struct Gone;

impl Answer {
    /// A part of the program, with its type.
    pub fn file(kind: &'static str, text: &'static str) -> Self {
        whole(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
    }

    /// An answer with status 200 and OpenMetrics text.
    pub fn metrics(text: Bytes) -> Self {
        whole(StatusCode::OK, OPEN_METRICS, text)
    }

    /// Asks the client to come again.
    pub fn not_now(why: &'static str) -> Self {
        Self::refusal(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// Server-sent events until either end goes.
    pub fn events() -> (Events, Self) {
        // One event waits at most: a slow client misses some.
        let (sender, body) = Channel::new(1);
        let answer = with_head(StatusCode::OK, EVENTS, Either::Right(body));
        (Events(sender), answer)
    }

    pub(crate) fn refusal(status: StatusCode, text: &'static str) -> Self {
        whole(status, PLAIN, format!("{text}\n").into())
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        self.0
    }
}

impl Events {
    /// Sends an event, when the client has taken the one before.
    ///
    /// # Errors
    /// [`Gone`].
    pub async fn send(&mut self, event: Bytes) -> Result<(), Gone> {
        self.0.send_data(event).await.map_err(|_| Gone)
    }
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    with_head(status, kind, Either::Left(Full::new(body)))
}

fn with_head(status: StatusCode, kind: &'static str, body: Body) -> Answer {
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
    Answer(response)
}
