//! Canonical JSON (RFC 8785) behind a strict door.
//!
//! Two readers of one document must never see two different calls. So the door refuses what
//! readers disagree about (duplicate keys, lone surrogates, numbers that an IEEE double cannot
//! hold) and everything behind it works on the value re-parsed from the canonical bytes.

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How deep arguments may nest; deeper documents exhaust recursive readers.
const MAX_DEPTH: usize = 64;

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    /// Not JSON, or with a duplicate key, a lone surrogate, or nested too deep.
    #[error("the arguments are not strict JSON: {0}")]
    Malformed(String),
    /// A number that changes when it is read as a double.
    #[error("the number `{0}` cannot be held exactly; send it as a string")]
    InexactNumber(String),
}

/// A JSON value and its one canonical spelling.
#[derive(Debug, Clone, PartialEq)]
pub struct CanonicalJson {
    value: Value,
    bytes: Vec<u8>,
}

impl CanonicalJson {
    /// Reads a document through the strict door.
    ///
    /// # Errors
    /// Says what made the document ambiguous.
    pub fn parse(text: &[u8]) -> Result<Self, NotCanonical> {
        exact_numbers(text)?;
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let malformed = |error: serde_json::Error| NotCanonical::Malformed(error.to_string());
        let value = Strict { depth: 0 }
            .deserialize(&mut deserializer)
            .map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        let mut bytes = Vec::with_capacity(text.len());
        write_value(&value, &mut bytes);
        // The tool receives what these bytes say, not what the sender's spelling said.
        let value = serde_json::from_slice(&bytes).map_err(malformed)?;
        Ok(Self { value, bytes })
    }

    /// The canonical spelling of one of our own values.
    ///
    /// # Errors
    /// The value holds a number or a nesting that the door refuses.
    pub fn from_value<T: serde::Serialize>(value: &T) -> Result<Self, NotCanonical> {
        let text = serde_json::to_vec(value)
            .map_err(|error| NotCanonical::Malformed(error.to_string()))?;
        Self::parse(&text)
    }

    /// One member of an object, as a document of its own.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name)?.clone();
        let bytes = canonical_bytes(&value);
        Some(Self { value, bytes })
    }

    /// The value.
    #[must_use]
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// The canonical bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value, given away.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.value
    }
}

/// The canonical bytes of a value that is ours, made of nothing the door would refuse.
#[must_use]
pub fn canonical_bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_value(value, &mut bytes);
    bytes
}

/// Walks the text outside strings and compares each number with its double.
fn exact_numbers(text: &[u8]) -> Result<(), NotCanonical> {
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        match byte {
            b'"' => rest = after_string(tail),
            b'-' | b'0'..=b'9' => {
                let is_number =
                    |b: &u8| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let length = rest.iter().take_while(|b| is_number(b)).count();
                let (number, tail) = rest.split_at(length);
                check_number(&String::from_utf8_lossy(number))?;
                rest = tail;
            }
            _ => rest = tail,
        }
    }
    Ok(())
}

fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match byte {
            b'"' => return tail,
            b'\\' => tail.get(1..).unwrap_or_default(),
            _ => tail,
        };
    }
    rest
}

fn check_number(text: &str) -> Result<(), NotCanonical> {
    let inexact = || NotCanonical::InexactNumber(text.chars().take(40).collect());
    // What is no number at all is left to the parser, whose message names the place.
    let Ok(double) = text.parse::<f64>() else {
        return Ok(());
    };
    if !double.is_finite() {
        return Err(inexact());
    }
    let spelled = ryu_js::Buffer::new().format(double).to_owned();
    (significant(text) == significant(&spelled))
        .then_some(())
        .ok_or_else(inexact)
}

