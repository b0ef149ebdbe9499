//! One table, declared once by its columns, in every form that people and programs read.

mod column;
mod forms;
mod value;

pub use column::Column;
pub use value::Value;

use column::{Head, Sum};

/// Rows of values under the heads of their columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    heads: Vec<Head>,
    rows: Vec<Vec<Value>>,
    /// The column that is coloured, and its class of colour row by row.
    colours: Option<(&'static str, Vec<&'static str>)>,
    /// What stands in the first column like in the row above is not said again to people.
    grouped: bool,
}

impl Table {
    /// What the columns show of each row.
    pub fn of<'r, R: 'r>(columns: &[Column<R>], rows: impl IntoIterator<Item = &'r R>) -> Self {
        let values = |row| columns.iter().map(|column| column.of(row)).collect();
        Self {
            heads: columns.iter().map(|column| column.head.clone()).collect(),
            rows: rows.into_iter().map(values).collect(),
            ..Self::default()
        }
    }

    /// The same columns without a row.
    pub fn emptied(&self) -> Self {
        Self {
            heads: self.heads.clone(),
            grouped: self.grouped,
            ..Self::default()
        }
    }

    /// Adds the rows of a table of the same columns.
    pub fn append(&mut self, other: Self) {
        self.rows.extend(other.rows);
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The values of a column, by its key.
    pub fn values<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a Value> {
        let column = self.heads.iter().position(|head| head.key == key);
        let value = move |row: &'a Vec<Value>| row.get(column?);
        self.rows.iter().filter_map(value)
    }

    /// The figures of a column as people read them, shares in percent.
    pub fn figures(&self, key: &str) -> Vec<Option<f64>> {
        let Some(head) = self.heads.iter().find(|head| head.key == key) else {
            return Vec::new();
        };
        let figure = |value: &Value| value.number().map(|number| head.scaled(number));
        self.values(key).map(figure).collect()
    }

    /// Says what a column shares with the row above only once, to people.
    #[must_use]
    pub fn grouped(mut self) -> Self {
        self.grouped = true;
        self
    }

    /// Colours a column on a page by the class that each of its values has. Last, once no row changes any more.
    #[must_use]
    pub fn coloured(mut self, key: &'static str, class: impl Fn(&str) -> &'static str) -> Self {
        let classes = self.values(key).map(|value| class(value.as_text()));
        self.colours = Some((key, classes.collect()));
        self
    }

    /// Without the columns of this key: what a heading says already.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        let keep: Vec<bool> = self.heads.iter().map(|head| head.key != key).collect();
        self.keep(&keep);
        self
    }

    /// Without columns in which no row has anything.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        let said = |at: usize| self.rows.iter().any(|row| !row[at].is_nothing());
        let keep: Vec<bool> = (0..self.heads.len()).map(said).collect();
        self.keep(&keep);
        self
    }

    /// The rows for each value of these columns, in the order in which they come first, without those columns.
    pub fn split(&self, keys: &[&str]) -> Vec<(String, Self)> {
        let named = |at: &usize| keys.contains(&self.heads[*at].key);
        let columns: Vec<usize> = (0..self.heads.len()).filter(named).collect();
        let mut parts: Vec<(String, Self)> = Vec::new();
        for row in &self.rows {
            let name = columns.iter().map(|at| self.heads[*at].shown(&row[*at]));
            let name = name.collect::<Vec<_>>().join(", ");
            match parts.iter_mut().find(|(known, _)| *known == name) {
                Some((_, part)) => part.rows.push(row.clone()),
                None => {
                    let rows = vec![row.clone()];
                    parts.push((
                        name,
                        Self {
                            rows,
                            ..self.emptied()
                        },
                    ));
                }
            }
        }
        let without = |(name, part): (String, Self)| {
            let part = keys.iter().fold(part, |part, key| part.without(key));
            (name, part)
        };
        parts.into_iter().map(without).collect()
    }

    /// The rows that are summed up together, by their numbers: those that agree in the columns that are not summed up.
    fn groups(&self) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..self.heads.len())
            .filter(|at| self.heads[*at].sum == Sum::Same)
            .collect();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            let same = |group: &&mut Vec<usize>| {
                let first = group.first().map(|first| &self.rows[*first]);
                first.is_some_and(|first| keys.iter().all(|at| first[*at] == row[*at]))
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(number),
                None => groups.push(vec![number]),
            }
        }
        groups
    }

    /// Without the figure of a column in all rows that are summed up with one that lacks it: their sum would be that of the others alone.
    #[must_use]
    pub fn only_whole(mut self, key: &str) -> Self {
        let Some(at) = self.heads.iter().position(|head| head.key == key) else {
            return self;
        };
        for group in self.groups() {
            let lacks = |row: &usize| self.rows[*row][at].number().is_none_or(f64::is_nan);
            if group.iter().any(lacks) {
                for row in group {
                    self.rows[row][at] = Value::Nothing;
                }
            }
        }
        self
    }

    /// One row for all rows that agree in the columns that are not summed up, in the order in which they come first.
    #[must_use]
    pub fn summed_up(&self) -> Self {
        let sum = |group: &Vec<usize>| {
            let columns = self.heads.iter().enumerate();
            let of_column = |(at, head): (usize, &Head)| {
                let values = group.iter().map(|row| &self.rows[*row][at]);
                head.sum.of(values)
            };
            columns.map(of_column).collect()
        };
        let mut table = Self {
            rows: self.groups().iter().map(sum).collect(),
            ..self.emptied()
        };
        let keep: Vec<bool> = self
            .heads
            .iter()
            .map(|head| head.sum != Sum::Dropped)
            .collect();
        table.keep(&keep);
        table
    }

    fn keep(&mut self, keep: &[bool]) {
        fn of<T>(values: &mut Vec<T>, keep: &[bool]) {
            let mut keep = keep.iter();
            values.retain(|_| keep.next().is_none_or(|keep| *keep));
        }
        of(&mut self.heads, keep);
        self.rows.iter_mut().for_each(|row| of(row, keep));
    }
}

#[cfg(test)]
mod tests;
