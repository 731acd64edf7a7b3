//! `palyra tui` in a real terminal, in front of a real daemon.

use std::process::Child;

use palyra_testkit::{Daemon, Ran};

use crate::palyra::Palyra;
use crate::tmux::{self, Tmux};

fn with_agent() -> Daemon {
    let daemon = Daemon::start();
    daemon.add_agent("a");
    daemon
}

fn ask(daemon: &Daemon, words: &[&str]) -> Child {
    let mut all = vec!["exec", "--as", "agent:a", "--"];
    all.extend(words);
    daemon.palyra_in_background(&all)
}

fn end(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

#[test]
fn an_agents_call_is_allowed_and_runs() {
    if !tmux::is_here("a call allowed in the TUI") {
        return;
    }
    let daemon = with_agent();
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["nothing waits for you", "connected", "q quit"]);
    let waiting = ask(&daemon, &["touch", "proof"]);
    tui.sees(&["agent:a", "touch proof", "armed: a, s and t allow it"]);
    tui.paste("a");
    tui.key("Enter");
    tui.sees(&["Enter decides nothing"]);
    let id = daemon.pending_approval();
    assert!(!daemon.workspace().join("proof").exists(), "{id} waits");
    tui.types("a");
    let _ = end(waiting).expect_code(0);
    assert!(daemon.workspace().join("proof").exists());
    // It stays where it was, and says what became of it.
    tui.sees(&["spent", "touch proof"]);
    tui.types("2j");
    tui.sees(&["proposed", "decided", "admitted", "finished", "attested"]);
    tui.types("4");
    tui.sees(&["grant_spent", "admitted", "attested"]);
    tui.types("q");
    tui.sees(&["ended with 0"]);
}

#[test]
fn a_no_goes_back_with_its_reason() {
    if !tmux::is_here("a call denied in the TUI") {
        return;
    }
    let daemon = with_agent();
    let waiting = ask(&daemon, &["touch", "proof"]);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["touch proof", "armed"]);
    tui.types("d");
    tui.sees(&["Deny: agent:a", "it goes back to the agent"]);
    tui.types("use the staging branch");
    tui.key("Enter");
    tui.sees(&["d denies it", "use the staging branch"]);
    tui.types("d");
    let ran = end(waiting).expect_code(121);
    assert!(ran.stderr.contains("use the staging branch"), "{ran:?}");
    assert!(!daemon.workspace().join("proof").exists());
    tui.sees(&["denied"]);
}

#[test]
fn a_window_spares_the_next_question_and_is_listed() {
    if !tmux::is_here("a grant given in the TUI") {
        return;
    }
    let daemon = with_agent();
    let waiting = ask(&daemon, &["touch", "proof"]);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["touch proof", "armed"]);
    tui.types("t");
    tui.sees(&["Allow for a while", "15m"]);
    tui.key("Enter");
    tui.sees(&["for 15m", "▸ exact", "allows", "rule"]);
    assert!(!daemon.workspace().join("proof").exists());
    tui.types("t");
    let _ = end(waiting).expect_code(0);
    std::fs::remove_file(daemon.workspace().join("proof")).unwrap();
    // Nobody is asked again about exactly this, and about anything else somebody is.
    let _ = end(ask(&daemon, &["touch", "proof"])).expect_code(0);
    assert!(daemon.workspace().join("proof").exists());
    let mut other = ask(&daemon, &["touch", "other"]);
    tui.sees(&["1 new"]);
    tui.types("3");
    tui.sees(&["agent:a", "used", "once", "palyra grants revoke"]);
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_session_is_given_with_the_cover_that_was_chosen() {
    if !tmux::is_here("a session granted in the TUI") {
        return;
    }
    let daemon = with_agent();
    let waiting = ask(&daemon, &["touch", "proof"]);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["touch proof", "armed"]);
    tui.types("s");
    tui.sees(&["until its session ends", "▸ exact"]);
    tui.types("j");
    tui.sees(&["▸ args", "allows      run `touch *`"]);
    tui.key("Enter");
    tui.sees(&["Enter decides nothing"]);
    tui.types("s");
    let _ = end(waiting).expect_code(0);
    let listed = daemon.palyra(&["grants", "list", "--json"]).expect_code(0);
    let grant = &listed.json()["items"][0];
    assert_eq!(grant["scope"], "session", "{grant}");
    assert_eq!(grant["cover"], "args", "{grant}");
}

