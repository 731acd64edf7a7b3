//! The head of an HTTP request, read strictly. Whatever two servers could read in two ways is
//! refused: this is where a request could be two.

use palyra_core::EgressHost;

use crate::refusal::{EgressCode, Refusal};

/// No honest head is larger.
pub(crate) const MOST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 128;

/// What the first line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// `CONNECT host:port`.
    Tunnel(EgressHost, u16),
    /// A whole URL.
    Whole,
    /// A path, or `*`.
    Path,
}

/// Where the head ends in some bytes: behind the first empty line; `None` when it is not all here.
///
/// # Errors
/// It is too large already.
pub(crate) fn end_of(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
    // A bare line feed ends lines for some servers: found here, refused in `check`.
    let mut line = 0;
    for (place, byte) in bytes.iter().enumerate().take(MOST_HEAD) {
        match byte {
            b'\n' if line == 0 => return Ok(Some(place + 1)),
            b'\n' => line = 0,
            b'\r' => {}
            _ => line += 1,
        }
    }
    match bytes.len() >= MOST_HEAD {
        true => {
            let why = format!("the head of a request is larger than {MOST_HEAD} bytes");
            Err(Refusal::new(EgressCode::TooLarge, why))
        }
        false => Ok(None),
    }
}

/// Reads a whole head.
///
/// # Errors
/// It is not one, or it could be more than one.
pub(crate) fn check(head: &[u8]) -> Result<Asked, Refusal> {
    lines_are_plain(head)?;
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(Refusal::malformed("the head of a request ends too early")),
        Err(httparse::Error::TooManyHeaders) => {
            let why = format!("more than {MOST_HEADERS} headers");
            return Err(Refusal::new(EgressCode::TooLarge, why));
        }
        Err(error) => return Err(Refusal::malformed(format!("not an HTTP request: {error}"))),
    }
    let (Some(method), Some(target)) = (request.method, request.path) else {
        return Err(Refusal::malformed("not an HTTP request"));
    };
    let values = |name: &str| {
        let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        let values = request.headers.iter().filter(named);
        values.map(|header| header.value).collect::<Vec<_>>()
    };
    let (hosts, lengths, codings) = (
        values("host"),
        values("content-length"),
        values("transfer-encoding"),
    );
    framing(&lengths, &codings, request.version == Some(0))?;
    if hosts.len() > 1 {
        return Err(Refusal::malformed("more than one Host"));
    }
    if method == "CONNECT" {
        if !codings.is_empty() || lengths.iter().any(|length| *length != b"0") {
            return Err(Refusal::malformed("a CONNECT with a body"));
        }
        let (host, port) = authority(target)?;
        let port = port.ok_or_else(|| Refusal::malformed("CONNECT needs host:port"))?;
        if let Some(named) = hosts.first() {
            is_for(named, &host, port)?;
        }
        return Ok(Asked::Tunnel(host, port));
    }
    match target.starts_with('/') || target == "*" {
        true => Ok(Asked::Path),
        false => Ok(Asked::Whole),
    }
}

/// Each line ends in CR LF, none is a continuation, and nothing in them controls anything.
fn lines_are_plain(head: &[u8]) -> Result<(), Refusal> {
    let Some(lines) = head.strip_suffix(b"\r\n\r\n") else {
        return Err(Refusal::malformed("a line that does not end in CR LF"));
    };
    let mut lines = lines.split(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        // The last one lost its end above.
        let bare = match lines.peek() {
            Some(_) => line.strip_suffix(b"\r"),
            None => Some(line),
        };
        let Some(bare) = bare else {
            return Err(Refusal::malformed("a line that does not end in CR LF"));
        };
        if bare
            .iter()
            .any(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f)
        {
            return Err(Refusal::malformed(
                "a control character in the head of a request",
            ));
        }
        if bare.is_empty() || bare.starts_with(b" ") || bare.starts_with(b"\t") {
            return Err(Refusal::malformed(
                "an empty or continued line in the head of a request",
            ));
        }
    }
    Ok(())
}

/// The body has one length, told in one way.
fn framing(lengths: &[&[u8]], codings: &[&[u8]], old: bool) -> Result<(), Refusal> {
    if lengths.len() + codings.len() > 1 {
        return Err(Refusal::malformed(
            "the length of the body is told more than once",
        ));
    }
    let number = |length: &&[u8]| !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    if !lengths.iter().all(number) {
        return Err(Refusal::malformed("a Content-Length that is no number"));
    }
    match codings.first() {
        Some(coding) if old || !coding.eq_ignore_ascii_case(b"chunked") => {
            Err(Refusal::malformed("a Transfer-Encoding other than chunked"))
        }
        Some(_) | None => Ok(()),
    }
}

