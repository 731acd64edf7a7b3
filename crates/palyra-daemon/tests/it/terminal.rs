//! `palyra exec -it`: a shell inside a call, from a real terminal.

use palyra_testkit::{Daemon, Terminal, eventually};
use serde_json::Value;

/// Daemons, each with a tier that calls run in.
fn daemons() -> Vec<(Daemon, &'static str)> {
    // The first numbers are what terminals inside have: no caller's is to have one of them.
    static FIRST: std::sync::OnceLock<Vec<(std::fs::File, std::os::fd::OwnedFd)>> =
        std::sync::OnceLock::new();
    FIRST.get_or_init(|| (0..6).map(|_| palyra_testkit::pair()).collect());
    let mut daemons = vec![(Daemon::start(), "c")];
    if palyra_testkit::is_root() {
        daemons.push((Daemon::builder().uid(64_010).start(), "c"));
        daemons.push((Daemon::builder().uid(64_011).start(), "b"));
    } else {
        daemons.push((Daemon::start(), "b"));
    }
    if std::path::Path::new("/usr/bin/bwrap").exists() {
        let wrapped =
            Daemon::builder().config("[sandbox]\ntier_c_backend = \"linux_bubblewrap\"\n");
        let wrapped = match palyra_testkit::is_root() {
            true => wrapped.uid(64_012),
            false => wrapped,
        };
        daemons.push((wrapped.start(), "c"));
    }
    daemons
}

const BASH: [&str; 5] = ["--", "bash", "--norc", "--noprofile", "-i"];

/// A shell that is ready.
fn shell(daemon: &Daemon, options: &[&str]) -> Terminal {
    let mut words = vec!["exec", "-it", "--env", "PS1=ready>"];
    words.extend_from_slice(options);
    words.extend_from_slice(&BASH);
    let mut terminal = daemon.palyra_in_terminal(&words);
    terminal.sees("ready>");
    terminal
}

/// The last call, as it is recorded once it is over.
fn last_call(daemon: &Daemon) -> Value {
    eventually("the call is over", || {
        let list = daemon.palyra(&["calls", "list", "--json"]).expect_code(0);
        let call = list.json()["items"][0].clone();
        let open = ["proposed", "waiting", "admitted"];
        (!open.contains(&call["state"].as_str()?)).then_some(call)
    })
}

#[test]
fn a_shell_in_a_call_is_a_shell() {
    for (daemon, tier) in daemons() {
        let mut terminal = shell(&daemon, &["--tier", tier]);
        let before = "size 30 100";
        terminal.line("echo size $(stty size); echo own $(tty | cut -c1-9)");
        terminal.sees(before);
        terminal.sees("own /dev/pts/");
        terminal.resize(41, 123);
        // It is told: bash reads the new size when the signal reaches it.
        terminal.line("until [ \"$(stty size)\" = '41 123' ]; do sleep 0.02; done; echo re''sized");
        terminal.sees("resized");
        // Ctrl-C ends what is in front, and not the shell. (One process speaks and sleeps: between two
        // commands of a line the shell itself may swallow it.)
        terminal.line("(echo run''ning; exec sleep 600)");
        terminal.sees("running");
        terminal.keys("\u{3}");
        terminal.line("echo interrupted $?");
        terminal.sees("interrupted 130");
        // Also out of a flood.
        terminal.line("yes flood");
        terminal.sees("flood\r\nflood");
        terminal.keys("\u{3}");
        terminal.line("echo stop''ped $?");
        terminal.sees("stopped 130");
        // Job control: the shell leads its session, and the terminal is its own.
        terminal.line("(echo be''gun; exec sleep 600)");
        terminal.sees("begun");
        terminal.keys("\u{1a}");
        terminal.sees("Stopped");
        terminal.line("kill -9 %1; wait 2>/dev/null; echo gone''now");
        terminal.sees("gonenow");
        terminal.line("exec 9<>/dev/tty && echo opened $?");
        terminal.sees("opened 0");
        // Ctrl-D on an empty line ends it, with the code of what ran last.
        // Typed at the prompt: while a command runs, the terminal itself would take it.
        terminal.line("(echo la''st; exit 7)");
        terminal.sees("last");
        terminal.sees("ready>");
        terminal.keys("\u{4}");
        assert_eq!(terminal.ended().code(), Some(7), "{}", terminal.all());
        let call = last_call(&daemon);
        let id = call["call_id"].as_str().unwrap();
        let record = daemon
            .palyra(&["calls", "show", id, "--json"])
            .expect_code(0);
        let record = record.json();
        assert_eq!(call["exit_code"], 7);
        let kept = record["output"]["stdout"]["text"].as_str().unwrap();
        assert!(kept.contains("interrupted 130"), "{kept}");
        let attested = record["entries"].to_string();
        assert!(
            attested.contains("only the daemon holds the far end"),
            "{attested}"
        );
    }
}

/// What draws on the whole screen gets through byte by byte, both ways.
#[test]
fn a_full_screen_program_has_the_whole_screen() {
    let daemon = Daemon::start();
    let script = "printf '\\033[?1049h\\033[2J\\033[12;40Hmiddle'; stty raw -echo; \
                  key=$(dd bs=1 count=3 2>/dev/null | od -An -c | tr -d ' \\n'); stty sane; \
                  printf '\\033[?1049l'; echo \"key $key\"";
    let words = ["exec", "-it", "--", "sh", "-c", script];
    let mut terminal = daemon.palyra_in_terminal(&words);
    terminal.sees("\u{1b}[?1049h\u{1b}[2J\u{1b}[12;40Hmiddle");
    terminal.keys("\u{1b}[A");
    terminal.sees("\u{1b}[?1049l");
    terminal.sees("key 033[A");
    assert_eq!(terminal.ended().code(), Some(0));
}

