//! Decoders of foreign bytes, for fuzz targets: answers of a store, and its contents. Each says whether it took the
//! bytes, and panics if the bytes do not come back.

use redis::{FromRedisValue, Value, from_redis_value_ref};

use crate::hbase::{client, key_of, part_name, part_text, table};
use crate::head::Head;
use crate::pack::{self, Packer};
use crate::redis::{field, name_of};
use crate::store::{Pair, Read};

/// An answer of Redis, as each request would take it.
pub fn redis_answer(bytes: &[u8]) -> bool {
    fn takes<T: FromRedisValue>(value: &Value) -> bool {
        from_redis_value_ref::<T>(value).is_ok()
    }
    let Ok(value) = redis::parse_redis_value(bytes) else { return false };
    if let Ok(names) = from_redis_value_ref::<Vec<Vec<u8>>>(&value) {
        for name in names {
            assert!(name_of(&name).is_none_or(|part| field(part) == name), "another part than {name:02x?}");
        }
    }
    [
        takes::<()>,
        takes::<bool>,
        takes::<u64>,
        takes::<String>,
        takes::<Vec<String>>,
        takes::<Vec<Vec<u8>>>,
        takes::<Option<Vec<u8>>>,
        takes::<Read>,
        takes::<(u64, Vec<Pair>)>,
    ]
    .iter()
    .any(|takes| takes(&value))
}

/// Rows, or a table's description, as HBase's gateway answers them.
pub fn hbase_answer(bytes: &[u8]) -> bool {
    let is_fit = client::json(bytes).is_ok_and(|schema| table::unfit(&schema).is_none());
    let Ok(rows) = client::rows(bytes) else { return is_fit };
    for fetched in rows {
        // Digits may be capital letters in what we did not write.
        let part = part_name(&fetched.key);
        assert!(part.is_none_or(|part| part_name(&part_text(part)) == Some(part)), "another part");
        key_of(&fetched.key);
        stored_value(b"key", &fetched.value);
    }
    true
}

/// A row's value.
pub fn stored_value(key: &[u8], bytes: &[u8]) -> bool {
    let Some(value) = pack::value_of(key, bytes.to_vec()) else { return false };
    assert_eq!(pack::stored(key, &value), bytes);
    true
}

/// A row's value as it is stored.
pub fn store_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    pack::stored(key, value)
}

/// A part of the log.
pub fn stored_part(bytes: &[u8]) -> bool {
    let Some(changes) = pack::unpack(bytes) else { return false };
    let mut packer = Packer::new();
    changes.iter().for_each(|change| packer.push(change));
    assert_eq!(packer.finish(), bytes);
    true
}

/// The head of a space of this task.
pub fn stored_head(bytes: &[u8], task: &str) -> bool {
    let Some(head) = Head::of_bytes(bytes, task) else { return false };
    assert_eq!(Head::of_bytes(&head.to_bytes(task), task), Some(head));
    true
}
