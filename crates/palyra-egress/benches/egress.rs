//! What a call's network costs, beside what the machine does by itself and beside what others use.
//!
//! ```text
//! a  connect, one byte there and back, close: straight over loopback, through a door, through CONNECT
//! b  bulk: straight, through a minimal relay of two threads that splice, through a door
//! c  memory of 1,000 connections that rest
//! d  a and b through socat and tinyproxy, where they are installed
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark prints, starts what it compares with, and stops at the first thing that is not as it should be"
)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use palyra_core::{CallId, EgressHost, EgressRule, SystemClock, Timestamp};
use palyra_egress::{DOOR_ADDRESS, Doors, Egress, Resolve, Running, Terms};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};
use tokio::sync::mpsc;

const ROUNDS: usize = 3_000;
const BULK: u64 = 1 << 30;
const TURNS: usize = 5;
const IDLE: usize = 1_000;
const STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 66, 1, 1);

struct Here;

impl Resolve for Here {
    fn lookup<'a>(&'a self, _: &'a EgressHost) -> BoxFuture<'a, std::io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![Ipv4Addr::LOCALHOST.into()])))
    }
}

fn main() {
    more_files();
    let echo = echo_host();
    let source = source_host();
    let rest = resting_host();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (running, proxy) = runtime.block_on(async { network(&[echo, source, rest]) });
    let relay = splice_relay(source);
    let others = Others::start();

    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let door = |port| SocketAddr::from((STAND_IN, port));
    let straight = || TcpStream::connect(local(echo)).unwrap();
    let by_door = || TcpStream::connect(door(echo)).unwrap();
    let by_tunnel = || tunnel(proxy, &format!("host.example:{echo}"));
    let by_others = |port: u16| {
        let others = others.as_ref();
        others.map(|others| tunnel(local(others.bridge), &format!("127.0.0.1:{port}")))
    };
    let mut times: [Vec<Duration>; 4] = Default::default();
    for round in 0..ROUNDS + 200 {
        let mut took = vec![ping(straight), ping(by_door), ping(by_tunnel)];
        if others.is_some() && round % 4 == 0 {
            took.push(ping(|| by_others(echo).unwrap()));
        }
        // The first ones are for warming up.
        for (times, took) in times.iter_mut().zip(took).filter(|_| round >= 200) {
            times.push(took);
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times
            .get(times.len() / 2)
            .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    let [straight, by_door, by_tunnel, theirs] = times.each_mut().map(median);

    let mut best = [0.0_f64; 4];
    for _ in 0..TURNS {
        let mut speeds = vec![
            bulk(TcpStream::connect(local(source)).unwrap()),
            bulk(TcpStream::connect(local(relay)).unwrap()),
            bulk(TcpStream::connect(door(source)).unwrap()),
        ];
        speeds.extend(by_others(source).map(bulk));
        for (best, speed) in best.iter_mut().zip(speeds) {
            *best = best.max(speed);
        }
    }
    let [bulk_straight, bulk_relay, bulk_door, bulk_theirs] = best;
    let idle = idle(door(rest));
    drop(others);
    runtime.block_on(running.finish());

    let mut rows = vec![
        ("a connect and echo, straight", straight, "us"),
        ("a connect and echo, through a door", by_door, "us"),
        ("a connect and echo, through CONNECT", by_tunnel, "us"),
        ("b bulk, straight", bulk_straight, "MiB/s"),
        ("b bulk, two threads that splice", bulk_relay, "MiB/s"),
        ("b bulk, through a door", bulk_door, "MiB/s"),
        ("c 1,000 connections at rest", idle, "MiB"),
    ];
    let mut ratios = vec![
        ("connect and echo / straight", by_door / straight, 2.5, true),
        (
            "bulk / two threads that splice",
            bulk_door / bulk_relay,
            0.8,
            false,
        ),
        ("1,000 at rest / 30 MiB", idle / 30.0, 1.0, true),
    ];
    if theirs.is_finite() {
        rows.push(("d connect and echo, socat and tinyproxy", theirs, "us"));
        rows.push(("d bulk, socat and tinyproxy", bulk_theirs, "MiB/s"));
        ratios.push((
            "CONNECT and echo / socat and tinyproxy",
            by_tunnel / theirs,
            1.0,
            true,
        ));
        ratios.push((
            "bulk / socat and tinyproxy",
            bulk_door / bulk_theirs,
            1.0,
            false,
        ));
    } else {
        println!("socat or tinyproxy is not installed, so they were not compared with");
    }
    report(&rows, &ratios);
}

fn report(rows: &[(&str, f64, &str)], ratios: &[(&str, f64, f64, bool)]) {
    for (name, value, unit) in rows {
        println!("{name:<44} {value:>10.1} {unit}");
    }
    let row = |(name, value, unit): &(&str, f64, &str)| {
        format!(r#"{{"name":"{name}","value":{value:.1},"unit":"{unit}"}}"#)
    };
    let ratio = |(name, ratio, bar, most): &(&str, f64, f64, bool)| {
        let (kind, ok) = match most {
            true => ("max", ratio <= bar),
            false => ("min", ratio >= bar),
        };
        format!(r#"{{"name":"{name}","ratio":{ratio:.3},"bar":{bar},"kind":"{kind}","ok":{ok}}}"#)
    };
    let rows: Vec<String> = rows.iter().map(row).collect();
    let ratios: Vec<String> = ratios.iter().map(ratio).collect();
    println!(
        r#"JSON {{"bench":"egress","rows":[{}],"ratios":[{}]}}"#,
        rows.join(","),
        ratios.join(",")
    );
}

/// A call's network that may reach these ports.
fn network(ports: &[u16]) -> (Running, SocketAddr) {
    let rules = ports.iter().map(|port| format!("host.example:{port}"));
    let rules = rules.flat_map(|text| EgressRule::named(&text).unwrap());
    let terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), rules.collect());
    let proxy = TcpListener::bind((DOOR_ADDRESS, 0)).unwrap();
    let address = proxy.local_addr().unwrap();
    let listen = |port: &u16| (*port, TcpListener::bind((STAND_IN, *port)).unwrap());
    let doors = Doors {
        dns_udp: UdpSocket::bind((DOOR_ADDRESS, 0)).unwrap(),
        dns_tcp: TcpListener::bind((DOOR_ADDRESS, 0)).unwrap(),
        proxy,
        forwards: ports.iter().map(listen).collect(),
    };
    let (sender, mut records) = mpsc::channel(64);
    tokio::spawn(async move { while records.recv().await.is_some() {} });
    let egress = Egress::new(Arc::new(Here), Arc::new(SystemClock));
    (egress.serve(terms, doors, sender).unwrap(), address)
}

fn host(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().flatten().for_each(&serve));
    port
}

/// Gives one byte back.
fn echo_host() -> u16 {
    host(|mut stream| {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_ok() {
            let _ = stream.write_all(&byte);
        }
    })
}

/// Sends much to everybody who sends a byte.
fn source_host() -> u16 {
    host(|mut stream| {
        thread::spawn(move || {
            let mut byte = [0];
            let piece = vec![7; 256 * 1024];
            let mut left = BULK;
            let _ = stream.read_exact(&mut byte);
            while left > 0 && stream.write_all(&piece).is_ok() {
                left -= piece.len() as u64;
            }
        });
    })
}

/// Lets everybody stay.
fn resting_host() -> u16 {
    let stay = std::sync::Mutex::new(Vec::new());
    host(move |stream| stay.lock().unwrap().push(stream))
}

/// The least that a relay can be: for each way a thread, a pipe and two splices.
fn splice_relay(to: u16) -> u16 {
    let one_way = |from: TcpStream, to: TcpStream| {
        let (take, put) = pipe().unwrap();
        let _ = fcntl_setpipe_size(&put, 512 * 1024);
        loop {
            let flags = SpliceFlags::MOVE;
            let moved = splice(&from, None, &put, None, 512 * 1024, flags).unwrap_or(0);
            if moved == 0 {
                let _ = to.shutdown(std::net::Shutdown::Write);
                return;
            }
            let mut left = moved;
            while left > 0 {
                match splice(&take, None, &to, None, left, flags) {
                    Ok(count @ 1..) => left -= count,
                    Ok(0) | Err(_) => return,
                }
            }
        }
    };
    host(move |client| {
        let upstream = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
        let (client_too, upstream_too) =
            (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        thread::spawn(move || one_way(client, upstream));
        thread::spawn(move || one_way(upstream_too, client_too));
    })
}

fn ping(connect: impl Fn() -> TcpStream) -> Duration {
    let started = Instant::now();
    let mut stream = connect();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[0]).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    started.elapsed()
}

/// MiB in a second.
fn bulk(mut stream: TcpStream) -> f64 {
    let mut piece = vec![0; 256 * 1024];
    let started = Instant::now();
    stream.write_all(&[0]).unwrap();
    let mut got = 0;
    while got < BULK {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "it ended too early");
        got += count as u64;
    }
    got as f64 / f64::from(1 << 20) / started.elapsed().as_secs_f64()
}

