//! What calls may reach over the network: what a call asks for, what the operator lets be asked
//! for, and the names that the operator knows better than anybody outside.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::future::BoxFuture;
use palyra_core::{
    Denial, DenialCode, EgressBudget, EgressHost, EgressRule, HostPattern, ProcessPlan,
};
use palyra_egress::{HostResolver, Resolve};

/// How calls reach hosts.
#[derive(Debug, Clone, Default)]
pub struct EgressSettings {
    /// Which hosts may be asked for at all; none means whatever policy and people allow.
    pub allowed_egress_hosts: Option<Vec<EgressRule>>,
    /// The addresses of names that are not looked up.
    pub addresses: BTreeMap<EgressHost, Vec<IpAddr>>,
    /// What one call may use.
    pub budget: EgressBudget,
    /// Certificates of authorities that hosts of the operator's own are vouched for by, as PEM.
    pub trust: Option<Vec<u8>>,
}

impl EgressSettings {
    /// The rules that one request means. A host lies inside only where that was spelled out: its
    /// address or a name that is never of the internet, with its port; or where the operator's own
    /// list has it so. A public name that somebody points inside is refused when it is dialled.
    pub(crate) fn requested(&self, rules: Vec<EgressRule>) -> Vec<EgressRule> {
        let meant = |mut rule: EgressRule| {
            rule.inward = rule.inward && (self.is_listed_inward(&rule) || is_inside(&rule.host));
            rule
        };
        rules.into_iter().map(meant).collect()
    }

    fn is_listed_inward(&self, rule: &EgressRule) -> bool {
        let mut listed = self.allowed_egress_hosts.iter().flatten();
        listed.any(|known| known.inward && known.port == rule.port && known.host == rule.host)
    }

    /// Whether everything that a plan asks for may be asked for.
    pub(crate) fn check(&self, plan: &ProcessPlan) -> Result<(), Denial> {
        for rule in &plan.allowed_egress_hosts {
            if is_inside(&rule.host) && !rule.inward {
                let reason = format!(
                    "`{}` lies inside, on this machine or its network, and was named without its port",
                    rule.host
                );
                let next_step = format!("name its port: `--allow-host {}:PORT`", rule.host);
                return Err(Denial::new(DenialCode::EgressDenied, reason, next_step));
            }
            if !self.lets(rule) {
                return Err(Denial::new(
                    DenialCode::EgressDenied,
                    format!("`{rule}` is not among the hosts that calls may ask for"),
                    "add it to `allowed_hosts` under `[egress]` in `palyra.toml`, or do without it",
                ));
            }
        }
        Ok(())
    }

    fn lets(&self, rule: &EgressRule) -> bool {
        let Some(allowed) = &self.allowed_egress_hosts else {
            return true;
        };
        let host = rule.host.exact();
        host.is_some_and(|host| allowed.iter().any(|known| known.covers(host, rule.port)))
    }
}

/// Whether a host lies inside by its own spelling: an address that is not of the internet, or a name
/// that no public resolver has.
fn is_inside(host: &HostPattern) -> bool {
    let (HostPattern::Exact(name) | HostPattern::Below(name)) = host;
    match name.as_str().parse() {
        Ok(address) => palyra_egress::lies_inside(address),
        Err(_) => is_inside_name(name),
    }
}

fn is_inside_name(name: &EgressHost) -> bool {
    const SUFFIXES: [&str; 7] = [
        "localhost",
        "local",
        "internal",
        "lan",
        "localdomain",
        "home.arpa",
        "intranet",
    ];
    let alone = !name.as_str().contains('.');
    alone || name.domains().any(|domain| SUFFIXES.contains(&domain))
}

/// The operator's own addresses first, then the machine's way.
pub(crate) struct Known(pub(crate) BTreeMap<EgressHost, Vec<IpAddr>>);

impl Resolve for Known {
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        match self.0.get(name) {
            Some(addresses) => Box::pin(std::future::ready(Ok(addresses.clone()))),
            None => HostResolver.lookup(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[&str]) -> Vec<EgressRule> {
        let rules = all.iter().map(|text| EgressRule::named(text).unwrap());
        rules.flatten().collect()
    }

    #[test]
    fn only_what_is_spelled_inside_may_lie_there() {
        let settings = EgressSettings {
            allowed_egress_hosts: Some(rules(&["db.corp.example:5432", "api.example"])),
            ..EgressSettings::default()
        };
        let inward = |text: &str| settings.requested(rules(&[text]))[0].inward;
        for inside in [
            "localhost:8080",
            "10.0.0.1:80",
            "[::1]:22",
            "169.254.169.254:80",
            "nas.lan:443",
            "printer:631",
            "db.corp.example:5432",
            "2130706433:80",
        ] {
            assert!(inward(inside), "{inside}");
        }
        for not in [
            "example.com:443",
            "example.com",
            "localhost",
            "10.0.0.1",
            "db.corp.example:5433",
            "8.8.8.8:53",
        ] {
            assert!(!inward(not), "{not}");
        }
    }

    #[test]
    fn a_host_outside_the_list_or_inside_without_a_port_is_denied() {
        let open = EgressSettings::default();
        let listed = EgressSettings {
            allowed_egress_hosts: Some(rules(&["*.example.com", "localhost:8080"])),
            ..EgressSettings::default()
        };
        let asked = |settings: &EgressSettings, text: &str| {
            let allowed_egress_hosts = settings.requested(rules(&[text]));
            let checked = allowed_egress_hosts.iter().try_for_each(|rule| {
                let fine = !is_inside(&rule.host) || rule.inward;
                (fine && settings.lets(rule)).then_some(())
            });
            checked.is_some()
        };
        assert!(asked(&open, "example.com"));
        assert!(asked(&open, "localhost:1"));
        assert!(!asked(&open, "localhost"));
        assert!(!asked(&open, "192.168.1.1"));
        assert!(asked(&listed, "a.example.com"));
        assert!(asked(&listed, "localhost:8080"));
        assert!(!asked(&listed, "localhost:8081"));
        assert!(!asked(&listed, "example.com"));
        assert!(!asked(&listed, "a.example.com:22"));
    }
}
