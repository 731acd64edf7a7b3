//! Examples of every command: what help and man pages begin with.

/// Command lines and what they do, by command.
pub const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "palyra",
        &[
            (
                "palyra exec -- git status",
                "run a program, limited and recorded",
            ),
            (
                "palyra agents add claude",
                "let an agent work on this folder",
            ),
            (
                "palyra exec --as agent:claude -- make",
                "run it as that agent: you are asked",
            ),
            ("palyra approvals list", "see what waits for your answer"),
            ("palyra calls list", "see what ran"),
        ],
    ),
    (
        "palyra init",
        &[
            ("palyra init", "set up; nothing is overwritten"),
            (
                "palyra init --baseline locked",
                "an agent runs nothing unasked",
            ),
        ],
    ),
    (
        "palyra status",
        &[
            ("palyra status", "is it there, who am I, what waits"),
            (
                "palyra status --as agent:claude",
                "the same, as an agent sees it",
            ),
            ("palyra status --json", "for a script"),
        ],
    ),
    (
        "palyra doctor",
        &[
            (
                "palyra doctor",
                "what works, what is missing, and the remedy",
            ),
            (
                "palyra doctor --json",
                "for a script; 6 when Tier-C cannot run",
            ),
        ],
    ),
    (
        "palyra exec",
        &[
            ("palyra exec -- git status", "in the current folder"),
            (
                "palyra exec --timeout 30s -- cargo test",
                "killed with all that it started",
            ),
            (
                "palyra exec --as agent:claude -- npm ci",
                "as an agent: you are asked",
            ),
            (
                "palyra exec --env CI=1 --env HOME -- make",
                "set one variable, pass another on",
            ),
            (
                "palyra exec --stdin -- sort < names.txt",
                "with what this shell gives it",
            ),
            (
                "palyra exec -it -- bash",
                "a shell, in a terminal of its own",
            ),
            (
                "palyra exec --allow-host packages.example -- pip download six",
                "reaches this host and no other",
            ),
            ("palyra exec --json -- id", "the whole result as JSON"),
        ],
    ),
    (
        "palyra call",
        &[
            (
                "palyra call palyra.echo --args '{\"message\":\"hi\"}'",
                "arguments as JSON",
            ),
            (
                "palyra call palyra.fs.read --args '{\"path\":\"a.txt\"}'",
                "read in this folder",
            ),
            (
                "palyra call palyra.fs.write --args @request.json",
                "arguments from a file",
            ),
            (
                "palyra call palyra.fs.apply_patch --args -",
                "arguments from standard input",
            ),
        ],
    ),
    (
        "palyra connect",
        &[
            (
                "palyra connect claude-code",
                "its tools and its hook, in this folder",
            ),
            (
                "palyra connect codex --dry-run",
                "what would be written where",
            ),
            ("palyra connect claude-code --undo", "out again"),
            (
                "palyra connect generic --agent mine",
                "for any other MCP client",
            ),
        ],
    ),
    (
        "palyra hook",
        &[(
            "palyra hook claude-code --as agent:claude",
            "what its hook runs",
        )],
    ),
    (
        "palyra mcp",
        &[(
            "palyra mcp serve --as agent:claude",
            "what an MCP client starts",
        )],
    ),
    (
        "palyra mcp serve",
        &[
            ("palyra mcp serve --as agent:claude", "tools for that agent"),
            (
                "palyra mcp serve --as agent:ci --patience 5s",
                "for an impatient client",
            ),
        ],
    ),
    (
        "palyra quarantine",
        &[
            (
                "palyra quarantine list",
                "see what was taken away after calls",
            ),
            (
                "palyra quarantine restore quar_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "put one back",
            ),
        ],
    ),
    (
        "palyra quarantine list",
        &[("palyra quarantine list", "what was taken away, and why")],
    ),
    (
        "palyra quarantine restore",
        &[(
            "palyra quarantine restore quar_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "put one back where it was",
        )],
    ),
    (
        "palyra vault",
        &[
            ("palyra vault put github-token", "asks for the value"),
            ("palyra vault list", "names and ages, never values"),
            ("palyra vault audit", "who had what, and when"),
        ],
    ),
    (
        "palyra vault put",
        &[
            ("palyra vault put github-token", "asks for the value"),
            (
                "palyra vault put db --scope agent:claude",
                "for one agent; or pipe it in",
            ),
            (
                "palyra vault put gh --audience api.github.com",
                "where it may be sent",
            ),
            ("palyra vault put ci-token --ttl 30d", "it ends by itself"),
        ],
    ),
    (
        "palyra vault get",
        &[
            ("palyra vault get github-token", "asks whether to show it"),
            ("palyra vault get db --version 2 --yes", "for a script"),
        ],
    ),
    (
        "palyra vault list",
        &[("palyra vault list --json", "for a script")],
    ),
    (
        "palyra vault delete",
        &[("palyra vault delete agent:claude/db", "with every version")],
    ),
    (
        "palyra vault versions",
        &[("palyra vault versions github-token", "the last 16 are kept")],
    ),
    (
        "palyra vault rotate-key",
        &[("palyra vault rotate-key", "every data key is wrapped anew")],
    ),
    (
        "palyra vault status",
        &[("palyra vault status", "open or locked, and its key store")],
    ),
    (
        "palyra vault export",
        &[
            ("palyra vault export backup.age", "asks for a passphrase"),
            (
                "palyra vault export b.age --recipient age1… --yes",
                "for the holder of an age key",
            ),
        ],
    ),
    (
        "palyra vault import",
        &[
            ("palyra vault import backup.age", "asks for its passphrase"),
            ("palyra vault import b.age --identity key.txt", "an age key"),
            ("palyra vault import .env --env", "NAME=VALUE lines"),
        ],
    ),
    (
        "palyra vault audit",
        &[("palyra vault audit github-token -n 20", "of one secret")],
    ),
    (
        "palyra vault unlock",
        &[
            ("palyra vault unlock", "asks for the passphrase, if any"),
            (
                "palyra vault unlock --accept-rollback",
                "takes an older file, or none",
            ),
        ],
    ),
    (
        "palyra vault lock",
        &[(
            "palyra vault lock",
            "ends what runs; nothing runs until it is unlocked",
        )],
    ),
    (
        "palyra agents",
        &[
            (
                "palyra agents add claude",
                "register an agent for this folder",
            ),
            ("palyra agents list", "list them"),
        ],
    ),
    (
        "palyra agents add",
        &[
            ("palyra agents add claude", "it works on the current folder"),
            (
                "palyra agents add ci --workspace /srv/build",
                "it works on that folder",
            ),
        ],
    ),
    (
        "palyra agents list",
        &[("palyra agents list", "who acts for you, and where")],
    ),
    (
        "palyra agents show",
        &[("palyra agents show claude", "one agent")],
    ),
    (
        "palyra agents pause",
        &[
            (
                "palyra agents pause claude",
                "it does nothing until resumed",
            ),
            (
                "palyra agents pause claude --reason 'let me look'",
                "and hears why",
            ),
        ],
    ),
    (
        "palyra agents resume",
        &[(
            "palyra agents resume claude",
            "it was paused; it may act again",
        )],
    ),
    (
        "palyra agents remove",
        &[("palyra agents remove claude", "it may no longer act")],
    ),
    (
        "palyra tools",
        &[
            ("palyra tools list", "what can be called"),
            (
                "palyra tools show palyra.fs.read",
                "one tool and its schema",
            ),
        ],
    ),
    (
        "palyra tools list",
        &[("palyra tools list", "what can be called")],
    ),
    (
        "palyra tools show",
        &[(
            "palyra tools show palyra.process.run",
            "what `exec` calls, with its schema",
        )],
    ),
    (
        "palyra calls",
        &[
            ("palyra calls list", "the newest 20"),
            (
                "palyra calls show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "one call and its record",
            ),
        ],
    ),
    (
        "palyra calls list",
        &[
            ("palyra calls list --agent claude", "what an agent did"),
            (
                "palyra calls list --state denied -n 5",
                "the last five denials",
            ),
            ("palyra calls list --json", "for a script"),
        ],
    ),
    (
        "palyra calls show",
        &[(
            "palyra calls show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "arguments, output, timeline",
        )],
    ),
    (
        "palyra approvals",
        &[
            ("palyra approvals list", "what waits"),
            (
                "palyra approvals show appr_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "exactly what would run",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow",
                "let it run, once",
            ),
            ("palyra approvals watch", "see questions as they come"),
            ("palyra approvals stats", "how often you were asked"),
        ],
    ),
    (
        "palyra approvals watch",
        &[
            ("palyra approvals watch", "what waits, as it comes and goes"),
            ("palyra approvals watch --json", "everything that changes"),
        ],
    ),
    (
        "palyra approvals stats",
        &[(
            "palyra approvals stats",
            "how you answered, and what to grant",
        )],
    ),
    (
        "palyra approvals list",
        &[
            ("palyra approvals list", "what waits for your answer"),
            ("palyra approvals list --all", "what was answered, too"),
        ],
    ),
    (
        "palyra approvals show",
        &[
            (
                "palyra approvals show appr_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "exactly what would run",
            ),
            (
                "palyra approvals show appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --full",
                "all of it, however long",
            ),
        ],
    ),
    (
        "palyra approvals decide",
        &[
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow",
                "let it run, once",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision deny \
                 --reason 'too broad'",
                "refuse, and tell the agent why",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow \
                 --scope session --cover args",
                "and calls like it, in this session",
            ),
            (
                "palyra approvals decide appr_01kgq5r7h3e8x2m4n6p8q0s2t4 --decision allow \
                 --scope window --for 15m --cover program",
                "and this program, for 15 minutes",
            ),
        ],
    ),
    (
        "palyra grants",
        &[
            ("palyra grants list", "what you allowed for a while"),
            (
                "palyra grants revoke grant_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "take it back",
            ),
        ],
    ),
    (
        "palyra grants list",
        &[
            ("palyra grants list", "what is in force"),
            ("palyra grants list --all", "what ended, too"),
        ],
    ),
    (
        "palyra grants show",
        &[(
            "palyra grants show grant_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "in words and as a rule",
        )],
    ),
    (
        "palyra grants revoke",
        &[(
            "palyra grants revoke grant_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "nothing more runs under it",
        )],
    ),
    (
        "palyra grants explain",
        &[(
            "palyra grants explain call_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "which grant covers it, or why none",
        )],
    ),
    (
        "palyra presence",
        &[
            ("palyra presence set", "deciding asks for a passphrase"),
            ("palyra presence show", "what is asked, and here"),
        ],
    ),
    (
        "palyra presence show",
        &[("palyra presence show", "what is asked, and here")],
    ),
    (
        "palyra presence set",
        &[(
            "palyra presence set",
            "set it, or change it; asked at the terminal",
        )],
    ),
    (
        "palyra presence forget",
        &[("palyra presence forget", "before you leave the terminal")],
    ),
    (
        "palyra presence off",
        &[("palyra presence off", "deciding asks nothing any more")],
    ),
    (
        "palyra postures",
        &[
            ("palyra postures list", "what is set about tools"),
            (
                "palyra postures set palyra.process.run ask-each-time",
                "be asked about every call",
            ),
        ],
    ),
    (
        "palyra postures list",
        &[("palyra postures list", "what is set about tools")],
    ),
    (
        "palyra postures set",
        &[
            (
                "palyra postures set palyra.process.run ask-each-time",
                "be asked about every call",
            ),
            (
                "palyra postures set palyra.fs.write disabled --agent claude",
                "this agent writes nothing",
            ),
            (
                "palyra postures set palyra.fs.write unset --agent claude",
                "as policy says again",
            ),
        ],
    ),
    (
        "palyra tui",
        &[("palyra tui", "look, allow and deny; `?` shows the keys")],
    ),
    (
        "palyra journal",
        &[(
            "palyra journal tail --follow",
            "watch everything as it happens",
        )],
    ),
    (
        "palyra journal tail",
        &[
            ("palyra journal tail -n 50", "the last fifty entries"),
            (
                "palyra journal tail --follow --json",
                "JSON lines, as they are written",
            ),
            (
                "palyra journal tail --agent claude --since 2h",
                "what one agent did lately",
            ),
            (
                "palyra journal tail --outcome denied -n 100",
                "the last calls that were denied",
            ),
        ],
    ),
    (
        "palyra journal verify",
        &[
            (
                "palyra journal verify",
                "your daemon's journal, whether it runs or not",
            ),
            (
                "palyra journal verify export.ndjson --against checkpoint.txt",
                "an export, against a checkpoint that was kept elsewhere",
            ),
        ],
    ),
    (
        "palyra journal checkpoint",
        &[(
            "palyra journal checkpoint",
            "print the signed head; save it on another machine",
        )],
    ),
    (
        "palyra journal erase",
        &[
            (
                "palyra journal erase call_01kgq5r7h3e8x2m4n6p8q0s2t4 --reason 'a password'",
                "arguments, facts and output of a call",
            ),
            (
                "palyra journal erase call_01kgq5r7h3e8x2m4n6p8q0s2t4 --what output",
                "only what it gave back",
            ),
        ],
    ),
    (
        "palyra journal rebuild",
        &[(
            "palyra journal rebuild",
            "compare lists with the record they are made of",
        )],
    ),
    (
        "palyra journal backup",
        &[
            (
                "palyra journal backup /mnt/backups",
                "a new file in a folder",
            ),
            ("palyra journal backup journal-copy.db", "a new file"),
        ],
    ),
    (
        "palyra journal restore",
        &[
            (
                "palyra journal restore journal-copy.db",
                "if nothing newer is lost by it",
            ),
            (
                "palyra journal restore journal-copy.db --accept-older",
                "also if something is",
            ),
        ],
    ),
    (
        "palyra journal export",
        &[
            (
                "palyra journal export journal.ndjson",
                "everything, for somebody else to verify",
            ),
            (
                "palyra journal export --after 500",
                "only what came after entry 500",
            ),
        ],
    ),
    (
        "palyra attest",
        &[(
            "palyra attest show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "what is attested about a call",
        )],
    ),
    (
        "palyra attest show",
        &[(
            "palyra attest show call_01kgq5r7h3e8x2m4n6p8q0s2t4",
            "policy, approval, walls, output",
        )],
    ),
    (
        "palyra attest export",
        &[(
            "palyra attest export call_01kgq5r7h3e8x2m4n6p8q0s2t4 a.json",
            "one file for somebody else",
        )],
    ),
    (
        "palyra attest verify",
        &[
            (
                "palyra attest verify a.json",
                "by a daemon whose key was seen",
            ),
            (
                "palyra attest verify a.json --key key.txt",
                "by somebody else's daemon",
            ),
        ],
    ),
    (
        "palyra policy",
        &[
            (
                "palyra policy list",
                "what decides, and where it is written",
            ),
            ("palyra policy check", "is everything in the folder right?"),
            ("palyra policy test", "run its *.test.toml"),
            ("palyra policy versions", "what decided, since when"),
            ("palyra policy rollback", "back to the version before"),
        ],
    ),
    (
        "palyra policy list",
        &[
            ("palyra policy list", "what decides now"),
            ("palyra policy list draft", "those of another folder"),
            (
                "palyra policy list --baseline locked",
                "over another baseline",
            ),
        ],
    ),
    (
        "palyra policy show",
        &[(
            "palyra policy show allow_granted",
            "its text and its reason",
        )],
    ),
    (
        "palyra policy schema",
        &[(
            "palyra policy schema",
            "principals, actions, resources, facts",
        )],
    ),
    (
        "palyra policy check",
        &[
            ("palyra policy check", "the daemon's folder"),
            ("palyra policy check draft", "before it becomes that folder"),
            (
                "palyra policy check --baseline locked",
                "over another baseline",
            ),
        ],
    ),
    (
        "palyra policy test",
        &[("palyra policy test draft", "exit code 1 when a case fails")],
    ),
    (
        "palyra policy explain",
        &[
            (
                "palyra policy explain call_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "why it was denied, and what would help",
            ),
            (
                "palyra policy explain --request r.toml",
                "why, and what would help",
            ),
            (
                "palyra policy explain --request r.toml draft",
                "under a draft",
            ),
        ],
    ),
    (
        "palyra policy simulate",
        &[
            (
                "palyra policy simulate draft --request r.toml",
                "what the draft says to it",
            ),
            (
                "palyra policy simulate draft --call call_01kgq5r7h3e8x2m4n6p8q0s2t4",
                "and to a call of the past",
            ),
        ],
    ),
    (
        "palyra policy replay",
        &[
            ("palyra policy replay draft", "the last seven days"),
            ("palyra policy replay draft --since 12h", "half a day"),
        ],
    ),
    (
        "palyra policy versions",
        &[
            (
                "palyra policy versions",
                "what decided, since when, and why",
            ),
            ("palyra policy versions 3", "the texts of version 3"),
        ],
    ),
    (
        "palyra policy reload",
        &[(
            "palyra policy reload",
            "read the folder again, and say what came of it",
        )],
    ),
    (
        "palyra policy activate",
        &[(
            "palyra policy activate sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "what `palyra policy list` shows as staged",
        )],
    ),
    (
        "palyra policy rollback",
        &[
            ("palyra policy rollback", "to the version before"),
            (
                "palyra policy rollback 3",
                "to version 3, under a new number",
            ),
        ],
    ),
    (
        "palyra policy diff",
        &[("palyra policy diff policies draft", "which answers flip")],
    ),
    (
        "palyra completions",
        &[
            (
                "palyra completions bash",
                "source it, or save it where your shell looks",
            ),
            (
                "palyra completions fish",
                "save it as ~/.config/fish/completions/palyra.fish",
            ),
        ],
    ),
    (
        "palyra man",
        &[
            ("palyra man", "print palyra(1)"),
            (
                "palyra man share/man/man1",
                "write a page for every command",
            ),
        ],
    ),
    (
        "palyra exit-codes",
        &[("palyra exit-codes", "the table, for scripts with --json")],
    ),
];

/// The examples of one command, such as `palyra agents add`.
#[must_use]
pub fn of(path: &str) -> &'static [(&'static str, &'static str)] {
    let found = EXAMPLES.iter().find(|(command, _)| *command == path);
    found.map_or(&[], |(_, examples)| examples)
}
