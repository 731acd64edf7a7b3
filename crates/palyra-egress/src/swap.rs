//! Putting a secret where its placeholder stands: in a request that its audience covers, in the place
//! that it says, and nowhere else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use palyra_core::{InjectionPlace, InjectionTable, SecretRef, SecretValue};
use zeroize::Zeroizing;

use crate::refusal::{EgressCode, Refusal};
use crate::rules::Allowed;
use crate::watch::{contains, misdirected};

/// Swaps what may be swapped and names it.
///
/// # Errors
/// A placeholder is left: it stands where its secret may not go. Or a secret cannot stand there.
pub(crate) fn swap(
    parts: &mut Parts,
    table: &InjectionTable,
    to: &Allowed,
    tls: bool,
    path: Option<&str>,
) -> Result<Vec<SecretRef>, Refusal> {
    let mut carried = Vec::new();
    if table.is_empty() {
        return Ok(carried);
    }
    let method = parts.method.as_str().to_owned();
    // Without TLS everybody on the way would read it.
    for one in table.all().iter().filter(|_| tls) {
        let placeholder = one.placeholder().as_str();
        let covering = one.for_request(to.host(), to.port(), &method, path.unwrap_or_default());
        for (place, value) in covering {
            let put = put(parts, place, placeholder, value).map_err(|()| unfit(&one.secret))?;
            if put && !carried.contains(&one.secret) {
                carried.push(one.secret.clone());
            }
        }
    }
    let place = match tls {
        true => "to a host, path or place of a request that is not its own",
        false => "in a request without TLS",
    };
    match left_over(parts, table, place) {
        Some(refusal) => Err(refusal),
        None => Ok(carried),
    }
}

fn unfit(secret: &SecretRef) -> Refusal {
    let why = format!("`{secret}` has characters that cannot stand where it was to be put");
    Refusal::new(EgressCode::SecretUnfit, why)
}

/// Whether it was put there.
fn put(
    parts: &mut Parts,
    place: &InjectionPlace,
    placeholder: &str,
    value: &SecretValue,
) -> Result<bool, ()> {
    match place {
        InjectionPlace::Bearer => authorization(parts, "bearer", |given| {
            let is = given == placeholder.as_bytes();
            is.then(|| Zeroizing::new([b"Bearer ".as_slice(), value.expose()].concat()))
        }),
        InjectionPlace::Basic { user } => authorization(parts, "basic", |given| {
            let decoded = STANDARD.decode(given).ok()?;
            let start = format!("{user}:");
            let is = decoded.strip_prefix(start.as_bytes()) == Some(placeholder.as_bytes());
            let whole = Zeroizing::new([start.as_bytes(), value.expose()].concat());
            is.then(|| Zeroizing::new(format!("Basic {}", STANDARD.encode(&*whole)).into_bytes()))
        }),
        InjectionPlace::Header { name } => header(parts, name, placeholder, value),
        InjectionPlace::Query { name } => query(parts, name, placeholder, value),
    }
}

/// One `Authorization` of this scheme, whose rest becomes what `made` makes of it.
fn authorization(
    parts: &mut Parts,
    scheme: &str,
    made: impl FnOnce(&[u8]) -> Option<Zeroizing<Vec<u8>>>,
) -> Result<bool, ()> {
    let mut given = parts.headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (given.next(), given.next()) else {
        return Ok(false);
    };
    let bytes = only.as_bytes();
    let Some((start, rest)) = bytes.split_at_checked(scheme.len()) else {
        return Ok(false);
    };
    if !start.eq_ignore_ascii_case(scheme.as_bytes()) || !rest.starts_with(b" ") {
        return Ok(false);
    }
    let Some(made) = made(rest.trim_ascii()) else {
        return Ok(false);
    };
    parts.headers.insert(AUTHORIZATION, sensitive(&made)?);
    Ok(true)
}