/// `host` or `host:port`.
///
/// # Errors
/// It is something else: also with a user, which is not for a proxy to see.
pub(crate) fn authority(text: &str) -> Result<(EgressHost, Option<u16>), Refusal> {
    let wrong = || {
        let why = format!("`{}` is not a host and port", crate::refusal::shown(text));
        Refusal::new(EgressCode::NotAHost, why)
    };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        Some(_) => return Err(wrong()),
        None => (text, None),
    };
    let number = |port: &str| match port.bytes().all(|digit| digit.is_ascii_digit()) {
        true => port.parse().ok().filter(|port: &u16| *port != 0),
        false => None,
    };
    let port = match port {
        Some(port) => Some(number(port).ok_or_else(wrong)?),
        None => None,
    };
    Ok((host.parse().map_err(|_| wrong())?, port))
}

/// Whether a `Host` header names this host; a port in it has to be this one.
pub(crate) fn is_for(value: &[u8], host: &EgressHost, port: u16) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(value);
    let named = authority(&text)?;
    // The one machine that everybody calls by two names.
    let own = |host: &EgressHost| matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1");
    let same = named.0 == *host || (own(&named.0) && own(host));
    if same && named.1.is_none_or(|named| named == port) {
        return Ok(());
    }
    let why = format!(
        "a request for `{}` on a connection to `{}`",
        crate::refusal::shown(&text),
        crate::rules::at(host, port)
    );
    Err(Refusal::new(EgressCode::HostMismatch, why))
}

/// What the first bytes of a client look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// A TLS record with a handshake.
    Tls,
    /// A request line.
    Http,
    /// Something else.
    Other,
    /// It cannot be told yet.
    Unclear,
}

/// Looks at the first bytes. Empty lines before a request are skipped, as servers do.
pub(crate) fn looks(bytes: &[u8]) -> Looks {
    if let [0x16, rest @ ..] = bytes {
        return match rest {
            [] => Looks::Unclear,
            [3, ..] => Looks::Tls,
            [..] => Looks::Other,
        };
    }
    let blank = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let line = bytes.get(blank.count()..).unwrap_or_default();
    let token = |byte: &&u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    let method = line.iter().take_while(token).count();
    match line.get(method..) {
        // HTTP/2 without TLS names its hosts where they cannot be read here.
        Some([b' ', b'*', ..]) if line.starts_with(b"PRI ") => Looks::Other,
        Some([b' ', b'/' | b'*', ..]) if method > 0 => Looks::Http,
        Some([b' ', rest @ ..]) if method > 0 => whole_url(rest),
        Some([]) | None if method <= 32 && bytes.len() <= 64 => Looks::Unclear,
        Some(_) | None => Looks::Other,
    }
}

fn whole_url(rest: &[u8]) -> Looks {
    let start = rest.get(..rest.len().min(7)).unwrap_or_default();
    let prefix = b"http://".get(..start.len()).unwrap_or_default();
    match (start.eq_ignore_ascii_case(prefix), start.len()) {
        (true, 7) => Looks::Http,
        (true, _) => Looks::Unclear,
        (false, _) => Looks::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_request() {
        let fine = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n";
        assert_eq!(end_of(fine).unwrap(), Some(fine.len()));
        let host: EgressHost = "example.com".parse().unwrap();
        assert_eq!(check(fine).unwrap(), Asked::Tunnel(host, 443));
        let whole = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert_eq!(check(whole).unwrap(), Asked::Whole);
        for hostile in [
            "CONNECT example.com HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "CONNECT example.com:443 evil.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443@evil.example:443 HTTP/1.1\r\n\r\n",
            "CONNECT evil@example.com:443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:+443 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:0 HTTP/1.1\r\n\r\n",
            "CONNECT example.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
            "CONNECT example.com:443\tHTTP/1.1\r\n\r\n",
            "CONNECT example.com:443 HTTP/1.1\n\r\n",
            "CONNECT example.com:443 HTTP/1.1\r\nA: b\nHost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\nA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nA: \x01\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET /\r\n\r\n",
        ] {
            let end = end_of(hostile.as_bytes()).unwrap().unwrap();
            let head = &hostile.as_bytes()[..end];
            assert!(check(head).is_err(), "{hostile:?}");
        }
        assert!(end_of(&[b'a'; MOST_HEAD]).is_err());
    }

    #[test]
    fn first_bytes_tell_what_is_spoken() {
        for (bytes, looked) in [
            (&b"\x16\x03\x01"[..], Looks::Tls),
            (b"\x16", Looks::Unclear),
            (b"\x16\x00", Looks::Other),
            (b"GET / HTTP", Looks::Http),
            (b"\r\n\r\nGET / HTTP", Looks::Http),
            (b"get / HTTP", Looks::Http),
            (b"GET http://a/", Looks::Http),
            (b"GE", Looks::Unclear),
            (b"GET", Looks::Unclear),
            (b"GET ", Looks::Unclear),
            (b"GET ht", Looks::Unclear),
            (b"", Looks::Unclear),
            (b"SSH-2.0-x", Looks::Other),
            (b"PRI * HTTP/2.0", Looks::Other),
            (b"PING\r\n", Looks::Other),
            (b"\x00\x00\x00\x08", Looks::Other),
        ] {
            assert_eq!(looks(bytes), looked, "{bytes:?}");
        }
    }
}
