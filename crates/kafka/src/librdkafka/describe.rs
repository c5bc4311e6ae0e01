//! Ids of topics, for which the binding has no call.

#![expect(unsafe_code, reason = "the call is made through raw pointers; each use says why it holds")]

use std::ffi::{CStr, CString, c_char};
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::client::Client;

use super::client::Context;
use crate::{Topic, TopicId};

/// Adds the ids that the broker knows. A broker without ids, or one that does not answer in time, leaves them out.
pub(super) fn add_ids(client: &Client<Context>, topics: &mut [Topic], timeout: Duration) {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(&*topic.name).ok()).collect();
    if names.len() != topics.len() || names.is_empty() {
        return;
    }
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let rk = client.native_ptr();
    // SAFETY: the client is alive; each thing that is made here is destroyed here, after its last use; what the result
    // has is read before the event goes that holds it.
    unsafe {
        let queue = native::rd_kafka_queue_new(rk);
        let options = native::rd_kafka_AdminOptions_new(
            rk,
            native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
        );
        native::rd_kafka_AdminOptions_set_request_timeout(options, millis, std::ptr::null_mut(), 0);
        let collection =
            native::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        native::rd_kafka_DescribeTopics(rk, collection, options, queue);
        let event = native::rd_kafka_queue_poll(queue, millis);
        if !event.is_null() {
            read(event, topics);
            native::rd_kafka_event_destroy(event);
        }
        native::rd_kafka_TopicCollection_destroy(collection);
        native::rd_kafka_AdminOptions_destroy(options);
        native::rd_kafka_queue_destroy(queue);
    }
}

/// Reads ids out of an event.
///
/// # Safety
/// The event is alive.
unsafe fn read(event: *mut native::rd_kafka_event_t, topics: &mut [Topic]) {
    // SAFETY: alive; all that is reached from it lives as long.
    unsafe {
        let result = native::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return;
        }
        let mut count = 0;
        let described = native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        for index in 0..count {
            let one = *described.add(index);
            let (name, id) = (
                native::rd_kafka_TopicDescription_name(one),
                native::rd_kafka_TopicDescription_topic_id(one),
            );
            if name.is_null() || id.is_null() {
                continue;
            }
            let name = CStr::from_ptr(name).to_string_lossy();
            let high = native::rd_kafka_Uuid_most_significant_bits(id);
            let low = native::rd_kafka_Uuid_least_significant_bits(id);
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&high.to_be_bytes());
            bytes[8..].copy_from_slice(&low.to_be_bytes());
            // Zeros are no id.
            let id = (bytes != [0; 16]).then_some(TopicId(bytes));
            for topic in topics.iter_mut().filter(|topic| *topic.name == *name) {
                topic.id = id;
            }
        }
    }
}