fn header(
    parts: &mut Parts,
    name: &str,
    placeholder: &str,
    value: &SecretValue,
) -> Result<bool, ()> {
    let name: HeaderName = name.parse().map_err(drop)?;
    let mut given = parts.headers.get_all(&name).iter();
    let (Some(only), None) = (given.next(), given.next()) else {
        return Ok(false);
    };
    let bytes = only.as_bytes();
    let text = placeholder.as_bytes();
    let Some(place) = bytes.windows(text.len()).position(|window| window == text) else {
        return Ok(false);
    };
    let (before, rest) = bytes.split_at_checked(place).ok_or(())?;
    let after = rest.get(text.len()..).unwrap_or_default();
    let made = Zeroizing::new([before, value.expose(), after].concat());
    let made = sensitive(&made)?;
    parts.headers.insert(name, made);
    Ok(true)
}

fn sensitive(bytes: &[u8]) -> Result<HeaderValue, ()> {
    let mut value = HeaderValue::from_bytes(bytes).map_err(drop)?;
    value.set_sensitive(true);
    Ok(value)
}

fn query(
    parts: &mut Parts,
    name: &str,
    placeholder: &str,
    value: &SecretValue,
) -> Result<bool, ()> {
    let Some(given) = parts.uri.query() else {
        return Ok(false);
    };
    let mut put = false;
    let mut made = Zeroizing::new(String::with_capacity(
        given.len() + 4 * value.expose().len(),
    ));
    for (place, pair) in given.split('&').enumerate() {
        if place > 0 {
            made.push('&');
        }
        match pair.split_once('=') {
            Some((key, given)) if key == name && given == placeholder => {
                put = true;
                made.push_str(key);
                made.push('=');
                encode(value.expose(), &mut made);
            }
            Some(_) | None => made.push_str(pair),
        }
    }
    if !put {
        return Ok(false);
    }
    let whole = Zeroizing::new(format!("{}?{}", parts.uri.path(), *made));
    let mut uri = hyper::http::uri::Parts::default();
    uri.path_and_query = Some(whole.parse::<PathAndQuery>().map_err(drop)?);
    parts.uri = hyper::Uri::from_parts(uri).map_err(drop)?;
    Ok(true)
}

fn encode(bytes: &[u8], into: &mut String) {
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(char::from(*byte));
            }
            other => into.push_str(&format!("%{other:02X}")),
        }
    }
}

/// A placeholder that is still in the head of a request, as it is or as `Authorization` writes it.
fn left_over(parts: &Parts, table: &InjectionTable, place: &str) -> Option<Refusal> {
    let url = parts.uri.to_string();
    let plain = decoded(&url);
    let look = |bytes: &[u8]| misdirected(table, bytes, place);
    let in_header = |(name, value): (&HeaderName, &HeaderValue)| {
        let packed = value.as_bytes().split(|byte| *byte == b' ').next_back();
        let unpacked = packed.and_then(|packed| STANDARD.decode(packed).ok());
        look(name.as_str().as_bytes())
            .or_else(|| look(value.as_bytes()))
            .or_else(|| unpacked.and_then(|bytes| look(&bytes)))
    };
    // A header's name is in small letters here, whatever it was.
    let small = |one: &palyra_core::Injection| {
        let text = one.placeholder().as_str().to_ascii_lowercase();
        let mut names = parts.headers.keys();
        names.any(|name| contains(name.as_str().as_bytes(), text.as_bytes()))
    };
    let named = table.all().iter().find(|one| small(one));
    look(&plain)
        .or_else(|| parts.headers.iter().find_map(in_header))
        .or_else(|| named.and_then(|one| look(one.placeholder().as_str().as_bytes())))
}

/// Without percent signs, as far as they mean something.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let value = match byte {
            b'%' => digit(ahead.next()).zip(digit(ahead.next())),
            _ => None,
        };
        match value.map(|(high, low)| u8::try_from(high * 16 + low)) {
            Some(Ok(value)) => {
                plain.push(value);
                bytes = ahead;
            }
            Some(Err(_)) | None => plain.push(byte),
        }
    }
    plain
}
