//! Encodes the blocks of a table and checks each before it is written.

use super::block::{decode, encode};
use super::error::LookupError;
use super::plan::{Planner, Row};
use super::rows::RowBuffer;
use super::text::{BitWriter, Counts, Model};

/// Of a block of rows the bytes that give every name back.
#[derive(Debug)]
pub(crate) struct NameEncoder {
    planner: Planner,
    model: Model,
    bits: BitWriter,
    name: Vec<u8>,
}

impl NameEncoder {
    /// Learns from a sample: `blocks` are rows that are together in one.
    pub(crate) fn learn<'a>(blocks: impl Iterator<Item = Vec<Row<'a>>>) -> Self {
        let mut planner = Planner::default();
        let mut counts = Counts::default();
        for block in blocks {
            planner.plan(&block, is_v4(&block[0].key)).texts.iter().for_each(|text| counts.add(text));
        }
        Self { planner, model: Model::learn(&counts), bits: BitWriter::default(), name: Vec::new() }
    }

    /// Appends the block of these rows to `out`, decodes every name of it and compares.
    pub(crate) fn encode(&mut self, rows: &RowBuffer, out: &mut Vec<u8>) -> Result<(), LookupError> {
        let rows: Vec<Row<'_>> = rows.iter().map(|(key, name)| Row { key, name }).collect();
        let start = out.len();
        let planned = self.planner.plan(&rows, is_v4(&rows[0].key));
        encode(&planned, &self.model, &mut self.bits, out);
        let names = (&self.planner.dictionary, &self.model);
        for (place, row) in rows.iter().enumerate() {
            self.name.clear();
            let decoded = decode(&out[start..], rows.len(), place, &row.key, names, &mut self.name);
            if decoded.is_none() || self.name != row.name {
                return Err(LookupError::Encoding { key: super::address::show(&row.key) });
            }
        }
        Ok(())
    }

    /// Sections of the dictionary and of the model.
    pub(crate) fn sections(&self) -> (Vec<u8>, Vec<u8>) {
        (self.planner.dictionary.to_bytes(), self.model.to_bytes())
    }

    pub(crate) fn template_count(&self) -> u64 {
        self.planner.dictionary.len() as u64
    }
}

pub(crate) fn is_v4(key: &[u8; 16]) -> bool {
    super::address::v4(key).is_some()
}
