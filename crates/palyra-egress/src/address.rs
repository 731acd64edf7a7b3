//! Which addresses are of the internet, and which lie inside: this machine, its networks, and every
//! other way to write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is inside about an address; `None` when it is one of the internet.
pub(crate) fn inside(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => inside_v4(address),
        IpAddr::V6(address) => inside_v6(address),
    }
}

/// Whether an address is not one of the internet: private, loopback, link-local, metadata, or any of
/// their disguises.
#[must_use]
pub fn lies_inside(address: IpAddr) -> bool {
    inside(address).is_some()
}

/// What no name may lead to, not even one that may lie inside: whoever answers for the name would
/// reach the machine's credentials, or everybody at once. A rule has to give the address itself.
pub(crate) fn never_by_name(address: IpAddr) -> Option<&'static str> {
    let matter = inside(address)?;
    let harmless = [
        "loopback",
        "private",
        "shared by a carrier",
        "for documentation",
        "for benchmarks",
    ];
    let disguised = match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(wide) => !wide.is_loopback() && !wide.is_unique_local(),
    };
    (disguised || !harmless.contains(&matter)).then_some(matter)
}

fn inside_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("unspecified"),
        (127, ..) => Some("loopback"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("private"),
        // Where clouds tell a machine its credentials; one of them is outside of the block.
        (169, 254, _) => Some("link-local or metadata"),
        (168, 63, 129) if address.octets() == [168, 63, 129, 16] => Some("metadata"),
        (100, 64..=127, _) => Some("shared by a carrier"),
        (192, 0, 0) | (192, 88, 99) => Some("reserved for protocols"),
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Some("for documentation"),
        (198, 18..=19, _) => Some("for benchmarks"),
        (224..=239, ..) => Some("multicast"),
        (240..=255, ..) => Some("reserved or broadcast"),
        _ => None,
    }
}

/// Only what is given out globally, without what wraps an IPv4 address: who would dial a wrapped one
/// could mean any. NAT64 is the exception, because in networks of IPv6 alone the resolver gives
/// nothing else; there the wrapped address is judged.
fn inside_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    match (a, b) {
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => {
            let [[w, x], [y, z]] = [high.to_be_bytes(), low.to_be_bytes()];
            inside_v4(Ipv4Addr::new(w, x, y, z))
        }
        _ if address.is_unspecified() => Some("unspecified"),
        _ if address.is_loopback() => Some("loopback"),
        _ if address.to_ipv4().is_some() => Some("an IPv4 address in disguise"),
        (0xfc00..=0xfdff, _) => Some("private"),
        (0xfe80..=0xfeff, _) => Some("link-local"),
        (0xff00..=0xffff, _) => Some("multicast"),
        (0x2002, _) => Some("6to4, an IPv4 address in disguise"),
        (0x2001, 0) => Some("Teredo, an IPv4 address in disguise"),
        (0x2001, 1..=0x1ff) => Some("reserved for protocols"),
        (0x2001, 0xdb8) | (0x3fff, 0..=0xfff) => Some("for documentation"),
        (0x2000..=0x3fff, _) => None,
        _ => Some("not of the internet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_inside_leads_to_neighbours_and_never_to_credentials() {
        let never = |text: &str| never_by_name(text.parse().unwrap()).is_some();
        for fine in [
            "127.0.0.1",
            "10.1.2.3",
            "::1",
            "fd00::1",
            "100.64.1.1",
            "1.1.1.1",
        ] {
            assert!(!never(fine), "{fine}");
        }
        for wrong in [
            "169.254.169.254",
            "168.63.129.16",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "fe80::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::",
        ] {
            assert!(never(wrong), "{wrong}");
        }
    }

    #[test]
    fn every_way_inside_is_known_and_the_internet_is_not_inside() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.66.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            let parsed: IpAddr = address.parse().unwrap();
            assert!(inside(parsed).is_some(), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "168.63.129.17",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "2001:4860:4860::8888",
            "64:ff9b::8.8.8.8",
        ] {
            let parsed: IpAddr = address.parse().unwrap();
            assert_eq!(inside(parsed), None, "{address}");
        }
    }
}
