//! Which requests are answered.

use std::net::{IpAddr, SocketAddr};

use hyper::{
    Method, Request, StatusCode,
    header::{self, HeaderValue},
};

use crate::{Answer, Site};

/// Answers a request for this host, if it only reads; `is_local` if no other host is served.
pub(crate) fn answer<B>(site: &impl Site, is_local: bool, request: &Request<B>) -> Answer {
    let host = request.headers().get(header::HOST);
    if is_local && !host.is_none_or(is_this_host) {
        return Answer::refusal(
            StatusCode::FORBIDDEN,
            "this is served to this host alone; ask for it by its address",
        );
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Answer::refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered");
    }
    let answer = site.answer(request.uri().path());
    answer.unwrap_or_else(|| Answer::refusal(StatusCode::NOT_FOUND, site.places()))
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