#[test]
fn news_does_not_move_the_row_under_the_cursor() {
    if !tmux::is_here("a list that stays") {
        return;
    }
    let daemon = with_agent();
    let first = ask(&daemon, &["touch", "first"]);
    let tui = Tmux::start(&daemon, "palyra tui");
    let before = tui.sees(&["touch first", "armed"]);
    let line = |screen: &str| screen.lines().position(|line| line.starts_with('▸'));
    let others: Vec<Child> = (0..3)
        .map(|at| ask(&daemon, &["touch", &format!("other{at}")]))
        .collect();
    let after = tui.sees(&["3 new, any key shows them"]);
    assert_eq!(line(&before), line(&after));
    assert!(!after.contains("other"), "{after}");
    tui.types("a");
    let _ = end(first).expect_code(0);
    assert!(daemon.workspace().join("first").exists());
    tui.sees(&["touch other0", "touch other1", "touch other2"]);
    for (at, mut other) in others.into_iter().enumerate() {
        assert!(!daemon.workspace().join(format!("other{at}")).exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

#[test]
fn hostile_arguments_cannot_repaint_the_screen() {
    if !tmux::is_here("hostile text in the TUI") {
        return;
    }
    let daemon = with_agent();
    // Clears the screen and paints a lie; and what hides, reverses, widens and overwrites.
    let paint = "\u{1b}[2J\u{1b}[1;1HNOTHING TO SEE\u{1b}]0;owned\u{7}";
    let tricks = "\u{202e}gnp.exe\u{202c}\u{200b}\u{2066}漢字\u{1f468}\u{200d}\u{1f469}\rOVERWRITTEN\n\u{9b}2J";
    // The same bytes do repaint a terminal that is given them as they are.
    let control = Tmux::start(&daemon, &format!("printf '%s' '{paint}'; sleep 1;:"));
    let painted = control.sees(&["NOTHING TO SEE"]);
    assert!(painted.starts_with("NOTHING TO SEE"), "{painted}");
    let mut waiting = ask(&daemon, &["echo", paint, tricks]);
    let tui = Tmux::start(&daemon, "palyra tui");
    let screen = tui.sees(&["/echo", "to allow it, read"]);
    assert!(screen.starts_with(" palyra "), "{screen}");
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[23].contains("q quit"), "{screen}");
    assert!(lines[1].contains("waits for you"), "{screen}");
    assert!(
        !lines.iter().any(|line| line.starts_with("OVERWRITTEN")),
        "{screen}"
    );
    // Folded somewhere, so put together again.
    let page: String = lines[9..22]
        .iter()
        .flat_map(|line| line.split_whitespace())
        .collect();
    for part in [
        r"\u{1b}[2J\u{1b}[1;1HNOTHINGTOSEE\u{1b}]0;owned\u{7}",
        r"\u{202e}gnp.exe\u{202c}\u{200b}\u{2066}漢字",
        r"\u{200d}",
        r"\rOVERWRITTEN\n\u{9b}2J",
    ] {
        assert!(page.contains(part), "{part}: {screen}");
    }
    tui.key("End");
    let screen = tui.sees(&["armed", "cwd"]);
    assert!(screen.starts_with(" palyra "), "{screen}");
    assert!(
        screen
            .lines()
            .nth(23)
            .is_some_and(|line| line.contains("q quit"))
    );
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn a_long_call_has_to_be_read_to_its_end() {
    if !tmux::is_here("a long call in the TUI") {
        return;
    }
    let daemon = with_agent();
    let script = format!("{}touch proof", "true; ".repeat(600));
    let waiting = ask(&daemon, &["sh", "-c", &script]);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["to allow it, read"]);
    tui.types("a");
    tui.sees(&["read it to its end first"]);
    assert!(!daemon.workspace().join("proof").exists());
    tui.key("End");
    tui.sees(&["proof\" ]", "armed"]);
    tui.types("a");
    let _ = end(waiting).expect_code(0);
    assert!(daemon.workspace().join("proof").exists());
}

#[test]
fn it_follows_the_size_and_says_when_there_is_too_little() {
    if !tmux::is_here("a TUI that is resized") {
        return;
    }
    let daemon = with_agent();
    let mut waiting = ask(&daemon, &["touch", "proof"]);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["touch proof", "armed", "q quit"]);
    tui.resize(60, 20);
    tui.sees(&["too small: 60x20", "needs 80x24"]);
    tui.types("a");
    tui.resize(120, 40);
    let large = tui.sees(&["touch proof", "q quit"]);
    assert!(
        large
            .lines()
            .nth(39)
            .is_some_and(|line| line.contains("q quit")),
        "{large}"
    );
    assert!(
        !daemon.workspace().join("proof").exists(),
        "nothing is decided unseen"
    );
    tui.resize(80, 24);
    let small = tui.sees(&["touch proof", "q quit"]);
    assert!(
        small
            .lines()
            .nth(23)
            .is_some_and(|line| line.contains("q quit")),
        "{small}"
    );
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn it_outlives_the_daemon_and_finds_the_next_one() {
    if !tmux::is_here("a TUI whose daemon restarts") {
        return;
    }
    let mut daemon = with_agent();
    let _ = daemon.palyra(&["exec", "--", "echo", "one"]).expect_code(0);
    let _ = daemon.palyra(&["exec", "--", "echo", "two"]).expect_code(0);
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["connected"]);
    tui.types("2jj");
    let before = tui.sees(&["palyra.process.run", "attested", "call_"]);
    let id = |screen: &str| -> String {
        let rule = screen.lines().find(|line| line.starts_with("── call_"));
        rule.unwrap().split_whitespace().nth(1).unwrap().to_owned()
    };
    daemon.stop();
    tui.sees(&["no daemon for", "trying again"]);
    daemon.start_again(None);
    tui.sees(&["connected again"]);
    let _ = daemon
        .palyra(&["exec", "--", "echo", "three"])
        .expect_code(0);
    let after = tui.sees(&["1 new"]);
    assert_eq!(id(&before), id(&after), "the same call is under the cursor");
    tui.types("1");
    let waiting = ask(&daemon, &["touch", "proof"]);
    tui.sees(&["touch proof", "armed"]);
    tui.types("a");
    let _ = end(waiting).expect_code(0);
}

#[test]
fn the_terminal_is_put_back_however_it_ends() {
    if !tmux::is_here("a terminal put back") {
        return;
    }
    let daemon = Daemon::start();
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let tui = Tmux::start(&daemon, "palyra tui");
        tui.sees(&["q quit"]);
        send(signal, &tui.palyra());
        let screen = tui.sees(&[&format!("ended with {code}"), "icanon"]);
        assert!(!screen.contains("-icanon"), "{signal}: {screen}");
        assert!(!screen.contains("q quit"), "{signal}: {screen}");
    }
    let tui = Tmux::start(&daemon, "palyra tui");
    tui.sees(&["q quit"]);
    tui.key("C-c");
    let screen = tui.sees(&["ended with 0", "icanon"]);
    assert!(!screen.contains("-icanon"), "{screen}");
}

