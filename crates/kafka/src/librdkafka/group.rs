//! Offsets of a group, by a consumer that reads nothing.

use std::time::Duration;

use rdkafka::Offset;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::client::trouble;
use super::consumer::Served;
use crate::{BusError, Group, GroupOffset, TopicPartition};

pub(super) struct KafkaGroup {
    pub(super) name: String,
    pub(super) served: Served,
    pub(super) timeout: Duration,
}

impl Group for KafkaGroup {
    fn offsets(&mut self, of: &[TopicPartition]) -> Result<Vec<Option<GroupOffset>>, BusError> {
        let action = format!("look up the offsets of group {:?}", self.name);
        let mut list = TopicPartitionList::new();
        for of in of {
            list.add_partition(&of.topic, of.partition);
        }
        let found = self
            .served
            .consumer()
            .committed_offsets(list, self.timeout)
            .map_err(|error| self.served.explained(trouble(action.clone(), &error)))?;
        let mut offsets = Vec::new();
        for of in of {
            let Some(element) = found.find_partition(&of.topic, of.partition) else {
                offsets.push(None);
                continue;
            };
            element.error().map_err(|error| trouble(action.clone(), &error))?;
            offsets.push(match element.offset() {
                Offset::Offset(offset) => {
                    Some(GroupOffset { offset, metadata: element.metadata().to_owned() })
                }
                _ => None,
            });
        }
        Ok(offsets)
    }

    fn commit(&mut self, offsets: &[(TopicPartition, GroupOffset)]) -> Result<(), BusError> {
        let action = || format!("commit offsets of group {:?}", self.name);
        let mut list = TopicPartitionList::new();
        for (of, GroupOffset { offset, metadata }) in offsets {
            list.add_partition_offset(&of.topic, of.partition, Offset::Offset(*offset))
                .map_err(|error| trouble(action(), &error))?;
            if let Some(mut element) = list.find_partition(&of.topic, of.partition) {
                element.set_metadata(metadata);
            }
        }
        let committed = self.served.consumer().commit(&list, CommitMode::Sync);
        committed.map_err(|error| self.served.explained(trouble(action(), &error)))
    }
}
