//! Whatever comes through the strict door has one spelling, and reading it again changes nothing.

use palyra_core::CanonicalJson;
use proptest::prelude::*;
use serde_json::{Value, json};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(|whole| json!(whole)),
        any::<f64>()
            .prop_filter("finite", |double| double.is_finite())
            .prop_map(|double| json!(double)),
        any::<String>().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            proptest::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_is_a_fixed_point(value in any_json()) {
        let once = CanonicalJson::from_value(&value).unwrap();
        let twice = CanonicalJson::parse(once.bytes()).unwrap();
        prop_assert_eq!(once.bytes(), twice.bytes());
        prop_assert_eq!(once.value(), twice.value());
    }

    #[test]
    fn no_bytes_break_the_door(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = CanonicalJson::parse(&bytes);
    }

    #[test]
    fn spacing_and_order_do_not_matter(value in any_json()) {
        let tight = serde_json::to_vec(&value).unwrap();
        let airy = serde_json::to_vec_pretty(&value).unwrap();
        let tight = CanonicalJson::parse(&tight).unwrap();
        let airy = CanonicalJson::parse(&airy).unwrap();
        prop_assert_eq!(tight.bytes(), airy.bytes());
    }
}
