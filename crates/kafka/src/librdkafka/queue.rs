//! The queue of one partition in the library: its messages are taken many at a time, without a copy.
//!
//! The library's own binding takes them one by one, and makes an event of each.

#![expect(
    unsafe_code,
    reason = "the library's queues and messages are behind raw pointers; each use says why it holds"
)]

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as native;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;

use super::client::{Context, problem_of};
use crate::{BusError, Header, Message, Taken, TopicPartition, Wake};

/// Messages that are taken out at once.
const BATCH: usize = 1_024;

/// The queue of a partition, apart from those of others.
pub(super) struct PartitionQueue {
    queue: *mut native::rd_kafka_queue_t,
    of: TopicPartition,
    /// Taken out and not yet given; each is destroyed once.
    taken: VecDeque<*mut native::rd_kafka_message_t>,
    /// How many of them, from the first, were looked at.
    peeked: usize,
    room: Vec<*mut native::rd_kafka_message_t>,
    /// The library calls this while the queue lives: behind a pointer that does not move.
    _wake: Box<Wake>,
    /// The queue is the client's, and goes before it.
    _client: Arc<BaseConsumer<Context>>,
}

// SAFETY: the library's queues and messages may be used from any thread, by one at a time, which `&mut self` ensures.
unsafe impl Send for PartitionQueue {}

/// Called by the library when the queue has messages after it had none.
unsafe extern "C" fn has_messages(_: *mut native::rd_kafka_t, wake: *mut c_void) {
    // SAFETY: `wake` is the box of the queue, which takes the callback back before it goes.
    let wake = unsafe { &*wake.cast::<Wake>() };
    wake();
}

impl PartitionQueue {
    /// Takes the queue of a partition apart; before the partition is assigned, so that no message goes elsewhere.
    pub(super) fn of(
        client: &Arc<BaseConsumer<Context>>,
        of: &TopicPartition,
        wake: &Wake,
    ) -> Result<Self, BusError> {
        let failed = |said: &str| BusError::new(crate::Problem::Other, format!("read {of}"), said);
        let topic = CString::new(&*of.topic).map_err(|_| failed("the topic's name has a NUL"))?;
        let wake = Box::new(Arc::clone(wake));
        let opaque = (&raw const *wake).cast_mut().cast::<c_void>();
        // SAFETY: client and name are alive; the queue is checked before it is used.
        let queue = unsafe {
            let queue = native::rd_kafka_queue_get_partition(
                client.client().native_ptr(),
                topic.as_ptr(),
                of.partition,
            );
            if queue.is_null() {
                return Err(failed("the client has no such partition"));
            }
            native::rd_kafka_queue_forward(queue, std::ptr::null_mut());
            native::rd_kafka_queue_cb_event_enable(queue, Some(has_messages), opaque);
            queue
        };
        Ok(Self {
            queue,
            of: of.clone(),
            taken: VecDeque::new(),
            peeked: 0,
            room: vec![std::ptr::null_mut(); BATCH],
            _wake: wake,
            _client: Arc::clone(client),
        })
    }

