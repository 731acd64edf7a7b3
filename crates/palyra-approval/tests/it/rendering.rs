//! Hostile text, and what a person sees of it.

use palyra_approval::render::{json, line, shown, visible};
use palyra_core::Digest;
use proptest::prelude::*;

#[test]
fn plain_text_is_left_alone() {
    for text in [
        "",
        "git commit -m 'a message' --author=\"Ada <ada@example.com>\"",
        "/home/ada/Übung/日本語/файл",
        "naïve café — 3 × 4 ≠ 13",
        "a        b",
    ] {
        assert_eq!(visible(text), text);
    }
}

#[test]
fn what_acts_on_a_terminal_becomes_its_escape() {
    for (text, seen) in [
        ("\0", "\\0"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u{8}", "\\u{8}"),
        ("\u{7f}", "\\u{7f}"),
        (
            "\u{1b}[2J\u{1b}]0;title\u{7}",
            "\\u{1b}[2J\\u{1b}]0;title\\u{7}",
        ),
        // C1: the one-byte spelling of the same sequences.
        ("\u{9b}31m\u{9d}", "\\u{9b}31m\\u{9d}"),
        ("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}"),
    ] {
        assert_eq!(visible(text), seen);
    }
}

#[test]
fn what_changes_its_neighbours_or_cannot_be_seen_becomes_its_escape() {
    let ranges = [
        '\u{0}'..='\u{1f}',
        '\u{7f}'..='\u{a0}',
        '\u{ad}'..='\u{ad}',
        '\u{34f}'..='\u{34f}',
        '\u{61c}'..='\u{61c}',
        '\u{115f}'..='\u{1160}',
        '\u{17b4}'..='\u{17b5}',
        '\u{180b}'..='\u{180f}',
        '\u{2000}'..='\u{200f}',
        '\u{2028}'..='\u{202f}',
        '\u{205f}'..='\u{206f}',
        '\u{2800}'..='\u{2800}',
        '\u{3000}'..='\u{3000}',
        '\u{3164}'..='\u{3164}',
        '\u{e000}'..='\u{f8ff}',
        '\u{fe00}'..='\u{fe0f}',
        '\u{feff}'..='\u{feff}',
        '\u{ffa0}'..='\u{ffa0}',
        '\u{fff0}'..='\u{fffb}',
        '\u{1d173}'..='\u{1d17a}',
        '\u{e0000}'..='\u{e0fff}',
        '\u{f0000}'..='\u{10ffff}',
    ];
    for char in ranges.into_iter().flatten() {
        let seen = visible(&char.to_string());
        assert!(
            seen.starts_with('\\') && seen.is_ascii(),
            "{char:?}: {seen}"
        );
    }
    assert_eq!(visible("rm \u{202e}gpj"), "rm \\u{202e}gpj");
    assert_eq!(visible("pay\u{200b}load"), "pay\\u{200b}load");
    assert_eq!(visible("e\u{301}"), "e\\u{301}");
    assert_eq!(visible("❤\u{fe0f}"), "❤\\u{fe0f}");
}

#[test]
fn no_text_can_spell_an_escape_or_a_marker() {
    assert_eq!(visible("\\u{202e}"), "\\\\u{202e}");
    assert_eq!(visible("\\{5 bytes not shown}"), "\\\\{5 bytes not shown}");
}

#[test]
fn long_runs_of_spaces_are_counted() {
    let text = format!("true;{}rm -rf ~", " ".repeat(4_000));
    assert_eq!(visible(&text), "true;\\{4000 spaces}rm -rf ~");
    assert_eq!(visible(&" ".repeat(9)), "\\{9 spaces}");
}

#[test]
fn long_text_loses_its_middle_to_a_count_and_a_digest() {
    let text = format!("{}payload{}", "a".repeat(60_000), "b".repeat(40_000));
    let shown = shown(&text, 100);
    let digest = Digest::of(text.as_bytes());
    let expected = format!(
        "{}\\{{{} bytes not shown, {digest}}}{}",
        "a".repeat(50),
        text.len() - 100,
        "b".repeat(50)
    );
    assert_eq!(shown.text, expected);
    assert_eq!(shown.hidden_bytes, text.len() - 100);

    // Exactly as wide as allowed is not long.
    assert_eq!(self::shown(&"a".repeat(100), 100).hidden_bytes, 0);
    assert_eq!(self::shown(&"a".repeat(101), 100).hidden_bytes, 1);
    assert!(line(&"x".repeat(10_000)).len() < 600);
}

#[test]
fn the_cut_never_splits_an_escape_or_a_character() {
    // Eight characters each, in a width that is no multiple of it.
    let shown = shown(&"\u{202e}".repeat(20), 21);
    assert!(shown.text.starts_with("\\u{202e}\\{"), "{}", shown.text);
    assert!(shown.text.ends_with("}\\u{202e}"), "{}", shown.text);
    assert_eq!(shown.hidden_bytes, 18 * 3);
    let nothing_fits = self::shown(&"\u{202e}".repeat(20), 0);
    assert_eq!(nothing_fits.hidden_bytes, 60);
}

#[test]
fn json_cannot_be_broken_out_of() {
    let hostile = serde_json::json!({
        "a": "x\",\n  \"safe\": \"yes",
        "b\u{1b}": [1, true, null, {}, []],
    });
    let expected = r#"{
  "a": "x\",\n  \"safe\": \"yes",
  "b\u{1b}": [
    1,
    true,
    null,
    {},
    []
  ]
}"#;
    assert_eq!(json(&hostile, 200).text, expected);
    let long = serde_json::json!({"one": "x".repeat(30), "two": ["y".repeat(40)]});
    assert_eq!(json(&long, 10).hidden_bytes, 50);
}

