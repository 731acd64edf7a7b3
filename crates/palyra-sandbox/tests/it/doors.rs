//! The doors of a call's network: what comes out of them, and that nothing else does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use palyra_core::{EgressEnforcementMode, EgressRule, ProcessPlan};
use palyra_sandbox::{Doors, LaidFile, Outlet};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::fixture::{House, Ran, execute, identified, is_root};

async fn houses() -> Vec<House> {
    let mut all = vec![House::caged().await];
    if is_root() {
        all.push(House::caged_by_root().await);
    }
    all
}

/// A plan that may reach these hosts.
fn with_hosts(mut plan: ProcessPlan, hosts: &[&str]) -> ProcessPlan {
    let rules = hosts.iter().map(|host| EgressRule::named(host).unwrap());
    plan.allowed_egress_hosts = rules.flatten().collect();
    plan
}

/// Runs it; whoever serves its doors does so on a thread of its own, which ends with them.
async fn run(
    house: &House,
    plan: ProcessPlan,
    files: Vec<LaidFile>,
    serve: impl FnOnce(Doors) + Send + 'static,
) -> Ran {
    let (taker, mut doors) = mpsc::channel(1);
    let serving = tokio::spawn(async move {
        let doors = doors.recv().await;
        tokio::task::spawn_blocking(move || doors.map(serve)).await
    });
    let outlet = Outlet {
        doors: taker,
        files,
        env: vec![("STANDS_FOR".to_owned(), "a secret".to_owned())],
    };
    let runner = house
        .sandbox
        .processes(None, None, CancellationToken::new())
        .with_outlet(Some(outlet));
    let (report, output) = execute(&runner, identified(plan)).await;
    drop(runner);
    serving.await.unwrap().unwrap();
    Ran { report, output }
}

/// Says hello to one connection, and which address it was for.
fn greet(listener: TcpListener) {
    listener.set_nonblocking(false).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(false).unwrap();
    let dialled = stream.local_addr().unwrap();
    writeln!(stream, "hello at {dialled}").unwrap();
}

fn bash(house: &House, script: &str) -> ProcessPlan {
    house.plan(&["/bin/bash", "-c", script])
}

#[tokio::test]
async fn whatever_is_dialled_at_a_port_of_a_rule_comes_to_the_daemon() {
    for house in houses().await {
        let script = "cat </dev/tcp/127.66.0.7/443; cat </dev/tcp/127.66.0.1/3128";
        let plan = with_hosts(bash(&house, script), &["example.com"]);
        let ran = run(&house, plan, Vec::new(), |doors| {
            let ports: Vec<u16> = doors.forwards.iter().map(|(port, _)| *port).collect();
            assert_eq!(ports, [80, 443]);
            let (_, https) = doors.forwards.into_iter().nth(1).unwrap();
            greet(https.into());
            greet(doors.proxy.into());
        });
        let ran = ran.await;
        assert_eq!(
            ran.ok(),
            "hello at 127.66.0.7:443\nhello at 127.66.0.1:3128\n"
        );
        let seen = ran.layer("egress").unwrap();
        assert!(seen.starts_with("strict: names, a proxy and port 80, 443"));
        assert!(ran.layer("network").unwrap().starts_with("isolated"));
    }
}

/// What the C library asks for a name, and takes for an answer.
#[tokio::test]
async fn names_are_asked_of_the_daemon() {
    for house in houses().await {
        let script = "getent hosts name.example; getent hosts localhost; cat /etc/resolv.conf";
        let plan = with_hosts(bash(&house, script), &["name.example:8080"]);
        let ran = run(&house, plan, Vec::new(), |doors| {
            let socket = UdpSocket::from(doors.dns_udp);
            socket.set_nonblocking(false).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let mut buffer = [0; 512];
            // The first question is for IPv6 or IPv4, whichever: `getent hosts` tries one, then
            // the other.
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = &buffer[..length];
                let is_v4 = question[length - 3] == 1;
                let mut answer = question.to_vec();
                answer[2] = 0x81;
                answer[3] = 0x80;
                if is_v4 {
                    answer[7] = 1;
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 127, 66, 0, 9]);
                }
                socket.send_to(&answer, from).unwrap();
                if is_v4 {
                    return;
                }
            }
        });
        let ran = ran.await;
        let said = ran.ok();
        assert!(said.contains("127.66.0.9"), "{said}");
        assert!(said.contains("127.0.0.1"), "{said}");
        assert!(said.contains("nameserver 127.66.0.1"), "{said}");
    }
}