#[test]
fn the_callers_terminal_is_put_back_however_it_ends() {
    let daemon = Daemon::start();
    for (signal, code) in [("", 3), ("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let (_far, near) = palyra_testkit::pair();
        let usual = format!("{:?}", rustix::termios::tcgetattr(&near));
        let mut terminal = shell(&daemon, &[]);
        assert_ne!(terminal.modes(), usual, "it is handed through");
        match signal {
            "" => terminal.line("exit 3"),
            name => {
                let pid = terminal.pid().to_string();
                let mut kill = std::process::Command::new("kill");
                assert!(kill.args(["-s", name, &pid]).status().unwrap().success());
            }
        }
        assert_eq!(terminal.ended().code(), Some(code), "{}", terminal.all());
        assert_eq!(terminal.modes(), usual, "after {signal:?}");
    }
}

/// Nothing runs on behind a caller who is gone.
#[test]
fn a_killed_client_takes_its_shell_along() {
    for (daemon, tier) in daemons() {
        let mut terminal = shell(&daemon, &["--tier", tier]);
        terminal.line("trap '' HUP; setsid sleep 7654321 & echo le''ft");
        terminal.sees("left");
        let running = || {
            let mut look = std::process::Command::new("pgrep");
            let found = look.args(["-xf", "sleep 7654321"]).output();
            found.unwrap().status.success()
        };
        assert!(running(), "a control: it is there");
        let pid = terminal.pid().to_string();
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args(["-KILL", &pid]).status().unwrap().success());
        assert_eq!(last_call(&daemon)["state"], "cancelled");
        assert!(!running(), "{tier}");
    }
}

#[test]
fn an_agents_terminal_begins_when_it_is_allowed() {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    let start = || {
        // Spelled so that the question, which shows it, is not taken for the prompt.
        let prompt = "PS1=re\\141dy>";
        let mut words = vec!["exec", "-it", "--env", prompt, "--as", "agent:a"];
        words.extend_from_slice(&BASH);
        daemon.palyra_in_terminal(&words)
    };
    // While it waits, Ctrl-C is for `palyra`.
    let mut given_up = start();
    given_up.sees("palyra approvals decide appr_");
    given_up.keys("\u{3}");
    assert_eq!(given_up.ended().code(), Some(130), "{}", given_up.all());
    eventually("the question is withdrawn", || {
        let list = daemon
            .palyra(&["approvals", "list", "--json"])
            .expect_code(0);
        list.json()["items"].as_array()?.is_empty().then_some(())
    });

    let mut terminal = start();
    terminal.sees("palyra approvals decide appr_");
    let id = daemon.pending_approval();
    let shown = daemon
        .palyra(&["approvals", "show", &id, "--json"])
        .expect_code(0);
    assert_eq!(shown.json()["state"], "pending");
    let _ = daemon
        .palyra(&["approvals", "decide", &id, "--decision", "allow"])
        .expect_code(0);
    terminal.sees("ready>");
    terminal.line("exit 5");
    assert_eq!(terminal.ended().code(), Some(5));
}

const TYPE: &str = "
import fcntl, termios
try:
    fcntl.ioctl(0, termios.TIOCSTI, b'x')
    print('type' + 'd')
except OSError as e:
    print('refused by', e.errno)
";

/// Whoever is in the call neither types into a terminal nor reaches one of its caller's.
#[test]
fn no_terminal_of_the_callers_is_in_reach() {
    for (daemon, tier) in daemons() {
        // Numbers that a terminal of the call's own does not have.
        let others: Vec<_> = (0..6).map(|_| palyra_testkit::pair()).collect();
        let script = daemon.workspace().join("type.py");
        std::fs::write(&script, TYPE).unwrap();
        let script = script.to_str().unwrap();
        let mut outside = std::process::Command::new("python3");
        outside
            .arg(script)
            .env("PATH", std::env::var_os("PATH").unwrap());
        // A control. Kernels may have it switched off for everybody, which is another error.
        let legacy = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti");
        let works = legacy.map_or(true, |text| text.trim() == "1");
        let said = if works { "typed" } else { "refused by 5" };
        daemon.in_terminal(&outside).sees(said);

        let mut terminal = shell(&daemon, &["--tier", tier]);
        terminal.line(&format!("python3 {script}"));
        terminal.sees("refused by 1");
        let name = terminal.name();
        let near = others.last().map(|(_, near)| near).unwrap();
        let bystander = rustix::termios::ttyname(near, Vec::new()).unwrap();
        for path in [name.as_str(), bystander.to_str().unwrap()] {
            // A control: outside, whose terminal it is opens it.
            assert!(std::fs::File::options().write(true).open(path).is_ok());
            terminal.line(&format!("(: > {path}) && echo rea''ched; echo tri''ed"));
            terminal.sees("tried");
        }
        terminal.line("ls -l /proc/self/fd /proc/1/fd; exit");
        let _ = terminal.ended();
        let all = terminal.all();
        assert!(!all.contains("reached"), "{tier}: {all}");
        assert!(!all.contains("ptmx"), "the far end is the daemon's: {all}");
    }
}
