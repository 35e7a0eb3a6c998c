//! Classification of IP addresses as public or not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns whether an address belongs to the public Internet.
/// Addresses of this machine or its network are not public. The same holds for addresses that are
/// translated to one of these. Metadata addresses of cloud providers are not public either.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Networks that are not public: the first address and the prefix length.
const CLOSED_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),            // this host
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carrier-grade NAT; cloud metadata
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // cloud services at an address that looks public
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local; clouds' metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays to IPv6
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved; broadcast
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within =
        |network: Ipv4Addr, bits: u32| (address.to_bits() ^ network.to_bits()) >> (32 - bits) == 0;
    !CLOSED_V4.iter().any(|(network, bits)| within(*network, *bits))
}

/// In IPv6, only global unicast is public. This excludes loopback, private, link-local and
/// multicast addresses. It also excludes addresses that hold an IPv4 address (mapped, compatible,
/// NAT64). This list has the networks inside global unicast that are not public.
const CLOSED_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments; Teredo, which holds an IPv4 address
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which holds an IPv4 address
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within =
        |network: Ipv6Addr, bits: u32| (address.to_bits() ^ network.to_bits()) >> (128 - bits) == 0;
    let global = within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    global && !CLOSED_V6.iter().any(|(network, bits)| within(*network, *bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(address: &str, expected: bool) {
        assert_eq!(is_public(address.parse().unwrap()), expected, "{address}");
    }

    #[test]
    fn public_addresses() {
        for address in
            ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1"]
        {
            check(address, true);
        }
        for address in [
            "169.253.0.1",
            "192.167.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::8a",
        ] {
            check(address, true);
        }
    }

    #[test]
    fn addresses_that_are_not() {
        let v4 = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
        ];
        let more = [
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.0.1",
        ];
        let special = [
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "192.88.99.1",
        ];
        let v6 =
            ["::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1"];
        let v6_more = [
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "ff02::1",
        ];
        let metadata = ["fd00:ec2::254", "fd20:ce::254", "2001:db8::1", "100::1", "5f00::1"];
        for list in [&v4[..], &more, &special, &v6, &v6_more, &metadata] {
            for address in list {
                check(address, false);
            }
        }
    }

    proptest! {
        #[test]
        fn no_dress_makes_a_private_address_public(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert!(!is_public(address.to_ipv6_mapped().into()));
            prop_assert!(!is_public(address.to_ipv6_compatible().into()));
            prop_assert!(!is_public(Ipv6Addr::from_bits(0x2002_u128 << 112 | u128::from(bits) << 80).into()));
            prop_assert!(!is_public(Ipv6Addr::from_bits(0x0064_ff9b_u128 << 96 | u128::from(bits)).into()));
            let standard = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_unspecified() || address.is_documentation();
            prop_assert!(!standard || !is_public(address.into()), "{address}");
        }
    }
}