/// Other ports are nobody's, and other addresses are nowhere.
#[tokio::test]
async fn there_is_no_other_way_out() {
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = datagrams.local_addr().unwrap().port();
    let script = format!(
        "for to in tcp/127.0.0.1/{port} tcp/::1/{port} tcp/192.0.2.1/443 udp/192.0.2.1/53 \
         udp/8.8.8.8/443 tcp/169.254.169.254/80 tcp/10.0.0.1/443 tcp/2001:db8::1/443 \
         udp/2001:db8::1/53 tcp/127.66.0.7/81; do \
         (echo x >/dev/$to) 2>/dev/null && echo through $to; done; \
         echo x >/dev/udp/127.0.0.1/{udp_port}; echo done"
    );
    for house in houses().await {
        let plan = with_hosts(bash(&house, &script), &["example.com"]);
        let ran = run(&house, plan.clone(), Vec::new(), drop).await;
        assert_eq!(ran.ok(), "done\n");
        // The control: with the machine's network the listener on the host is reached.
        let mut control = plan;
        control.egress = EgressEnforcementMode::None;
        let ran = run(&house, control, Vec::new(), drop).await;
        let reached = format!("through tcp/127.0.0.1/{port}");
        assert!(ran.ok().contains(&reached), "{}", ran.stdout());
    }
    datagrams
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut came = 0;
    while datagrams.recv(&mut [0; 8]).is_ok() {
        came += 1;
    }
    // From the controls alone.
    assert_eq!(came, houses().await.len());
}

/// Raw, packet, netlink and vsock sockets would go around the doors.
#[tokio::test]
async fn no_socket_goes_around_them() {
    let script = "import socket, sys\n\
        for family, kind in [(17, 3), (2, 3), (10, 3), (16, 3), (40, 1), (1, 1)]:\n\
        \x20   try:\n\
        \x20       socket.socket(family, kind); print('made', family, kind)\n\
        \x20   except OSError as error:\n\
        \x20       assert error.errno == 1, (family, kind, error)\n\
        print('none')";
    for house in houses().await {
        let plan = house.plan(&["/usr/bin/python3", "-c", script]);
        let plan = with_hosts(plan, &["example.com"]);
        assert_eq!(run(&house, plan, Vec::new(), drop).await.ok(), "none\n");
    }
}

/// Two calls with doors at once: what one dials never comes to the other's.
#[tokio::test]
async fn a_call_cannot_use_anothers_doors() {
    let house = House::caged().await;
    let plan = |name: &str| {
        let script = format!("cat </dev/tcp/127.66.0.7/443; sleep 0.3; echo {name}");
        with_hosts(bash(&house, &script), &["example.com:443"])
    };
    let serve = |name: &'static str| {
        move |doors: Doors| {
            let (_, door) = doors.forwards.into_iter().next().unwrap();
            let listener = TcpListener::from(door);
            listener.set_nonblocking(false).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            write!(stream, "for {name} ").unwrap();
            drop(stream);
            // Nobody else comes.
            listener.set_nonblocking(true).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            assert!(listener.accept().is_err());
        }
    };
    let (one, other) = tokio::join!(
        run(&house, plan("one"), Vec::new(), serve("one")),
        run(&house, plan("other"), Vec::new(), serve("other")),
    );
    assert_eq!(one.ok(), "for one one\n");
    assert_eq!(other.ok(), "for other other\n");
}

/// When the call is over its doors lead nowhere: the network is gone but for them.
#[tokio::test]
async fn nobody_comes_through_a_door_after_the_call() {
    let house = House::caged().await;
    let plan = with_hosts(bash(&house, "true"), &["example.com:443"]);
    let (kept, doors) = std::sync::mpsc::channel();
    run(&house, plan, Vec::new(), move |doors| {
        kept.send(doors).unwrap();
    })
    .await
    .ok();
    let doors = doors.recv().unwrap();
    let (_, door) = doors.forwards.into_iter().next().unwrap();
    assert!(TcpListener::from(door).accept().is_err());
    // And they are in no network of the machine's.
    assert!(TcpStream::connect("127.66.0.1:3128").is_err());
}

/// A host at the port of the proxy, or of names: the narrower door keeps its connections.
#[tokio::test]
async fn a_host_may_have_the_ports_of_our_own_doors() {
    let house = House::caged().await;
    let script = "cat </dev/tcp/127.66.0.1/3128; cat </dev/tcp/127.66.0.5/3128; \
                  cat </dev/tcp/127.66.0.5/53";
    let plan = with_hosts(
        bash(&house, script),
        &["proxy.example:3128", "dns.example:53"],
    );
    let ran = run(&house, plan, Vec::new(), |doors| {
        greet(doors.proxy.into());
        let mut forwards = doors.forwards.into_iter();
        let (names, proxy) = (forwards.next().unwrap(), forwards.next().unwrap());
        assert_eq!((names.0, proxy.0), (53, 3128));
        greet(proxy.1.into());
        greet(names.1.into());
    })
    .await;
    let expected = "hello at 127.66.0.1:3128\nhello at 127.66.0.5:3128\nhello at 127.66.0.5:53\n";
    assert_eq!(ran.ok(), expected);
}

