//! Schemas by number.
pub type SchemaId = u32;
/// x
#[derive(Debug, Default)]
pub struct SchemaRegistry;
