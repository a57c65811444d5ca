//! One state of everything, as cursors and snapshots read it: statements on a session.

use crate::connection::{Param, Row, Statement};
use crate::keys::{self, stored};
use crate::schema::Statements;
use crate::session::Session;
use std::sync::Arc;
use storage::{Error, Ident, Result, Value};

/// One state of everything.
#[derive(Clone)]
pub(crate) struct PostgresSnapshot {
    pub(crate) statements: Arc<Statements>,
    pub(crate) session: Arc<Session>,
}

impl PostgresSnapshot {
    pub(crate) fn run(&self, statement: &Statement, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.session.run(statement, params).map_err(Error::from)
    }

    /// The values of several keys.
    pub(crate) fn get_many(&self, ident: Ident, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        self.get_several(ident, keys, None)
    }

    /// The same, but for values beyond a length.
    pub(crate) fn get_several(
        &self,
        ident: Ident,
        keys: &[&[u8]],
        longest: Option<usize>,
    ) -> Result<Vec<Option<Value>>> {
        let stored: Vec<_> = keys.iter().map(|key| stored(key)).collect();
        let stored: Vec<Option<&[u8]>> = stored.iter().map(|key| Some(&**key)).collect();
        let mut params = vec![Param::Int(keys::ident(ident)), Param::Many(&stored)];
        let rows = match longest {
            None => self.run(&self.statements.get_many, &params)?,
            Some(longest) => {
                params.push(Param::Int(longest as i64));
                self.run(&self.statements.get_ahead, &params)?
            }
        };
        let mut values = vec![None; keys.len()];
        for row in rows {
            let place = usize::try_from(row.int(0) - 1).ok().and_then(|number| values.get_mut(number));
            if let (Some(place), Some(bytes)) = (place, row.bytes(1)) {
                *place = Some(Value::from(bytes));
            }
        }
        Ok(values)
    }

    /// Whether there is a tree of that number, the log's aside.
    pub(crate) fn has_tree(&self, ident: Ident) -> Result<bool> {
        let rows = self.run(&self.statements.contains, &[Param::Int(keys::ident(ident))])?;
        Ok(!rows.is_empty())
    }

    /// Fails where the state that was begun with has been given up, and the tree is no longer there.
    pub(crate) fn still_has(&self, ident: Ident) -> Result<()> {
        match self.session.is_steady() || self.has_tree(ident)? {
            true => Ok(()),
            false => Err(Error::NoSuchIdent(ident)),
        }
    }
}

/// A column as a value, empty where it is null.
pub(crate) fn value(row: &Row, column: usize) -> Value {
    Value::from(row.bytes(column).unwrap_or_default())
}
