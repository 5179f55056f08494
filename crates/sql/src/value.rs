use bytes::Bytes;
use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::postgres::{PgArguments, PgRow};
#[cfg(feature = "sqlite")]
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Column, Row as _, TypeInfo};

use crate::error::StoreError;

/// A parameter of a statement; a null is typed too.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Value {
    Int(Option<i64>),
    Bool(Option<bool>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Time(Option<Timestamp>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
}

macro_rules! from {
    ($($type:ty => $variant:ident($convert:expr)),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                #[allow(clippy::redundant_closure_call)]
                Value::$variant(($convert)(value))
            }
        }
    )*};
}

from! {
    i64 => Int(Some),
    i32 => Int(|n| Some(i64::from(n))),
    u32 => Int(|n| Some(i64::from(n))),
    u16 => Int(|n| Some(i64::from(n))),
    Option<i64> => Int(|n| n),
    bool => Bool(Some),
    &str => Text(|t: &str| Some(t.to_owned())),
    String => Text(Some),
    &String => Text(|t: &String| Some(t.clone())),
    Option<String> => Text(|t| t),
    Option<&str> => Text(|t: Option<&str>| t.map(str::to_owned)),
    Vec<u8> => Bytes(Some),
    &[u8] => Bytes(|b: &[u8]| Some(b.to_vec())),
    &Bytes => Bytes(|b: &Bytes| Some(b.to_vec())),
    Timestamp => Time(Some),
    Option<Timestamp> => Time(|t| t),
    Vec<i64> => Ints(|n| n),
    Vec<String> => Texts(|t| t),
}

/// What can be a parameter of a statement: text, numbers, times, bytes, lists, enums of your own.
///
/// ```
/// use chapar_sql::{Param, Value};
///
/// enum Colour { Red }
///
/// impl Param for Colour {
///     fn param(&self) -> Value {
///         match self { Colour::Red => "red".param() }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a statement",
    label = "not text, a number, a time, bytes, or a list of text or numbers",
    note = "implement `Param` for `{Self}`, or pass one of its fields"
)]
pub trait Param {
    /// The parameter.
    fn param(&self) -> Value;
}

impl<T: Param + ?Sized> Param for &T {
    fn param(&self) -> Value {
        (**self).param()
    }
}

impl Param for Value {
    fn param(&self) -> Value {
        self.clone()
    }
}

impl Param for str {
    fn param(&self) -> Value {
        self.into()
    }
}

macro_rules! param {
    ($($type:ty),* $(,)?) => {$(
        impl Param for $type {
            fn param(&self) -> Value {
                Value::from(self.clone())
            }
        }

        impl Param for Option<$type> {
            fn param(&self) -> Value {
                match self {
                    Some(value) => value.param(),
                    // A null of the same type as the value would have.
                    None => Value::from(<$type>::default()).into_null(),
                }
            }
        }
    )*};
}

param!(String, i64, i32, u32, u16, bool, Vec<u8>, Timestamp);

impl Param for Option<&str> {
    fn param(&self) -> Value {
        Value::from(*self)
    }
}

impl Param for [u8] {
    fn param(&self) -> Value {
        self.into()
    }
}

impl Param for Bytes {
    fn param(&self) -> Value {
        self.into()
    }
}

impl Param for Vec<i64> {
    fn param(&self) -> Value {
        self.clone().into()
    }
}

impl Param for Vec<String> {
    fn param(&self) -> Value {
        self.clone().into()
    }
}

impl Value {
    /// Nothing, of the same type.
    fn into_null(self) -> Self {
        match self {
            Value::Int(_) => Value::Int(None),
            Value::Text(_) => Value::Text(None),
            Value::Bytes(_) => Value::Bytes(None),
            Value::Time(_) => Value::Time(None),
            Value::Bool(_) => Value::Bool(None),
            list @ (Value::Ints(_) | Value::Texts(_)) => list,
        }
    }

    pub(crate) fn bind_postgres(self, to: &mut PgArguments) -> Result<(), StoreError> {
        let bound = match self {
            Value::Int(n) => to.add(n),
            Value::Bool(b) => to.add(b),
            Value::Text(t) => to.add(t),
            Value::Bytes(b) => to.add(b),
            Value::Time(t) => to.add(t.map(|t| t.to_sqlx())),
            Value::Ints(n) => to.add(n),
            Value::Texts(t) => to.add(t),
        };
        bound.map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn bind_sqlite(self, to: &mut SqliteArguments) -> Result<(), StoreError> {
        let bound = match self {
            Value::Int(n) => to.add(n),
            Value::Bool(b) => to.add(b.map(i64::from)),
            Value::Text(t) => to.add(t),
            Value::Bytes(b) => to.add(b),
            Value::Time(t) => to.add(t.map(|t| t.as_microsecond())),
            Value::Ints(n) => to.add(serde_json::Value::from(n).to_string()),
            Value::Texts(t) => to.add(serde_json::Value::from(t).to_string()),
        };
        bound.map_err(|error| StoreError::Database(sqlx::Error::Encode(error)))
    }
}

/// A row of a result, on either database.
#[derive(Debug)]
pub struct Row(pub(crate) RowInner);

#[derive(Debug)]
pub(crate) enum RowInner {
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    /// The value of a column, counted from 0.
    pub fn get<T: FromCell>(&self, column: usize) -> Result<T, StoreError> {
        T::from_cell(self, column)
    }

