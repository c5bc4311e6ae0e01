//! SQL scalar expressions over records: parse, bind, evaluate by columns.
