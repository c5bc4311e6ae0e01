//! Columns of the reservoir, put back into the places that a manifest gives them.

use arrow_schema::DataType as ArrowType;
use thalweg_types::Error;

use super::queries::unused_column;
use super::restore::contradiction;

/// Columns of a layout on the way.
pub(super) struct LayoutPlaces(Vec<Option<(String, ArrowType)>>);

impl LayoutPlaces {
    pub(super) fn new(columns: usize) -> Result<Self, Error> {
        let mut places = vec![None; columns];
        let first = places.first_mut().ok_or_else(|| contradiction(&"a layout without columns"))?;
        *first = Some(("time".to_owned(), ArrowType::Int64));
        Ok(Self(places))
    }

    pub(super) fn take(&mut self, place: usize, name: String, data_type: ArrowType) -> Result<(), Error> {
        match self.0.get_mut(place) {
            Some(column @ None) => {
                *column = Some((name, data_type));
                Ok(())
            }
            _ => Err(contradiction(&format_args!("column {place} of the layout is taken twice"))),
        }
    }

    /// All columns, and the places of those that were not taken.
    pub(super) fn finish(self) -> (Vec<(String, ArrowType)>, Vec<usize>) {
        let unused = (0..self.0.len()).filter(|place| self.0[*place].is_none()).collect();
        let columns = self.0.into_iter().enumerate();
        let columns = columns.map(|(place, column)| column.unwrap_or_else(|| unused_column(place))).collect();
        (columns, unused)
    }
}
