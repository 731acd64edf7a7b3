//! Headers that are between two neighbours only, and do not go on to the host.

use hyper::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, UPGRADE};

/// A WebSocket is carried on. Anything else is not asked for: in HTTP/2 there would be requests that
/// nobody reads.
pub(crate) fn asks_for_upgrade(headers: &HeaderMap) -> bool {
    let has = |name: HeaderName, word: &str| {
        let values = headers.get_all(name).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let mut tokens = values.flat_map(|value| value.split(','));
        tokens.any(|token| token.trim().eq_ignore_ascii_case(word))
    };
    let only = headers.get_all(UPGRADE).iter().count() == 1
        && headers
            .get(UPGRADE)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    has(CONNECTION, "upgrade") && only
}

/// Removes what is between two neighbours only.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap, upgrading: bool) {
    let upgrade = headers.get(UPGRADE).cloned().filter(|_| upgrading);
    let listed: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        // Who lists these would take the sense out of a request.
        .filter(|name: &HeaderName| {
            !matches!(name.as_str(), "host" | "authorization" | "content-length")
        })
        .collect();
    let known = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "transfer-encoding",
        "proxy-authenticate",
    ];
    listed.iter().for_each(|name| drop(headers.remove(name)));
    known.iter().for_each(|name| drop(headers.remove(*name)));
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}
