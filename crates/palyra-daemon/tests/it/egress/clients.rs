//! Ordinary clients reach a host that is allowed, each in its own way.

use palyra_testkit::Daemon;

use super::world::{World, connections, has};

#[test]
fn curl_by_the_proxy_variables() {
    let world = World::new();
    let ran = world.exec(&["curl", "-sS", &world.url()]).expect_code(0);
    assert_eq!(ran.stdout, "good\n");
}

#[test]
fn curl_that_knows_of_no_proxy() {
    let world = World::new();
    let ran = world.exec(&["curl", "-sS", "--noproxy", "*", &world.url()]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
    let head = world.good.heads.lock().unwrap()[0].clone();
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
}

#[test]
fn curl_by_socks() {
    let world = World::new();
    let proxy = "socks5h://127.66.0.1:3128";
    let ran = world.exec(&["curl", "-sS", "--noproxy", "", "-x", proxy, &world.url()]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
}

#[test]
fn localhost_is_reached_where_it_was_spelled_with_its_port() {
    let world = World::new();
    let host = format!("localhost:{}", world.good.port);
    let url = format!("http://{host}/");
    let ran = world.exec_with(&["--allow-host", &host], &["curl", "-sS", &url]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
}

#[test]
fn python_by_urllib_with_and_without_a_proxy() {
    let world = World::new();
    let script = format!(
        "import urllib.request as r, os\n\
         print(r.urlopen('{0}').read().decode().strip())\n\
         plain = r.build_opener(r.ProxyHandler({{}}))\n\
         print(plain.open('{0}').read().decode().strip())",
        world.url()
    );
    let ran = world.exec(&["/usr/bin/python3", "-c", &script]);
    assert_eq!(ran.expect_code(0).stdout, "good\ngood\n");
}

#[test]
fn python_by_requests() {
    let world = World::new();
    let script = format!(
        "import requests\n\
         print(requests.get('{0}', timeout=20).text.strip())\n\
         plain = requests.Session(); plain.trust_env = False\n\
         print(plain.get('{0}', timeout=20).text.strip())",
        world.url()
    );
    let installed = Daemon::start()
        .palyra(&["exec", "--", "/usr/bin/python3", "-c", "import requests"])
        .code
        == Some(0);
    if !installed {
        assert!(
            std::env::var_os("CI").is_none(),
            "apt install python3-requests"
        );
        println!("not run: requests is missing; to add it: apt install python3-requests");
        return;
    }
    let ran = world.exec(&["/usr/bin/python3", "-c", &script]);
    assert_eq!(ran.expect_code(0).stdout, "good\ngood\n");
}

#[test]
fn node_by_fetch() {
    if !has("node", "apt install nodejs") {
        return;
    }
    let world = World::new();
    let script = format!(
        "fetch('{}').then(a => a.text()).then(t => console.log(t.trim()))",
        world.url()
    );
    let ran = world.exec(&["node", "-e", &script]);
    assert_eq!(ran.expect_code(0).stdout, "good\n");
}

/// Git over HTTP, from a repository that is served as files.
#[test]
fn git_clones_over_http() {
    let world = World::new();
    let folder = world.daemon.folder().join("served");
    let made = world
        .daemon
        .command(std::path::Path::new("/bin/sh"))
        .args([
            "-c",
            &format!(
                "set -e; mkdir -p {0}; cd {0}; git init -q -b main src; cd src; \
         git config user.email a@b.c; git config user.name n; echo hello >file; git add .; \
         git commit -qm first; git clone -q --bare . ../repo.git; cd ../repo.git; \
         git update-server-info",
                folder.display()
            ),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    // Any server of files will do.
    let script = "import http.server, sys, os\n\
                  os.chdir(sys.argv[1])\n\
                  s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
                  print(s.server_address[1], flush=True)\n\
                  s.serve_forever()";
    let mut server = world
        .daemon
        .command(std::path::Path::new("/usr/bin/python3"))
        .args(["-c", script])
        .arg(&folder)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let port = line.trim();
    let daemon = Daemon::start();
    let url = format!("http://localhost:{port}/repo.git");
    let script = format!("git clone -q {url} copy && cat copy/file");
    let host = format!("localhost:{port}");
    let ran = daemon.palyra(&["exec", "--allow-host", &host, "--", "sh", "-c", &script]);
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(ran.expect_code(0).stdout, "hello\n");
}

/// What is neither HTTP nor TLS: an allowed host and port is a connection like any other.
#[test]
fn a_plain_connection_to_an_allowed_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::Write;
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(b"SSH-2.0-somebody\r\n");
        }
    });
    let daemon = Daemon::start();
    let host = format!("localhost:{port}");
    let script = format!("head -n1 </dev/tcp/127.0.0.1/{port}");
    let ran = daemon.palyra(&["exec", "--allow-host", &host, "--", "bash", "-c", &script]);
    assert_eq!(ran.expect_code(0).stdout, "SSH-2.0-somebody\r\n");
}

#[test]
fn what_went_over_the_network_is_recorded() {
    let world = World::new();
    let host = format!("good.example:{}", world.good.port);
    // What is open when a call ends is cut off; this one is over before.
    let script = format!("curl -sS --noproxy '*' {}; sleep 1", world.url());
    let result = world.exec_json(&["--allow-host", &host], &["bash", "-c", &script]);
    assert_eq!(result["outcome"], "completed", "{result}");
    let all = connections(&result);
    let record = all.iter().find(|record| record["end"] == "closed").unwrap();
    assert_eq!(record["via"], "direct");
    assert_eq!(record["name"], "good.example");
    assert_eq!(record["port"], world.good.port);
    assert_eq!(record["address"], format!("127.0.0.1:{}", world.good.port));
    assert_eq!(record["rule"], host);
    assert!(record["sent"].as_u64().unwrap() > 20, "{record}");
    assert!(record["received"].as_u64().unwrap() > 20, "{record}");
    let used = &result["attestation"]["network"];
    assert_eq!(used["connections"], 1, "{used}");
    assert_eq!(used["refused"], 0, "{used}");
    assert_eq!(used["received"], record["received"]);
    // The attestation has numbers and no names.
    assert!(!result["attestation"].to_string().contains("good.example"));

    let call = result["call_id"].as_str().unwrap();
    let shown = world.daemon.palyra(&["calls", "show", call, "--network"]);
    let shown = shown.expect_code(0).stdout;
    assert!(shown.contains(&host) && shown.contains("closed"), "{shown}");
    let json = world
        .daemon
        .palyra(&["calls", "show", call, "--network", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(json["connections"][0]["name"], "good.example", "{json}");
    // One that was held to nothing has nothing to show.
    let other = world.exec_json(&[], &["true"]);
    let call = other["call_id"].as_str().unwrap();
    let shown = world.daemon.palyra(&["calls", "show", call, "--network"]);
    assert!(shown.expect_code(0).stderr.contains("held to no hosts"));
}