    /// The value of the column of this name.
    pub fn named<T: FromCell>(&self, name: &str) -> Result<T, StoreError> {
        let column = match &self.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => row.columns().iter().position(|c| c.name() == name),
            RowInner::Postgres(row) => row.columns().iter().position(|c| c.name() == name),
        };
        let column = column.ok_or_else(|| StoreError::Column(name.to_owned()))?;
        T::from_cell(self, column)
    }
}

/// What a row can be read into: a column's type, a tuple of them in the order of the columns, or a
/// struct that derives `FromRow`, whose fields are found by name.
#[diagnostic::on_unimplemented(
    message = "a row cannot be read into `{Self}`",
    label = "neither a column's type, a tuple of them, nor a struct that derives `FromRow`",
    note = "add `#[derive(FromRow)]` to `{Self}`"
)]
pub trait FromRow: Sized {
    /// Reads it.
    fn from_row(row: &Row) -> Result<Self, StoreError>;
}

impl<T: FromCell> FromRow for T {
    fn from_row(row: &Row) -> Result<Self, StoreError> {
        row.get(0)
    }
}

macro_rules! tuple {
    ($($type:ident $column:literal),*) => {
        impl<$($type: FromCell),*> FromRow for ($($type,)*) {
            fn from_row(row: &Row) -> Result<Self, StoreError> {
                Ok(($(row.get::<$type>($column)?,)*))
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// What can be read from a column.
pub trait FromCell: Sized {
    /// Reads it.
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError>;
}

fn wrong<E>(column: usize, expected: &'static str) -> impl FnOnce(E) -> StoreError {
    move |_| StoreError::Cell { column, expected }
}

impl FromCell for Option<i64> {
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
        const EXPECTED: &str = "an integer";
        match &row.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => row.try_get(column).map_err(wrong(column, EXPECTED)),
            RowInner::Postgres(row) => {
                let Some(info) = row.columns().get(column).map(|c| c.type_info()) else {
                    return Err(StoreError::Cell { column, expected: EXPECTED });
                };
                match info.name() {
                    "INT2" => row.try_get::<Option<i16>, _>(column).map(|n| n.map(i64::from)),
                    "INT4" => row.try_get::<Option<i32>, _>(column).map(|n| n.map(i64::from)),
                    _ => row.try_get(column),
                }
                .map_err(wrong(column, EXPECTED))
            }
        }
    }
}

impl FromCell for Option<bool> {
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
        match &row.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => {
                let n: Option<i64> = row.try_get(column).map_err(wrong(column, "a boolean"))?;
                Ok(n.map(|n| n != 0))
            }
            RowInner::Postgres(row) => row.try_get(column).map_err(wrong(column, "a boolean")),
        }
    }
}

impl FromCell for Option<String> {
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
        match &row.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => row.try_get(column).map_err(wrong(column, "text")),
            RowInner::Postgres(row) => row.try_get(column).map_err(wrong(column, "text")),
        }
    }
}

impl FromCell for Option<Bytes> {
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
        let bytes: Option<Vec<u8>> = match &row.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => row.try_get(column).map_err(wrong(column, "bytes"))?,
            RowInner::Postgres(row) => row.try_get(column).map_err(wrong(column, "bytes"))?,
        };
        Ok(bytes.map(Bytes::from))
    }
}

impl FromCell for Option<Timestamp> {
    fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
        match &row.0 {
            #[cfg(feature = "sqlite")]
            RowInner::Sqlite(row) => {
                let us: Option<i64> = row.try_get(column).map_err(wrong(column, "a time"))?;
                us.map(Timestamp::from_microsecond).transpose().map_err(wrong(column, "a time"))
            }
            RowInner::Postgres(row) => {
                let time: Option<jiff_sqlx::Timestamp> =
                    row.try_get(column).map_err(wrong(column, "a time"))?;
                Ok(time.map(|time| time.to_jiff()))
            }
        }
    }
}

macro_rules! not_null {
    ($($type:ty => $expected:literal),*) => {$(
        impl FromCell for $type {
            fn from_cell(row: &Row, column: usize) -> Result<Self, StoreError> {
                Option::<$type>::from_cell(row, column)?
                    .ok_or(StoreError::Cell { column, expected: $expected })
            }
        }
    )*};
}

not_null!(i64 => "an integer that is not null", bool => "a boolean that is not null",
          String => "text that is not null", Bytes => "bytes that are not null",
          Timestamp => "a time that is not null");
