//! A query that may be wrong: what could be read of its text, and what is wrong with it.

use std::ops::Range;

use thalweg_expr::{Checked, Expr, Mistakes, Qualifier, SqlError, SqlErrors};
use thalweg_types::{Micros, Schema};

use super::bind::{Binding, BoundOutput, BoundQuery};
use super::{Output, Query, Window, clauses};
use crate::agg::Function;

/// A text on its way to a query. Whatever is `None` here was not to be read, and that has been reported.
#[derive(Debug)]
pub struct Draft {
    pub(super) text: String,
    pub(super) mistakes: Mistakes,
    pub(super) outputs: Vec<DraftOutput>,
    pub(super) stream: Option<(String, Range<usize>)>,
    pub(super) filter: Option<Expr>,
    pub(super) group_by: Vec<(String, Range<usize>)>,
    pub(super) window: Option<Window>,
    pub(super) delay: Micros,
}

#[derive(Debug)]
pub(super) struct DraftOutput {
    pub(super) alias: Option<String>,
    pub(super) function: Option<Function>,
    /// Those that could be read; one or none where there is no mistake.
    pub(super) args: Vec<Expr>,
    /// The condition of FILTER.
    pub(super) filter: Option<Expr>,
    pub(super) span: Range<usize>,
}

impl DraftOutput {
    /// What is aggregated: values are null, and so not counted, where the condition of FILTER is not true.
    fn arg(&self) -> Option<Expr> {
        let arg = self.args.first();
        self.filter.as_ref().map_or_else(|| arg.cloned(), |filter| Some(Expr::when(filter, arg)))
    }

    /// With a FILTER, `count(*)` counts values, too: those of its condition that are true.
    fn function(&self) -> Option<Function> {
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

    /// The stream after FROM and where it stands.
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
        let outputs = outputs.into_iter().map(|output| Output {
            function: output.function().expect(TOLD),
            arg: output.arg(),
            alias: output.alias.expect(TOLD),
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
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for output in &self.outputs {
            let mut args = output.args.iter().map(|arg| binding.arg(output.function, arg));
            let mut arg = args.next();
            args.for_each(drop);
            if let Some(filter) = &output.filter {
                binding.filter(filter);
                // What is wrong with either has been told, in its own words.
                let mut again = Mistakes::new();
                let mut both = Binding { schema, qualifier, mistakes: &mut again };
                arg = output.arg().map(|arg| both.arg(output.function(), &arg));
                if binding.mistakes.is_empty() {
                    *binding.mistakes = again;
                }
            }
            outputs.push((arg, output));
        }
        let filter = self.filter.as_ref().map(|filter| binding.filter(filter));
        let group_by = binding.group_by(&self.group_by);
        if !self.mistakes.is_empty() {
            return self.finish().map(|_| unreachable!("there are mistakes"));
        }
        let bound = BoundQuery {
            outputs: outputs
                .into_iter()
                .map(|(arg, output)| BoundOutput {
                    alias: output.alias.clone().expect(TOLD),
                    function: output.function().expect(TOLD),
                    arg: arg.and_then(Checked::bound),
                })
                .collect(),
            filter: filter.and_then(Checked::bound),
            group_by,
        };
        Ok((self.finish()?, bound))
    }
}

const TOLD: &str = "what is missing has been told";
