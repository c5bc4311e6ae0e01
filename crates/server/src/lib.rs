//! HTTP: sources with answers in the reply, present values, queries, jobs, metrics.