    /// As [`crate::Consumer::take`].
    pub(super) fn take(
        &mut self,
        wait: Duration,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<Taken, BusError> {
        let mut taken = Taken::default();
        loop {
            let wait = if taken.messages == 0 && taken.end.is_none() { wait } else { Duration::ZERO };
            let Some(message) = self.next(wait) else { return Ok(taken) };
            // SAFETY: the message was taken out of the queue and is destroyed below, once.
            let (error, offset) = unsafe { ((*message).err, (*message).offset) };
            if error == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF {
                taken.end = Some(offset);
                // SAFETY: nothing refers to it any more.
                unsafe { native::rd_kafka_message_destroy(message) };
                continue;
            }
            // SAFETY: the message was taken out of the queue and is destroyed below, once.
            let outcome = unsafe { Self::give(&self.of, message, each) };
            match outcome {
                Ok(more) => {
                    taken.messages += 1;
                    // SAFETY: nothing refers to it any more.
                    unsafe { native::rd_kafka_message_destroy(message) };
                    if !more {
                        return Ok(taken);
                    }
                }
                Err(_) if taken.messages > 0 => {
                    // It is told with the next call.
                    self.taken.push_front(message);
                    return Ok(taken);
                }
                Err(error) => {
                    // SAFETY: as above.
                    unsafe { native::rd_kafka_message_destroy(message) };
                    return Err(error);
                }
            }
        }
    }

    /// As [`crate::Consumer::peek`].
    pub(super) fn peek(&mut self, each: &mut dyn FnMut(&Message<'_>) -> bool) -> Result<Taken, BusError> {
        let mut peeked = Taken::default();
        loop {
            if self.peeked >= self.taken.len() {
                self.fetch(Duration::ZERO);
            }
            let Some(message) = self.taken.get(self.peeked).copied() else { return Ok(peeked) };
            // SAFETY: the message was taken out of the queue and is not destroyed while it is in `taken`.
            let (error, offset) = unsafe { ((*message).err, (*message).offset) };
            if error == native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__PARTITION_EOF {
                peeked.end = Some(offset);
                self.forget_peeked();
                continue;
            }
            // SAFETY: as above.
            match unsafe { Self::give(&self.of, message, each) } {
                Ok(more) => {
                    peeked.messages += 1;
                    self.peeked += 1;
                    if !more {
                        return Ok(peeked);
                    }
                }
                // It is told with the next call.
                Err(_) if peeked.messages > 0 => return Ok(peeked),
                Err(error) => {
                    self.forget_peeked();
                    return Err(error);
                }
            }
        }
    }

    /// As [`crate::Consumer::peek_again`].
    pub(super) fn peek_again(&mut self) {
        self.peeked = 0;
    }

    /// Takes out the message that is looked at next.
    fn forget_peeked(&mut self) {
        if let Some(message) = self.taken.remove(self.peeked) {
            // SAFETY: it was taken out of the queue, and nothing refers to it any more.
            unsafe { native::rd_kafka_message_destroy(message) };
        }
    }

    fn next(&mut self, wait: Duration) -> Option<*mut native::rd_kafka_message_t> {
        if self.taken.is_empty() {
            self.fetch(wait);
        }
        let next = self.taken.pop_front();
        self.peeked = self.peeked.saturating_sub(1);
        next
    }

    /// Takes messages out of the library's queue, as many as there are and fit.
    fn fetch(&mut self, wait: Duration) {
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive, and `room` has as many places as are named.
        let count = unsafe {
            native::rd_kafka_consume_batch_queue(self.queue, wait, self.room.as_mut_ptr(), self.room.len())
        };
        // -1 is an error of arguments, which are fixed.
        let count = usize::try_from(count).unwrap_or(0);
        self.taken.extend(&self.room[..count]);
    }

    /// Shows a message to `each`.
    ///
    /// # Safety
    /// `message` is alive.
    unsafe fn give(
        of: &TopicPartition,
        message: *mut native::rd_kafka_message_t,
        each: &mut dyn FnMut(&Message<'_>) -> bool,
    ) -> Result<bool, BusError> {
        // SAFETY: alive, by the contract of this function.
        let raw = unsafe { &*message };
        if raw.err != native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            let code = RDKafkaErrorCode::from(raw.err);
            // SAFETY: as above; the text is part of the message.
            let said = unsafe { CStr::from_ptr(native::rd_kafka_message_errstr(message)) };
            let said = said.to_string_lossy().into_owned();
            return Err(BusError::new(problem_of(code), format!("read {of}"), said));
        }
        let mut kind = native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: as above.
        let timestamp = unsafe { native::rd_kafka_message_timestamp(message, &raw mut kind) };
        // SAFETY: pointers and lengths of a message belong together and live as long as it does.
        let (key, value) = unsafe { (bytes(raw.key, raw.key_len), bytes(raw.payload, raw.len)) };
        let headers = |each: &mut dyn FnMut(Header<'_>)| {
            // SAFETY: the message outlives this call.
            unsafe { headers(message, each) }
        };
        Ok(each(&Message {
            offset: raw.offset,
            timestamp: (kind != native::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
                .then_some(timestamp),
            key,
            value,
            headers: &headers,
        }))
    }
}

impl Drop for PartitionQueue {
    fn drop(&mut self) {
        // SAFETY: messages and queue are alive and used no more; the callback ends before its box does.
        unsafe {
            native::rd_kafka_queue_cb_event_enable(self.queue, None, std::ptr::null_mut());
            for message in self.taken.drain(..) {
                native::rd_kafka_message_destroy(message);
            }
            native::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// Bytes of a message; none where it has a null.
///
/// # Safety
/// `len` bytes are at `at`, unless that is null.
unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: by the contract of this function.
    (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) })
}

/// Calls back for each header.
///
/// # Safety
/// `message` is alive.
unsafe fn headers(message: *const native::rd_kafka_message_t, each: &mut dyn FnMut(Header<'_>)) {
    let none = native::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
    let mut list = std::ptr::null_mut();
    // SAFETY: alive; what is returned belongs to the message and lives as long.
    unsafe {
        if native::rd_kafka_message_headers(message, &raw mut list) != none {
            return;
        }
        for index in 0.. {
            let (mut name, mut value, mut len) = (std::ptr::null(), std::ptr::null(), 0);
            let found =
                native::rd_kafka_header_get_all(list, index, &raw mut name, &raw mut value, &raw mut len);
            if found != none {
                return;
            }
            let name = CStr::from_ptr(name).to_string_lossy();
            each(Header { name: &name, value: bytes(value, len) });
        }
    }
}
