//! The certificate authority of one call: it signs for the hosts whose TLS is ended here, and only
//! this call's sandbox is told to trust it. Its key is made for the call and is never written down.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use palyra_core::{EgressHost, InjectionTable, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SerialNumber,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

/// Longer than any call; a client whose clock is a little behind trusts it too.
const HOLDS: Duration = Duration::days(8);
const EARLIER: Duration = Duration::days(1);

/// Signs for the hosts of one call.
pub struct Authority {
    pem: String,
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    hosts: BTreeSet<EgressHost>,
    /// One key for all hosts: they are all this one process.
    leaf: KeyPair,
    made: Mutex<HashMap<EgressHost, Arc<ServerConfig>>>,
}

impl Authority {
    /// One for the hosts of a table; `None` when the table is empty.
    pub(crate) fn for_table(table: &InjectionTable, now: Timestamp) -> io::Result<Option<Self>> {
        if table.is_empty() {
            return Ok(None);
        }
        let audiences = table.all().iter().flat_map(|one| &one.audience);
        let hosts: BTreeSet<_> = audiences.map(|audience| audience.host.clone()).collect();
        let mut params = params(now, "Palyra, for one call")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // So that it could speak for nobody else, even if its key got out.
        params.name_constraints = (!hosts.is_empty()).then(|| NameConstraints {
            permitted_subtrees: hosts.iter().map(subtree).collect(),
            excluded_subtrees: Vec::new(),
        });
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        Ok(Some(Self {
            pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            hosts,
            leaf: KeyPair::generate().map_err(io::Error::other)?,
            made: Mutex::default(),
        }))
    }

    /// Its certificate, for the sandbox to trust.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// How TLS is ended for a host.
    pub(crate) fn server_for(
        &self,
        host: &EgressHost,
        now: Timestamp,
    ) -> io::Result<Arc<ServerConfig>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = made.get(host) {
            return Ok(Arc::clone(config));
        }
        if !self.hosts.contains(host) {
            return Err(io::Error::other("this host is in no secret's audience"));
        }
        let mut params = params(now, "Palyra, in the host's stead")?;
        let name = rcgen::string::Ia5String::try_from(host.as_str()).map_err(io::Error::other)?;
        params.subject_alt_names = vec![match host.as_str().parse() {
            Ok(address) => rcgen::SanType::IpAddress(address),
            Err(_) => rcgen::SanType::DnsName(name),
        }];
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signed = params.signed_by(&self.leaf, &self.issuer);
        let signed = signed.map_err(io::Error::other)?;
        let key = PrivatePkcs8KeyDer::from(self.leaf.serialize_der());
        let chain = vec![signed.der().clone(), self.certificate.clone()];
        let config = Arc::new(server(chain, PrivateKeyDer::Pkcs8(key)).map_err(io::Error::other)?);
        made.insert(host.clone(), Arc::clone(&config));
        Ok(config)
    }
}

fn server(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn params(now: Timestamp, name: &str) -> io::Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let seconds = now.as_millis().div_euclid(1_000);
    let now = OffsetDateTime::from_unix_timestamp(seconds).map_err(io::Error::other)?;
    params.not_before = now - EARLIER;
    params.not_after = now + HOLDS;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // Two with one number are taken for a forgery by some clients.
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(io::Error::other)?;
    if let Some(first) = serial.first_mut() {
        *first &= 0x7f;
    }
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn subtree(host: &EgressHost) -> GeneralSubtree {
    match host.as_str().parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(address.octets(), 32))
        }
        Ok(IpAddr::V6(address)) => {
            GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(address.octets(), 128))
        }
        Err(_) => GeneralSubtree::DnsName(host.as_str().to_owned()),
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Authority");
        shown.field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
