//! The loopback addresses that stand for names inside a call. A client looks a name up, dials what it
//! got, and the address that it dialled says which name it meant.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use palyra_core::{EgressHost, EgressRule};

/// More names than this below wildcards are refused: a call that makes up names would fill memory.
const MOST_NAMES: usize = 4_096;

/// The names of one call, each with its address.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_name: HashMap<EgressHost, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, EgressHost>,
}

/// The addresses that names of rules have inside, in the order of the rules: the same that the
/// resolver answers with. For a hosts file.
#[must_use]
pub fn synthetic_addresses(rules: &[EgressRule]) -> Vec<(EgressHost, Ipv4Addr)> {
    let mut known: Vec<(EgressHost, Ipv4Addr)> = Vec::new();
    for host in rules.iter().filter_map(|rule| rule.host.exact()) {
        let fresh = !stands_for_itself(host) && known.iter().all(|(other, _)| other != host);
        if fresh && let Some(address) = nth(known.len()) {
            known.push((host.clone(), address));
        }
    }
    known
}

/// An address is dialled as it is, and `localhost` is where it always is.
fn stands_for_itself(host: &EgressHost) -> bool {
    host.is_address() || host.as_str() == "localhost"
}

/// 127.66.1.1 and on, without the ends of each block, which some clients take for networks.
fn nth(place: usize) -> Option<Ipv4Addr> {
    let block = u8::try_from(1 + place / 254).ok()?;
    let last = u8::try_from(1 + place % 254).ok()?;
    Some(Ipv4Addr::new(127, 66, block, last))
}

impl Names {
    /// Knows the names that rules spell out.
    pub(crate) fn of(rules: &[EgressRule]) -> Self {
        let names = Self::default();
        for (host, address) in synthetic_addresses(rules) {
            names.with(|table| table.add(host, address));
        }
        names
    }

    fn with<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The address of a name that is allowed, a new one when it has none; `None` when there are too
    /// many.
    pub(crate) fn address_of(&self, name: &EgressHost) -> Option<Ipv4Addr> {
        if name.as_str() == "localhost" {
            return Some(Ipv4Addr::LOCALHOST);
        }
        self.with(|table| {
            if let Some(address) = table.by_name.get(name) {
                return Some(*address);
            }
            let place = Some(table.by_name.len()).filter(|count| *count < MOST_NAMES)?;
            let address = nth(place)?;
            table.add(name.clone(), address);
            Some(address)
        })
    }

    /// The name that an address stands for.
    pub(crate) fn name_at(&self, address: Ipv4Addr) -> Option<EgressHost> {
        self.with(|table| table.by_address.get(&address).cloned())
    }

    /// What a client meant: the name, when it gave the address that stands for it.
    pub(crate) fn meant(&self, host: EgressHost) -> EgressHost {
        let address = host.as_str().parse().ok();
        address.and_then(|it| self.name_at(it)).unwrap_or(host)
    }
}

impl Table {
    fn add(&mut self, name: EgressHost, address: Ipv4Addr) {
        self.by_address.insert(address, name.clone());
        self.by_name.insert(name, address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_address_each_and_there_is_an_end_to_them() {
        let rules = ["b.example:1", "a.example:1", "b.example:2", "10.0.0.1:1"];
        let rules: Vec<EgressRule> = rules
            .iter()
            .flat_map(|text| EgressRule::named(text).unwrap())
            .collect();
        let names = Names::of(&rules);
        let address = |name: &str| names.address_of(&name.parse().unwrap());
        assert_eq!(address("b.example"), Some(Ipv4Addr::new(127, 66, 1, 1)));
        assert_eq!(address("a.example"), Some(Ipv4Addr::new(127, 66, 1, 2)));
        assert_eq!(address("localhost"), Some(Ipv4Addr::LOCALHOST));
        let meant = names.meant("127.66.1.2".parse().unwrap());
        assert_eq!(meant.as_str(), "a.example");
        assert_eq!(
            names.meant("127.66.9.9".parse().unwrap()).as_str(),
            "127.66.9.9"
        );
        let given = (0..2 * MOST_NAMES).filter(|count| address(&format!("x{count}.c")).is_some());
        assert_eq!(given.count(), MOST_NAMES - 2);
        assert!(address("a.example").is_some());
    }
}