/// Undoes the escapes: only possible if no two texts are shown alike.
fn decode(seen: &str) -> String {
    let mut out = String::new();
    let mut rest = seen;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut letters = escape.chars();
        let letter = letters.next().unwrap();
        rest = letters.as_str();
        match letter {
            '\\' => out.push('\\'),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '0' => out.push('\0'),
            'u' => {
                let (code, after) = rest.split_once('}').unwrap();
                let code = u32::from_str_radix(code.strip_prefix('{').unwrap(), 16);
                out.push(char::from_u32(code.unwrap()).unwrap());
                rest = after;
            }
            '{' => {
                let (count, after) = rest.split_once(" spaces}").unwrap();
                out.push_str(&" ".repeat(count.parse().unwrap()));
                rest = after;
            }
            other => unreachable!("{other}"),
        }
    }
    out.push_str(rest);
    out
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a\\\\ {}0nu\u{0}-\u{1f}\u{200b}-\u{202e}]{0,60}",
        "( {0,20}x){0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_texts_are_shown_alike(text in text()) {
        let seen = visible(&text);
        prop_assert!(!seen.chars().any(char::is_control));
        prop_assert_eq!(decode(&seen), text);
    }

    #[test]
    fn what_is_hidden_is_counted(text in text(), width in 0..80_usize) {
        let cut = shown(&text, width);
        if cut.hidden_bytes == 0 {
            prop_assert_eq!(&cut.text, &visible(&text));
            prop_assert!(cut.text.chars().count() <= width || text.is_empty());
        } else {
            let marker = format!(" bytes not shown, {}}}", Digest::of(text.as_bytes()));
            let (head, tail) = cut.text.split_once(&marker).unwrap();
            let (head, count) = head.rsplit_once("\\{").unwrap();
            prop_assert_eq!(count.parse::<usize>().unwrap(), cut.hidden_bytes);
            prop_assert!(head.chars().count() + tail.chars().count() <= width);
            let (head, tail) = (decode(head), decode(tail));
            prop_assert!(text.starts_with(&head) && text.ends_with(&tail));
            prop_assert_eq!(head.len() + tail.len() + cut.hidden_bytes, text.len());
        }
    }
}
