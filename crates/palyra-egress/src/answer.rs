//! Answers that are made here: mostly a no, with its reason.

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use crate::refusal::Refusal;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = BoxBody<Bytes, Fault>;

pub(crate) fn empty() -> Body {
    Full::default().map_err(|never| match never {}).boxed()
}

const CODE_HEADER: &str = "x-palyra-egress";

fn words(refusal: &Refusal) -> String {
    format!("palyra: {}: {}\n", refusal.code, refusal.why)
}

pub(crate) fn refused_response(refusal: &Refusal) -> Response<Body> {
    let words = Full::from(words(refusal)).map_err(|never| match never {});
    let mut response = Response::new(words.boxed());
    *response.status_mut() =
        StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::FORBIDDEN);
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CODE_HEADER, HeaderValue::from_static(refusal.code.as_str()));
    response
}

/// A whole answer that says no.
pub(crate) fn answer(refusal: &Refusal) -> Vec<u8> {
    let status = StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::FORBIDDEN);
    let words = words(refusal);
    let head = format!(
        "HTTP/1.1 {} {}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n{CODE_HEADER}: {}\r\ncontent-length: {}\r\n\r\n",
        status.as_str(),
        status.canonical_reason().unwrap_or("Refused"),
        refusal.code,
        words.len()
    );
    [head, words].concat().into_bytes()
}
