//! PostgreSQL's side of a workload: statements with the workload's values as parameters.

use super::BATCH;
use super::file::{Postgres, Section, Sql, is_due};
use super::generator::ValueContext;
use crate::Result;
use crate::experiment::named;
use crate::target::Target;
use bytes::BytesMut;
use mongodb::bson::{Bson, Document};
use std::error::Error;
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Row, Statement};

/// A value of a workload as a parameter.
#[derive(Debug)]
struct Parameter(Bson);

/// The result of writing a parameter.
type Written = std::result::Result<IsNull, Box<dyn Error + Sync + Send>>;

impl ToSql for Parameter {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Written {
        match (&self.0, kind.kind()) {
            (Bson::Null, _) => Ok(IsNull::Yes),
            (Bson::Array(values), Kind::Array(_)) => {
                let values: Vec<Parameter> = values.iter().cloned().map(Parameter).collect();
                values.to_sql(kind, out)
            }
            (Bson::Int64(number), _) => integer(*number, kind, out),
            (Bson::Int32(number), _) => integer(i64::from(*number), kind, out),
            (Bson::Double(number), _) => number.to_sql(kind, out),
            (Bson::Boolean(value), _) => value.to_sql(kind, out),
            (Bson::DateTime(date), _) => date.to_system_time().to_sql(kind, out),
            (Bson::String(text), _) => text.to_sql(kind, out),
            // Types without a PostgreSQL equivalent become JSON.
            (other, _) => serde_json::to_string(other)?.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Writes a number with the width of the parameter's type.
fn integer(number: i64, kind: &Type, out: &mut BytesMut) -> Written {
    match *kind {
        Type::INT4 => i32::try_from(number)?.to_sql(kind, out),
        Type::FLOAT8 => (number as f64).to_sql(kind, out),
        _ => number.to_sql(kind, out),
    }
}

/// Creates the tables of a section and loads its documents.
///
/// # Errors
/// PostgreSQL refuses.
pub(super) async fn load(target: &Target, section: &Section, plan: &Postgres, documents: u64) -> Result<()> {
    let client = target.postgres().await?;
    named(target, client.batch_execute(&with_schema(target, &plan.setup)?).await)?;
    if let Some(load) = plan.load.as_ref().filter(|_| documents > 0) {
        let load = named(target, client.prepare(load).await)?;
        for first in (0..documents).step_by(BATCH) {
            let numbers = first..documents.min(first + BATCH as u64);
            let column = |name: &String| {
                let values =
                    numbers.clone().map(|number| section.template.field(name, number).unwrap_or(Bson::Null));
                Parameter(Bson::Array(values.collect()))
            };
            let columns: Vec<Parameter> = plan.columns.iter().map(column).collect();
            named(target, client.execute_raw(&load, columns).await)?;
        }
        // A checkpoint during the measurement would distort it. Users without the privilege are refused.
        drop(client.batch_execute("CHECKPOINT").await);
    }
    Ok(())
}

/// Replaces `{schema}` in a text by the lab's schema.
fn with_schema(target: &Target, text: &str) -> Result<String> {
    Ok(text.replace("{schema}", target.database()?))
}

/// A connection with its statements.
pub(super) struct Session {
    target: Target,
    client: Client,
    statements: Vec<Prepared>,
}

/// A statement prepared on the session's connection.
enum Prepared {
    /// Several commands in one message.
    Batch(String),
    One(Statement),
}

impl Session {
    pub(super) async fn open(target: &Target, statements: &[Sql]) -> Result<Session> {
        let client = target.postgres().await?;
        let mut prepared = Vec::new();
        for each in statements {
            let text = with_schema(target, &each.text)?;
            prepared.push(match each.values.is_empty() && each.row.is_none() {
                true => Prepared::Batch(text),
                false => Prepared::One(named(target, client.prepare(&text).await)?),
            });
        }
        Ok(Session { target: target.clone(), client, statements: prepared })
    }

    /// Runs all statements in turn.
    pub(super) async fn run(
        &self,
        plan: &[Sql],
        documents: u64,
        context: &mut ValueContext<'_>,
    ) -> Result<()> {
        for (each, statement) in plan.iter().zip(&self.statements) {
            if !is_due(each.every, context.number) {
                continue;
            }
            let statement = match statement {
                Prepared::One(statement) => statement,
                Prepared::Batch(text) => {
                    named(&self.target, self.client.batch_execute(text).await)?;
                    continue;
                }
            };
            let values: Vec<Parameter> =
                each.values.iter().map(|generator| Parameter(generator.generate(context))).collect();
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
            let found = if statement.columns().is_empty() {
                named(&self.target, self.client.execute(statement, &values).await)?
            } else {
                let rows = named(&self.target, self.client.query(statement, &values).await)?;
                if let (Some(name), Some(row)) = (&each.row, rows.first()) {
                    context.saved.insert(name.clone(), Bson::Document(document(row)));
                }
                rows.len() as u64
            };
            if each.rows.is_some_and(|rows| rows.of(documents) != found) {
                let message = format!("found {found} rows, which is not the expected number");
                return Err(self.target.error(message));
            }
        }
        Ok(())
    }
}

/// Returns the numbers and texts of a row.
fn document(row: &Row) -> Document {
    let value = |at: usize| match *row.columns().get(at)?.type_() {
        Type::INT8 => row.try_get(at).ok().map(Bson::Int64),
        Type::INT4 => row.try_get(at).ok().map(Bson::Int32),
        _ => row.try_get(at).ok().map(Bson::String),
    };
    let names = row.columns().iter().enumerate();
    names.filter_map(|(at, column)| Some((column.name().to_string(), value(at)?))).collect()
}