/// A decimal as its significant digits and the exponent of the last of them, so that `1e2`,
/// `100` and `100.0` compare equal and `9007199254740993` differs from its double.
fn significant(text: &str) -> (String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mantissa = mantissa.trim_start_matches('-');
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let trimmed = digits.trim_end_matches('0');
    if trimmed.is_empty() {
        return (String::new(), 0);
    }
    let dropped = i64::try_from(digits.len() - trimmed.len()).unwrap_or(i64::MAX);
    let fraction = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX);
    (
        trimmed.to_owned(),
        exponent.saturating_sub(fraction).saturating_add(dropped),
    )
}

/// Deserialises a [`Value`] while refusing duplicate keys and bottomless nesting.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            return Err(E::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            let value = members.next_value_seed(deeper)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_value(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => write_object(members, out),
    }
}

fn write_object(members: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    // RFC 8785 sorts by UTF-16 code units, which differs from byte order above U+FFFF.
    sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
    out.push(b'{');
    for (position, (key, value)) in sorted.into_iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_value(value, out);
    }
    out.push(b'}');
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    let spelled = match (number.as_i64(), number.as_u64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(whole)) => whole.to_string(),
        (None, None) => ryu_js::Buffer::new()
            .format(number.as_f64().unwrap_or_default())
            .to_owned(),
    };
    out.extend_from_slice(spelled.as_bytes());
}

/// `serde_json` escapes exactly as RFC 8785 demands: the two-letter forms, `\u00xx` in lower
/// case for the other control characters, and nothing else.
fn write_string(text: &str, out: &mut Vec<u8>) {
    if let Ok(quoted) = serde_json::to_vec(text) {
        out.extend_from_slice(&quoted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        String::from_utf8(CanonicalJson::parse(text.as_bytes()).unwrap().bytes).unwrap()
    }

    #[test]
    fn the_rfc_8785_example() {
        let given = r#"{ "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false] }"#;
        // The RFC's first number does not round-trip (333333333.3333333); ours refuses it.
        assert!(matches!(
            CanonicalJson::parse(given.as_bytes()),
            Err(NotCanonical::InexactNumber(number)) if number == "333333333.33333329"
        ));
        let exact = given.replace("333333333.33333329", "333333333.3333333");
        let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical(&exact), expected);
    }

    #[test]
    fn keys_sort_by_utf16() {
        let given = "{\"\u{fb33}\":1,\"\u{1f600}\":2,\"\u{20ac}\":3,\"\\r\":4,\"1\":5}";
        let expected = "{\"\\r\":4,\"1\":5,\"\u{20ac}\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}";
        assert_eq!(canonical(given), expected);
    }

    #[test]
    fn one_spelling_for_one_number() {
        assert_eq!(
            canonical("[1e2,100,100.0,1E+2,-0,0.0]"),
            "[100,100,100,100,0,0]"
        );
    }

    #[test]
    fn ambiguity_is_refused() {
        for hostile in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":{"b":1,"\u0062":2}}"#,
            r#"["\ud800"]"#,
            "[9007199254740993]",
            "[-9007199254740993]",
            "[18446744073709551617]",
            "[0.1000000000000000055]",
            "[1e400]",
            "[1] trailing",
            "",
            "{",
            "[01]",
            "[NaN]",
        ] {
            assert!(
                CanonicalJson::parse(hostile.as_bytes()).is_err(),
                "{hostile}"
            );
        }
        assert!(CanonicalJson::parse(b"[\"\xff\"]").is_err());
    }

    #[test]
    fn nesting_has_a_floor() {
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert!(CanonicalJson::parse(deep.as_bytes()).is_err());
        let shallow = format!("{}{}", "[".repeat(64), "]".repeat(64));
        assert!(CanonicalJson::parse(shallow.as_bytes()).is_ok());
    }

    #[test]
    fn digits_inside_strings_are_left_alone() {
        assert_eq!(
            canonical(r#"["9007199254740993 \" 1e400"]"#),
            r#"["9007199254740993 \" 1e400"]"#
        );
    }
}
