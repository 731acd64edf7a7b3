//! Sockets that do not belong to the call, and ways around the filter.

use std::os::unix::net::{UnixDatagram, UnixListener};

use palyra_core::Ending;

use super::fixture::House;

#[tokio::test]
async fn unix_sockets_outside_cannot_be_reached() {
    for house in House::every().await {
        let stream = house.text("work/stream");
        let datagram = house.text("work/datagram");
        let _stream = UnixListener::bind(&stream).unwrap();
        let _datagram = UnixDatagram::bind(&datagram).unwrap();
        for path in [&stream, &datagram] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
                .unwrap();
        }
        house.holds(&["unix", "stream", &stream]).await;
        house.holds(&["unix", "datagram", &datagram]).await;

        use std::os::linux::net::SocketAddrExt;
        let name = format!("palyra-it-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        house.holds(&["unix", "stream", &format!("@{name}")]).await;
        drop(listener);
        let _datagram = UnixDatagram::bind_addr(&address).unwrap();
        house
            .holds(&["unix", "datagram", &format!("@{name}")])
            .await;
        // AF_UNIX makes a datagram socket of a raw one.
        house.holds(&["unix", "raw", &format!("@{name}")]).await;
    }
}

#[tokio::test]
async fn a_pair_cannot_be_pointed_outside() {
    for house in House::every().await {
        let path = house.text("work/datagram");
        let _socket = UnixDatagram::bind(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        house.holds(&["pair", "datagram", &path]).await;
        house.holds(&["pair", "raw", &path]).await;
        // Kinds that stay connected to each other are allowed, and cannot be pointed anywhere.
        for kind in ["stream", "packet"] {
            assert_eq!(house.attack(&["pair-works", kind]).await.ok(), "hello\n");
        }
        assert!(!house.outside(&["pair", "stream", &path]).status.success());
    }
}

#[tokio::test]
async fn other_families_are_allowed() {
    for house in House::all().await {
        assert_eq!(house.attack(&["tcp"]).await.ok(), "listening\n");
    }
}

#[tokio::test]
async fn io_uring_is_refused() {
    for house in House::every().await {
        house.holds(&["io-uring"]).await;
    }
}

#[tokio::test]
#[cfg(target_arch = "x86_64")]
async fn calls_of_other_abis_are_refused() {
    for house in House::every().await {
        // A kernel without the 32-bit table kills with SIGSEGV outside: then there is no attack.
        if house.outside(&["i386"]).status.success() {
            let ran = house.attack(&["i386"]).await;
            assert_eq!(
                ran.report.ending,
                Ending::Signalled {
                    signal: libc::SIGSYS
                }
            );
        } else {
            println!("absent: this kernel has no 32-bit calls");
        }
        // Where the kernel has no x32, outside says ENOSYS; inside, the filter answers first.
        let outside = house.outside(&["x32"]);
        let outside = String::from_utf8_lossy(&outside.stdout);
        assert!(
            outside.starts_with("pid ") || outside == "refused: ENOSYS\n",
            "{outside}"
        );
        assert_eq!(house.attack(&["x32"]).await.stdout(), "refused: EPERM\n");
    }
}
