//! A host that speaks TLS, with a certificate of an authority that the tests make, and clients of it.

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Answers each request with what it got, as a host does that echoes.
pub(crate) struct SecureHost {
    pub(crate) port: u16,
    /// The authority that vouches for it.
    pub(crate) pem: String,
    pub(crate) got: Arc<Mutex<Vec<u8>>>,
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Makes an answer of a request, head and body.
type Answers = Arc<dyn Fn(&[u8]) -> Vec<u8> + Send + Sync>;

impl SecureHost {
    /// One that echoes.
    pub(crate) async fn named(name: &str) -> Self {
        let echo = |request: &[u8]| {
            let words = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                request.len()
            );
            [words.as_bytes(), request].concat()
        };
        Self::answering(name, Arc::new(echo)).await
    }

    pub(crate) async fn answering(name: &str, answers: Answers) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&leaf_key, &issuer).unwrap();
        let key = PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let got = Arc::<Mutex<Vec<u8>>>::default();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let host = Self {
            port,
            pem,
            got: Arc::clone(&got),
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, got) = (acceptor.clone(), Arc::clone(&got));
                let answers = Arc::clone(&answers);
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, &got, &answers).await;
                    }
                });
            }
        });
        host
    }

    pub(crate) fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock().unwrap()).into_owned()
    }
}

async fn serve(
    mut stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    got: &Mutex<Vec<u8>>,
    answers: &Answers,
) {
    let mut bytes = vec![0; 64 * 1024];
    let mut head: Vec<u8> = Vec::new();
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        got.lock().unwrap().extend(&bytes[..count]);
        head.extend(&bytes[..count]);
        let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&head).to_lowercase();
        let length = text.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
        if head.len() < end + 4 + length.unwrap_or(0) {
            continue;
        }
        let answer = answers(&head);
        if stream.write_all(&answer).await.is_err() {
            return;
        }
        head.clear();
    }
}

/// A client that trusts an authority and asks for a name; without one it sends none.
pub(crate) fn trusting(pem: &str, send_name: bool) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.enable_sni = send_name;
    TlsConnector::from(Arc::new(config))
}

pub(crate) fn server_name(name: &str) -> ServerName<'static> {
    ServerName::try_from(name.to_owned()).unwrap()
}

/// Sends a text and reads until the answer's body is there.
pub(crate) async fn exchange<S>(stream: &mut TlsStream<S>, text: &str) -> String
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer: Vec<u8> = Vec::new();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let small = head.to_lowercase();
            let length = small.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut bytes).await {
            Ok(count @ 1..) => answer.extend(&bytes[..count]),
            Ok(0) | Err(_) => return text,
        }
    }
}