fn tunnel(proxy: SocketAddr, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_nodelay(true).unwrap();
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 512];
    while !answer.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend(&piece[..count]);
    }
    stream
}

/// What this process grows by: both ends of each connection are in it too, and cost the kernel alone.
fn idle(door: SocketAddr) -> f64 {
    let before = resident();
    let resting: Vec<TcpStream> = (0..IDLE)
        .map(|_| {
            let mut stream = TcpStream::connect(door).unwrap();
            stream.write_all(&[0]).unwrap();
            stream
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let after = resident();
    drop(resting);
    (after - before).max(0.0)
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024.0
}

fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum.or(Some(1 << 16));
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// A bridge and a proxy, as others chain them: socat at the sandbox's side, tinyproxy behind it.
struct Others {
    bridge: u16,
    running: Vec<std::process::Child>,
    _folder: tempfile::TempDir,
}

impl Others {
    fn start() -> Option<Self> {
        let free = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let (bridge, proxy) = (free(), free());
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tinyproxy.conf");
        let text = format!(
            "Port {proxy}\nListen 127.0.0.1\nTimeout 60\nMaxClients 500\nLogLevel Critical\n"
        );
        std::fs::write(&config, text).unwrap();
        let quiet = || std::process::Stdio::null();
        let start = |program: &str, arguments: &[&str]| {
            let mut command = std::process::Command::new(program);
            command.args(arguments).stdout(quiet()).stderr(quiet());
            command.spawn().ok()
        };
        let listen =
            format!("TCP-LISTEN:{bridge},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=128");
        let tinyproxy = start("tinyproxy", &["-d", "-c", config.to_str().unwrap()])?;
        let mut running = vec![tinyproxy];
        let Some(socat) = start(
            "socat",
            &[&listen, &format!("TCP:127.0.0.1:{proxy},nodelay")],
        ) else {
            stop(&mut running);
            return None;
        };
        running.push(socat);
        for port in [proxy, bridge] {
            let up = (0..500).any(|_| {
                thread::sleep(Duration::from_millis(10));
                TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
            });
            assert!(up, "neither socat nor tinyproxy came up");
        }
        Some(Self {
            bridge,
            running,
            _folder: folder,
        })
    }
}

fn stop(running: &mut Vec<std::process::Child>) {
    for mut child in running.drain(..) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        stop(&mut self.running);
    }
}
