//! One signed `POST`: to this machine, or sealed by TLS. Of the answer only the status counts.
//!
//! The signature is that of the Standard Webhooks specification: `webhook-id`, `webhook-timestamp`
//! and `webhook-signature: v1,` with the HMAC-SHA256 over `id.timestamp.body` in base 64.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use palyra_core::{SecretValue, Timestamp};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::settings::{Target, Webhook};

/// Why a try did not arrive.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) why: String,
    /// Whether another try may.
    pub(super) again: bool,
}

/// For now.
fn broke(error: impl std::fmt::Display) -> Failed {
    Failed {
        why: error.to_string(),
        again: true,
    }
}

/// For good.
fn refused(why: impl Into<String>) -> Failed {
    Failed {
        why: why.into(),
        again: false,
    }
}

/// Sends it once.
pub(super) async fn send(
    to: &Webhook,
    id: &str,
    body: &Bytes,
    now: Timestamp,
    secret: &SecretValue,
) -> Result<(), Failed> {
    if !to.url.is_sealed() && !to.url.is_here() && !to.allow_plain_http {
        return Err(refused(
            "plain `http://` to another machine; use `https://`, or say `allow_plain_http = true`",
        ));
    }
    let request = request(&to.url, id, body, now, secret)?;
    match tokio::time::timeout(to.timeout.0, deliver(&to.url, request)).await {
        Ok(done) => done,
        Err(_) => Err(broke(format!("no answer within {:?}", to.timeout.0))),
    }
}

fn request(
    to: &Target,
    id: &str,
    body: &Bytes,
    now: Timestamp,
    secret: &SecretValue,
) -> Result<Request<Full<Bytes>>, Failed> {
    let at = now.as_millis().div_euclid(1_000).to_string();
    let url = to.url();
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let host = url.host_str().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Request::post(path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "palyra")
        .header("webhook-id", id)
        .header("webhook-timestamp", &at)
        .header("webhook-signature", signature(secret, id, &at, body)?)
        .body(Full::new(body.clone()))
        .map_err(|error| refused(error.to_string()))
}

/// `v1,` and the keyed digest.
fn signature(secret: &SecretValue, id: &str, at: &str, body: &[u8]) -> Result<String, Failed> {
    let key = secret.expose();
    // As receivers spell their keys; any other value is the key itself.
    let spelled = key.strip_prefix(b"whsec_");
    let decoded = spelled.and_then(|text| STANDARD.decode(text).ok());
    let key = decoded.as_deref().unwrap_or(key);
    let mut mac =
        Hmac::<sha2::Sha256>::new_from_slice(key).map_err(|_| refused("the secret cannot sign"))?;
    for part in [id.as_bytes(), b".", at.as_bytes(), b".", body] {
        mac.update(part);
    }
    let tag = STANDARD.encode(mac.finalize().into_bytes());
    Ok(format!("v1,{tag}"))
}

async fn deliver(to: &Target, request: Request<Full<Bytes>>) -> Result<(), Failed> {
    let url = to.url();
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(443);
    let stream = TcpStream::connect((bare, port)).await.map_err(broke)?;
    if !to.is_sealed() {
        let there = stream.peer_addr().map_err(broke)?.ip();
        if to.is_here() && !there.is_loopback() {
            return Err(refused("its name does not lead to this machine"));
        }
        return exchange(stream, request).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|error| refused(error.to_string()))?;
    let stream = tls()?.connect(name, stream).await.map_err(broke)?;
    exchange(stream, request).await
}

/// What this machine trusts.
fn tls() -> Result<TlsConnector, Failed> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refused("this machine trusts no certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn exchange<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(), Failed>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broke)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(broke);
    // What it says besides is nobody's answer.
    connection.abort();
    let status = answer?.status();
    let passes = status.is_server_error() || [408, 425, 429].contains(&status.as_u16());
    match status.is_success() {
        true => Ok(()),
        false => Err(Failed {
            why: format!("it answered {status}"),
            again: passes,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The specification's own example.
    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        let secret = SecretValue::new(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_vec());
        let body = br#"{"test": 2432232314}"#;
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let made = signature(&secret, id, "1614265330", body).unwrap();
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
