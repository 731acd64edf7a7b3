//! The clients that people use, with what a sandbox sets for them: they trust the call's authority and
//! carry a secret that they never had.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use palyra_core::{
    Audience, CallId, Injection, InjectionPlace, InjectionTable, SecretValue, Timestamp,
};
use palyra_egress::Terms;

use crate::secure_host::SecureHost;
use crate::support::{Net, rule};

const SECRET: &str = "the-real-one";

struct World {
    net: Net,
    host: SecureHost,
    folder: tempfile::TempDir,
    placeholder: String,
}

fn world(host: SecureHost, place: InjectionPlace) -> World {
    let at = format!("api.example:{}", host.port);
    let mut audience = Audience::at(&at).unwrap();
    audience.place = place;
    let value = SecretValue::new(SECRET.as_bytes().to_vec());
    let one = Injection::new("token".parse().unwrap(), 1, vec![audience], value);
    let placeholder = one.placeholder().as_str().to_owned();
    let mut terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), vec![rule(&at)]);
    terms.injections = Arc::new(InjectionTable::new(vec![one]));
    let net = Net::with(terms, &[host.port], |egress| {
        egress.also_trusting(host.pem.as_bytes()).unwrap()
    });
    net.book.knows("api.example", &["127.0.0.1"]);
    let folder = tempfile::tempdir().unwrap();
    let pem = net.running.authority_pem().unwrap();
    std::fs::write(folder.path().join("ca.pem"), pem).unwrap();
    World {
        net,
        host,
        folder,
        placeholder,
    }
}

/// A command, unless its program is missing: then the test says so, and fails where everything has to
/// be there.
fn program(name: &str) -> Option<Command> {
    let path = std::env::var_os("PATH").unwrap();
    if std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) {
        #[expect(clippy::disallowed_methods, reason = "a client of the proxy")]
        return Some(Command::new(name));
    }
    assert!(std::env::var_os("CI").is_none(), "{name} is missing");
    None
}

impl World {
    fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs it with the variables that the sandbox sets.
    async fn run(&self, mut client: Command) -> Output {
        let proxy = format!("http://{}", self.net.proxy);
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy"] {
            client.env(name, &proxy);
        }
        for name in [
            "SSL_CERT_FILE",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "NODE_EXTRA_CA_CERTS",
        ] {
            client.env(name, self.certificate());
        }
        client.env_remove("no_proxy").env_remove("NO_PROXY");
        client.env("URL", format!("https://api.example:{}/x", self.host.port));
        client.env("PORT", self.host.port.to_string());
        client.env("TOKEN", &self.placeholder);
        let running = tokio::task::spawn_blocking(move || client.output());
        running.await.unwrap().unwrap()
    }

    async fn gets_the_echo(&self, client: Command) {
        let output = self.run(client).await;
        let told = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(&format!("Bearer {SECRET}")), "{told} {error}");
        assert!(self.host.got().contains(&format!("Bearer {SECRET}")));
        assert!(!self.host.got().contains(&self.placeholder));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_python_and_node_carry_a_secret_that_they_never_had() {
    let curl = "-sS --max-time 20 -H \"Authorization: Bearer $TOKEN\"";
    let python = "import os, urllib.request as r\n\
                  q = r.Request(os.environ['URL'], headers={'Authorization': 'Bearer ' + os.environ['TOKEN']})\n\
                  print(r.urlopen(q).read().decode())";
    // Without a proxy, by the address that stands for the name: what its resolver would say.
    let node = "const e = process.env;\n\
                const lookup = (h, o, cb) => o.all ? cb(null, [{address: '127.66.1.1', family: 4}]) : cb(null, '127.66.1.1', 4);\n\
                require('https').get({host: 'api.example', port: e.PORT, path: '/x', lookup, headers: {Authorization: 'Bearer ' + e.TOKEN}},\n\
                r => r.on('data', d => process.stdout.write(d))).on('error', x => console.error(x));";
    let by_proxy = format!("curl {curl} \"$URL\"");
    let direct =
        format!("curl {curl} --noproxy '*' --resolve api.example:$PORT:127.66.1.1 \"$URL\"");
    let by_socks = format!("curl {curl} --proxy socks5h://${{https_proxy#http://}} \"$URL\"");
    for (needed, run, script) in [
        ("curl", ["sh", "-c"], by_proxy.as_str()),
        ("curl", ["sh", "-c"], &direct),
        ("curl", ["sh", "-c"], &by_socks),
        ("python3", ["python3", "-c"], python),
        ("node", ["node", "-e"], node),
    ] {
        let host = SecureHost::named("api.example").await;
        let world = world(host, InjectionPlace::Bearer);
        let Some(mut client) = program(needed).and(program(run[0])) else {
            continue;
        };
        client.args([run[1], script]);
        world.gets_the_echo(client).await;
    }
}

/// Files of a folder, for who has the password.
fn files(folder: PathBuf) -> impl Fn(&[u8]) -> Vec<u8> {
    let password = format!("Basic {}", STANDARD.encode(format!("git:{SECRET}")));
    move |request| {
        let text = String::from_utf8_lossy(request);
        if !text.contains(&password) {
            let head = "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\n";
            return format!("{head}content-length: 0\r\n\r\n").into_bytes();
        }
        let path = text.split([' ', '?']).nth(1).unwrap_or_default();
        let (status, body) = match std::fs::read(folder.join(path.trim_start_matches('/'))) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), &body].concat()
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Option<Command> {
    let mut git = program("git")?;
    git.current_dir(folder).args(arguments);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0");
    for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "EMAIL"] {
        git.env(name, "x@example");
    }
    Some(git)
}

#[tokio::test(flavor = "multi_thread")]
async fn git_clones_with_a_password_that_it_never_had() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for arguments in [
        &["init", "-q", "work"][..],
        &[
            "-C",
            "work",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "words of a commit",
        ],
        &["clone", "-q", "--bare", "work", "repo.git"],
        &["-C", "repo.git", "update-server-info"],
    ] {
        let Some(mut git) = git(at, arguments) else {
            return;
        };
        let output = git.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let host = SecureHost::answering("api.example", Arc::new(files(at.to_owned()))).await;
    let user = "git".to_owned();
    let world = world(host, InjectionPlace::Basic { user });
    let url = format!("https://git@api.example:{}/repo.git", world.host.port);
    let helper = "credential.helper=!f() { echo password=$TOKEN; }; f";
    let clone = git(at, &["-c", helper, "clone", "-q", &url, "copy"]).unwrap();
    let output = world.run(clone).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let log = git(at, &["-C", "copy", "log"]).unwrap().output().unwrap();
    assert!(String::from_utf8_lossy(&log.stdout).contains("words of a commit"));
    // Nothing of the secret stayed inside.
    let config = std::fs::read_to_string(at.join("copy/.git/config")).unwrap();
    assert!(!config.contains(SECRET));
}
