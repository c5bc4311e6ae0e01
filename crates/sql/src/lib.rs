//! SQL over the tables of jobs.