/// Takes the terminal and panics, when it is run again by the test below.
const PANICS: &str = "PALYRA_TEST_PANICS_ON_SCREEN";

#[test]
fn a_panic_puts_the_terminal_back_and_can_be_read() {
    if std::env::var_os(PANICS).is_some() {
        let _screen = palyra_cli::tui::screen::Screen::enter().unwrap();
        panic!("as it was told to");
    }
    if !tmux::is_here("a panic in the TUI") {
        return;
    }
    let daemon = Daemon::builder().prepare();
    let own = std::env::current_exe().unwrap();
    let name = "tui::a_panic_puts_the_terminal_back_and_can_be_read";
    let line = format!("{} --exact {name} --nocapture", own.display());
    let tui = Tmux::start_with(&daemon, &line, &format!("{PANICS}=1"));
    let screen = tui.sees(&["as it was told to", "ended with 101", "icanon"]);
    assert!(!screen.contains("-icanon"), "{screen}");
}

fn send(signal: &str, pid: &str) {
    #[expect(clippy::disallowed_methods, reason = "kill, not a tool")]
    let mut kill = std::process::Command::new("kill");
    let sent = kill.args([&format!("-{signal}"), pid]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn colours_are_the_terminals_and_can_be_had_without() {
    if !tmux::is_here("colours in the TUI") {
        return;
    }
    let daemon = with_agent();
    let mut waiting = ask(&daemon, &["touch", "proof"]);
    let with = Tmux::start(&daemon, "palyra tui");
    with.sees(&["touch proof", "armed"]);
    let coloured = with.coloured();
    assert!(coloured.contains("\u{1b}["), "{coloured}");
    assert!(
        !coloured.contains("[38;2;") && !coloured.contains("[48;"),
        "{coloured}"
    );
    let without = Tmux::start_with(&daemon, "palyra tui", "NO_COLOR=1");
    without.sees(&["touch proof", "armed"]);
    let plain = without.coloured();
    for colour in [
        "[31m", "[32m", "[33m", "[36m", "[91m", "[92m", "[93m", "[96m", "[38;",
    ] {
        assert!(!plain.contains(colour), "{colour} in {plain:?}");
    }
    waiting.kill().unwrap();
    waiting.wait().unwrap();
}

#[test]
fn without_a_terminal_it_says_so() {
    Palyra::new()
        .run(&["tui"])
        .exits(2)
        .complains("needs a terminal", "palyra approvals list --json");
}

#[test]
fn without_a_daemon_it_says_so() {
    if !tmux::is_here("a TUI without a daemon") {
        return;
    }
    let daemon = Daemon::builder().prepare();
    let tui = Tmux::start(&daemon, "palyra tui");
    let screen = tui.sees(&["no daemon listens", "hint:", "ended with"]);
    assert!(!screen.contains("ended with 0"), "{screen}");
    let dumb = Tmux::start_with(&daemon, "palyra tui", "TERM=dumb");
    dumb.sees(&[
        "cannot draw on a terminal of the kind `dumb`",
        "ended with 2",
    ]);
}
