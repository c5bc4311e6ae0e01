//! The message of an error of an element.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray, UInt64Array};
use thalweg_types::{Batch, SeqRange, Seqs};

use super::driver::Driver;
use super::one;
use super::tally::{POISON, elements, numbers};
use crate::element::{ElementSettings, ElementState};
use crate::operator::At;
use crate::{InputId, Operator, Output};

#[test]
fn an_error_names_the_key_and_the_record() {
    let mut driver = Driver::new(elements(1, ElementSettings::default(), ElementState::in_memory()));
    let mut at = At::Unsaid;
    let records = [one(1, 1, 0), one(7, POISON, 0), one(2, 1, 0)];
    let error = driver.records(5, &records.iter().collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.chain(), "element key=\"k7\": the number is poison");
    let keys: ArrayRef = Arc::new(StringViewArray::from(vec!["k1", "k7"]));
    let ids: ArrayRef = Arc::new(UInt64Array::new_null(2));
    let columns = vec![keys, Arc::new(Int64Array::from(vec![1, POISON])) as ArrayRef, ids];
    let batch = RecordBatch::try_new(Arc::clone(numbers().arrow()), columns).unwrap();
    let range = SeqRange::new(5, 7);
    let batch = Batch::new(range, batch, vec![0, 0].into(), Seqs::Dense(5));
    let mut out = Output { who: None, emitted: &mut Vec::new(), at: &mut at, range, core: None, parts: None };
    driver.elements.process(InputId { port: 0, task: 0 }, batch, &mut out).unwrap_err();
    assert_eq!(at, At::Record(6));
}