#[tokio::test]
async fn a_file_of_ours_is_laid_into_the_cage_and_cannot_be_changed() {
    for house in houses().await {
        let script = "echo $STANDS_FOR; cat /run/palyra/ca.pem; echo x 2>/dev/null >/run/palyra/ca.pem || echo no; \
                      rm -f /run/palyra/ca.pem 2>/dev/null || echo no";
        let plan = with_hosts(bash(&house, script), &["example.com"]);
        let files = vec![LaidFile {
            at: "/run/palyra/ca.pem".into(),
            text: "trusted\n".into(),
        }];
        let ran = run(&house, plan, files, drop).await;
        assert_eq!(ran.ok(), "a secret\ntrusted\nno\nno\n");
    }
}

/// Nobody takes them: then nobody is reached, and the call runs all the same.
#[tokio::test]
async fn doors_that_nobody_takes_are_closed() {
    let house = House::caged().await;
    let script = "cat </dev/tcp/127.66.0.7/443 || echo refused";
    let plan = with_hosts(bash(&house, script), &["example.com:443"]);
    let ran = house.run_plan(plan).await;
    assert_eq!(ran.ok(), "refused\n");
    // Refused, or let go again if it came before they were closed.
    let told = ran.stderr();
    assert!(told.contains("refused") || told.contains("reset"), "{told}");
}

#[tokio::test]
async fn without_hosts_nothing_is_there() {
    let house = House::caged().await;
    let script = "cat </dev/tcp/127.66.0.1/3128 || echo refused";
    let plan = bash(&house, script);
    let ran = run(&house, plan, Vec::new(), |_| panic!("there are doors")).await;
    assert_eq!(ran.ok(), "refused\n");
    assert_eq!(ran.layer("egress"), None);
}

/// What cannot be held is not run.
#[tokio::test]
async fn tier_b_and_bubblewrap_refuse_named_hosts() {
    let house = House::new().await;
    let mut plan = with_hosts(house.plan(&["/bin/true"]), &["example.com"]);
    plan.egress = EgressEnforcementMode::Strict;
    let ran = house.run_plan(plan.clone()).await;
    let (kind, message) = ran.failed();
    assert_eq!(kind, "egress_denied");
    assert!(message.contains("Tier-B") && message.contains("--egress preflight"));
    // The control: looked at before, and not held.
    plan.egress = EgressEnforcementMode::Preflight;
    let ran = house.run_plan(plan).await;
    ran.ok();
    let seen = ran.layer("egress").unwrap();
    assert!(seen.contains("not enforced at run time"), "{seen}");

    if !std::path::Path::new("/usr/bin/bwrap").exists() {
        assert!(std::env::var_os("CI").is_none(), "install `bubblewrap`");
        return;
    }
    let house = House::wrapped().await;
    let plan = with_hosts(house.plan(&["/bin/true"]), &["example.com"]);
    let ran = house.run_plan(plan).await;
    let (kind, message) = ran.failed();
    assert_eq!(kind, "egress_denied");
    assert!(message.contains("palyra doctor"), "{message}");
}

/// A program that reads and writes through a door, both ways, with much in flight.
#[tokio::test]
async fn much_goes_through_a_door() {
    let house = House::caged().await;
    let script = "exec 3<>/dev/tcp/127.66.0.7/443; head -c 3000000 /dev/zero >&3 & \
                  head -c 3000000 <&3 | wc -c; wait";
    let plan = with_hosts(bash(&house, script), &["example.com:443"]);
    let ran = run(&house, plan, Vec::new(), |doors| {
        let (_, door) = doors.forwards.into_iter().next().unwrap();
        let listener = TcpListener::from(door);
        listener.set_nonblocking(false).unwrap();
        let (mut from, _) = listener.accept().unwrap();
        from.set_nonblocking(false).unwrap();
        let mut to = from.try_clone().unwrap();
        let mut buffer = vec![0; 65_536];
        let mut left = 3_000_000;
        while left > 0 {
            let length = from.read(&mut buffer).unwrap();
            to.write_all(&buffer[..length]).unwrap();
            left -= length;
        }
    })
    .await;
    assert_eq!(ran.ok().trim(), "3000000");
}
