//! Single values of a column in the image of a group.

use arrow_buffer::i256;

use super::{Column, INLINE, Values, heap_bytes, make_view};
use crate::image::{Malformed, Reader, put, put_bytes, put_signed, put_wide};

impl Column {
    /// Appends the value at `at` to an image.
    pub(crate) fn save(&self, at: usize, out: &mut Vec<u8>) {
        let is_valid = self.valid.as_ref().is_none_or(|valid| valid[at]);
        out.push(u8::from(is_valid));
        if !is_valid {
            return;
        }
        match &self.values {
            Values::I64(values) => put_signed(out, values[at]),
            Values::U64(values) => put(out, values[at]),
            Values::U32(values) => put(out, u64::from(values[at])),
            Values::F64(values) => out.extend_from_slice(&values[at].to_bits().to_le_bytes()),
            Values::I128(values) => put_wide(out, &values[at].to_le_bytes()),
            Values::I256(values) => put_wide(out, &values[at].to_le_bytes()),
            Values::Bool(values) => out.push(u8::from(values[at])),
            Values::Fixed16(values) => out.extend_from_slice(&values[at]),
            Values::Views { views, heap } => {
                let view = views[at];
                let len = (view as u32) as usize;
                match len <= INLINE {
                    true => put_bytes(out, &view.to_le_bytes()[4..4 + len]),
                    false => put_bytes(out, heap_bytes(view, heap)),
                }
            }
        }
    }

    /// Appends to the column what [`Column::save`] wrote.
    pub(crate) fn load(&mut self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        const WHAT: &str = "value of a record";
        if !image.flag("validity of a value")? {
            self.extend_nulls(1);
            return Ok(());
        }
        let is_text = self.data_type == arrow_schema::DataType::Utf8View;
        match &mut self.values {
            Values::I64(values) => values.push(image.signed(WHAT)?),
            Values::U64(values) => values.push(image.number(WHAT)?),
            Values::U32(values) => values.push(image.word(WHAT)?),
            Values::F64(values) => values.push(f64::from_bits(u64::from_le_bytes(image.array(WHAT)?))),
            Values::I128(values) => values.push(i128::from_le_bytes(image.wide(WHAT)?)),
            Values::I256(values) => values.push(i256::from_le_bytes(image.wide(WHAT)?)),
            Values::Bool(values) => values.push(image.flag(WHAT)?),
            Values::Fixed16(values) => values.push(image.array(WHAT)?),
            Values::Views { views, heap } => {
                let bytes = if is_text { image.text(WHAT)?.as_bytes() } else { image.bytes(WHAT)? };
                views.push(make_view(bytes, heap));
            }
        }
        if let Some(valid) = &mut self.valid {
            valid.push(true);
        }
        Ok(())
    }
}
