//! A query that may be wrong: the understood parts of its text, and its mistakes.

use std::ops::Range;

use thalweg_expr::{Expr, Mistakes, Qualifier, SqlError, SqlErrors};
use thalweg_types::{DataType, Micros, Schema};

use super::bind::{Binding, BoundQuery};
use super::{Call, Output, Query, Window, clauses};
use crate::agg::Function;

/// A text on its way to a query. Whatever is `None` here was not to be read, and that has been reported.
#[derive(Debug)]
pub struct Draft {
    pub(super) text: String,
    pub(super) mistakes: Mistakes,
    pub(super) outputs: Vec<DraftOutput>,
    pub(super) stream: Option<(String, Range<usize>)>,
    pub(super) filter: Option<Expr>,
    pub(super) group_by: Vec<Expr>,
    pub(super) window: Option<Window>,
    pub(super) delay: Micros,
}

#[derive(Debug)]
pub(super) struct DraftOutput {
    pub(super) alias: Option<String>,
    /// One where the output is an aggregate.
    pub(super) calls: Vec<DraftCall>,
    /// What is made of the aggregates.
    pub(super) value: Option<Expr>,
    pub(super) span: Range<usize>,
}

#[derive(Debug)]
pub(super) struct DraftCall {
    pub(super) function: Option<Function>,
    /// Those that could be read; one or none where there is no mistake, several of `count(DISTINCT a, b)`.
    pub(super) args: Vec<Expr>,
    /// The condition of FILTER.
    pub(super) filter: Option<Expr>,
}

impl DraftCall {
    /// What is aggregated: values are null, and so not counted, where the condition of FILTER is not true.
    pub(super) fn arg(&self) -> Option<Expr> {
        let first = self.args.first();
        let first =
            self.filter.as_ref().map_or_else(|| first.cloned(), |filter| Some(Expr::when(filter, first)));
        match self.args.get(1..) {
            Some(more @ [_, ..]) => {
                Some(Expr::tuple(first.into_iter().chain(more.iter().cloned()).collect()))
            }
            _ => first,
        }
    }

    /// With a FILTER, `count(*)` counts values, too: those of its condition that are true.
    pub(super) fn function(&self) -> Option<Function> {
        match self.function {
            Some(Function::CountAll) if self.filter.is_some() => Some(Function::Count),
            function => function,
        }
    }
}

impl Draft {
    /// Reads a text as far as it goes.
    pub fn read(text: &str) -> Self {
        let mut draft = Self {
            text: text.to_owned(),
            mistakes: Mistakes::new(),
            outputs: Vec::new(),
            stream: None,
            filter: None,
            group_by: Vec::new(),
            window: None,
            delay: 0,
        };
        if let Err(error) = clauses::read(text, &mut draft) {
            draft.mistakes.push(error);
        }
        draft
    }

    /// The stream after FROM and its place.
    pub fn stream(&self) -> Option<(&str, Range<usize>)> {
        self.stream.as_ref().map(|(name, span)| (name.as_str(), span.clone()))
    }

    /// Says that the stream is not one that the query may read. Its name is no mistake before a field then.
    pub fn refuse_stream(&mut self, error: SqlError) {
        self.mistakes.push(error);
        self.stream = None;
    }

    /// The query.
    ///
    /// # Errors
    /// Everything that is wrong with the text.
    pub fn finish(self) -> Result<Query, SqlErrors> {
        let Self { text, mistakes, outputs, stream, filter, group_by, window, delay } = self;
        mistakes.finish()?;
        let calls = |calls: &[DraftCall]| {
            calls
                .iter()
                .map(|call| Call { function: call.function().expect(TOLD), arg: call.arg() })
                .collect()
        };
        let outputs = outputs.into_iter().map(|output| Output {
            alias: output.alias.expect(TOLD),
            calls: calls(&output.calls),
            value: output.value,
            span: output.span,
        });
        let (stream, _) = stream.expect(TOLD);
        Ok(Query {
            outputs: outputs.collect(),
            stream,
            filter,
            group_by,
            window: window.expect(TOLD),
            delay,
            text,
        })
    }

    /// The query, and what it is over the fields of its stream.
    ///
    /// # Errors
    /// Everything that is wrong with the text, its syntax, names and types.
    pub fn bind(mut self, schema: &Schema) -> Result<(Query, BoundQuery), SqlErrors> {
        let qualifier = match &self.stream {
            Some((stream, _)) => Qualifier::Stream(stream),
            None => Qualifier::Any,
        };
        let mut binding = Binding { schema, qualifier, mistakes: &mut self.mistakes };
        for output in &self.outputs {
            let types: Vec<Option<DataType>> = output.calls.iter().map(|call| binding.draft(call)).collect();
            let types: Option<Vec<DataType>> = types.into_iter().collect();
            if let (Some(types), Some(value)) = (types, &output.value) {
                binding.value(value, &types);
            }
        }
        if let Some(filter) = &self.filter {
            binding.filter(filter);
        }
        for key in &self.group_by {
            binding.group_key(key);
        }
        let query = self.finish()?;
        let bound = query.bind(schema)?;
        Ok((query, bound))
    }
}

const TOLD: &str = "what is missing has been told";
