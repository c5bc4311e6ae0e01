//! Rows of a frame that was received.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::cursor::Cursor;
use super::head::Head;
use super::place::{Places, read_position};
use super::{FrameError, MAX_ROWS, Part, packed, squeeze};

/// A frame of rows: where they belong is read, the rows themselves are not yet.
#[derive(Clone, Debug)]
pub struct RowFrame {
    pub head: Head,
    pub places: Places,
    pub(super) body: Buffer,
    /// The byte of the body after the places.
    at: usize,
}

/// All rows of one input, in the order in which the frame has them.
#[derive(Clone, Debug, PartialEq)]
pub struct InputRows {
    pub input: u32,
    pub records: RecordBatch,
}

impl RowFrame {
    /// Reads what follows the flags.
    pub(super) fn read(flags: u8, mut cursor: Cursor<'_>) -> Result<Self, FrameError> {
        let head = Head::read(flags, &mut cursor)?;
        let rows = cursor.count("rows", 1, MAX_ROWS)?;
        let pos = cursor.pos();
        let first = read_position(head.after.position, &mut cursor)?;
        let first = head.after.next(first).ok_or_else(|| {
            cursor.damaged(pos, "rows of one position", format_args!("at most {}", u32::MAX), "more")
        })?;
        let body = squeeze::unpack(flags, cursor)?;
        let mut cursor = Cursor::new(&body, Part::Body, 0);
        let places = Places::read(&head, flags, first, rows, &mut cursor)?;
        let at = cursor.pos() as usize;
        Ok(Self { head, places, body, at })
    }

    /// Number of rows, at least one.
    #[expect(clippy::len_without_is_empty, reason = "it has at least one row")]
    pub fn len(&self) -> usize {
        self.places.marks.len()
    }

    /// Reads the rows, those of each input by themselves, in the order of their first rows. Long texts and bits are not
    /// copied: they are in the body, which the columns keep alive.
    ///
    /// `schema` gives the schema of an input by the spec of the head.
    ///
    /// # Errors
    /// [`FrameError::UnknownInput`], [`FrameError::Damaged`] and [`FrameError::Unsupported`].
    pub fn decode(&self, schema: impl Fn(u32) -> Option<SchemaRef>) -> Result<Vec<InputRows>, FrameError> {
        let mut cursor = Cursor::new(&self.body, Part::Body, 0);
        cursor.skip_to(self.at as u64, "places")?;
        let mut inputs = Vec::with_capacity(1);
        for run in self.places.inputs() {
            let (input, rows) = (run.input, run.rows as usize);
            let schema = schema(input).ok_or(FrameError::UnknownInput { spec: self.head.spec, input })?;
            let columns = packed::read(schema.fields(), rows, self.head.arrival, &self.body, &mut cursor)?;
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let records = RecordBatch::try_new_with_options(schema, columns, &options)
                .map_err(|error| cursor.damaged(cursor.pos(), "columns", "those of the schema", error))?;
            inputs.push(InputRows { input, records });
        }
        cursor.end()?;
        Ok(inputs)
    }
}
