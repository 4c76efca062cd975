use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use if_addrs::get_if_addrs;

/// Returns the addresses at which other machines can dial this one, the likeliest first.
pub fn dialable(notified: SocketAddr) -> Vec<SocketAddr> {
    match notified.ip() {
        every if every.is_unspecified() => {
            addresses(every).into_iter().map(|ip| SocketAddr::new(ip, notified.port())).collect()
        }
        _ => vec![notified],
    }
}

/// Returns whether an interface has the address. Binding it would prove nothing: with `ip_nonlocal_bind` any address
/// can be bound.
pub fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || get_if_addrs().into_iter().flatten().any(|interface| interface.ip() == ip)
}

/// Returns the addresses of this machine. Loopback is included only if there is no other address.
fn addresses(every: IpAddr) -> Vec<IpAddr> {
    let all = get_if_addrs().into_iter().flatten();
    in_order(all.map(|interface| interface.ip()).collect(), outward(every), every)
}

fn in_order(all: Vec<IpAddr>, outward: Option<IpAddr>, every: IpAddr) -> Vec<IpAddr> {
    // A link-local address needs an interface, which differs between machines. The socket listens for one family only.
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let fits = |ip: &IpAddr| every.is_ipv6() == ip.is_ipv6();
    let mut found: Vec<IpAddr> = Vec::new();
    for ip in outward.into_iter().chain(all) {
        if fits(&ip) && !ip.is_loopback() && !is_local(&ip) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    if found.is_empty() {
        found.push(if every.is_ipv6() { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() });
    }
    found
}

/// Asks the routing table for the source address of outgoing traffic. Nothing is sent.
fn outward(every: IpAddr) -> Option<IpAddr> {
    let destination: IpAddr = match every {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let socket = UdpSocket::bind((every, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    socket.local_addr().ok().as_ref().map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialable_addresses_exclude_local_ones() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = ["127.0.0.1", "172.17.0.1", "10.0.0.7", "::1", "fe80::1", "2001:db8::7"].map(ip).to_vec();
        let (v4, v6) = (ip("0.0.0.0"), ip("::"));
        for (outward, every, expected) in [
            (Some("10.0.0.7"), v4, vec!["10.0.0.7", "172.17.0.1"]),
            (None, v4, vec!["172.17.0.1", "10.0.0.7"]),
            (Some("2001:db8::7"), v6, vec!["2001:db8::7"]),
        ] {
            let notified = in_order(all.clone(), outward.map(ip), every);
            assert_eq!(notified, expected.into_iter().map(ip).collect::<Vec<_>>(), "{outward:?} {every}");
        }
        assert_eq!(in_order(vec![ip("127.0.0.1")], None, v4), [ip("127.0.0.1")]);
        assert_eq!(in_order(Vec::new(), Some(ip("::1")), v6), [ip("::1")]);
    }

    #[test]
    fn unspecified_address_is_replaced_by_real_ones() {
        for every in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let notified = dialable(SocketAddr::new(every, 7400));
            let good = |address: &SocketAddr| !address.ip().is_unspecified() && address.port() == 7400;
            assert!(!notified.is_empty() && notified.iter().all(good), "{every}: {notified:?}");
        }
    }
}
