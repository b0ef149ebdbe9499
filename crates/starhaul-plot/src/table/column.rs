//! What a column is called, how it is shown, and what becomes of it when rows are summed up.

use super::Value;

/// A column of a table whose rows are `R`.
pub struct Column<R> {
    pub(super) head: Head,
    of: Box<dyn Fn(&R) -> Value + Send + Sync>,
}

/// A column without its rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub(super) key: &'static str,
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// On a terminal, where there is little room.
    pub(super) brief: &'static str,
    pub(super) show: Show,
    /// Digits after the point in a CSV file; all if it is not said.
    pub(super) digits: Option<usize>,
    pub(super) sum: Sum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    Words,
    /// With so many digits after the point.
    Decimals(usize),
    /// Of 0 to 1, in percent with so many digits after the point.
    Percent(usize),
}

/// What becomes of the values of rows that are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    /// Only rows in which it is the same are summed up.
    Same,
    Median,
    Total,
    Least,
    Greatest,
    /// How many different ones there are.
    Distinct,
    Dropped,
}

impl<R> Column<R> {
    /// A column of text; `key` is its name in files.
    pub fn name(
        key: &'static str,
        name: &'static str,
        of: impl Fn(&R) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self {
            head: Head {
                key,
                name,
                unit: "",
                brief: name,
                show: Show::Words,
                digits: None,
                sum: Sum::Same,
            },
            of: Box::new(of),
        }
    }

    /// A column of measured figures, shown with so many digits after the point.
    pub fn number(
        key: &'static str,
        name: &'static str,
        unit: &'static str,
        decimals: usize,
        of: impl Fn(&R) -> Value + Send + Sync + 'static,
    ) -> Self {
        let mut column = Self::name(key, name, of);
        column.head.unit = unit;
        column.head.show = Show::Decimals(decimals);
        column
    }

    /// A column of shares from 0 to 1, shown in percent with so many digits after the point.
    pub fn share(
        key: &'static str,
        name: &'static str,
        decimals: usize,
        of: impl Fn(&R) -> Value + Send + Sync + 'static,
    ) -> Self {
        let mut column = Self::number(key, name, "%", decimals, of);
        column.head.show = Show::Percent(decimals);
        column
    }

    /// A column of whole numbers.
    pub fn count(
        key: &'static str,
        name: &'static str,
        of: impl Fn(&R) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self::number(key, name, "", 0, of)
    }

    /// A shorter name for terminals.
    #[must_use]
    pub fn brief(mut self, name: &'static str) -> Self {
        self.head.brief = name;
        self
    }

    /// So many digits after the point in CSV files.
    #[must_use]
    pub fn digits(mut self, digits: usize) -> Self {
        self.head.digits = Some(digits);
        self
    }

    /// Summed up by the median.
    #[must_use]
    pub fn median(self) -> Self {
        self.sum(Sum::Median)
    }

    /// Summed up by adding.
    #[must_use]
    pub fn total(self) -> Self {
        self.sum(Sum::Total)
    }

    /// Summed up by the least.
    #[must_use]
    pub fn least(self) -> Self {
        self.sum(Sum::Least)
    }

    /// Summed up by the greatest.
    #[must_use]
    pub fn greatest(self) -> Self {
        self.sum(Sum::Greatest)
    }

    /// Summed up by counting the different values.
    #[must_use]
    pub fn distinct(mut self) -> Self {
        self.head.show = Show::Decimals(0);
        self.sum(Sum::Distinct)
    }

    /// Left out when rows are summed up.
    #[must_use]
    pub fn dropped(self) -> Self {
        self.sum(Sum::Dropped)
    }

    fn sum(mut self, sum: Sum) -> Self {
        self.head.sum = sum;
        self
    }

    pub(super) fn of(&self, row: &R) -> Value {
        (self.of)(row)
    }
}

impl<R> std::fmt::Debug for Column<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.head.fmt(f)
    }
}

impl Head {
    /// Whether it holds text, which stands at the left.
    pub(super) fn is_words(&self) -> bool {
        self.show == Show::Words
    }

    /// For a terminal: `queue ms`.
    pub(super) fn brief_title(&self) -> String {
        let words = [self.brief, self.unit];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(" ")
    }

    /// For a page: `queue, ms`.
    pub(super) fn title(&self) -> String {
        let words = [self.name, self.unit];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }

    /// A figure as people read it.
    pub(super) fn scaled(&self, number: f64) -> f64 {
        match self.show {
            Show::Percent(_) => number * 100.0,
            _ => number,
        }
    }

    /// A value for people.
    pub(super) fn shown(&self, value: &Value) -> String {
        match (value, self.show) {
            (Value::Text(text) | Value::Verdict(text, _), _) => text.clone(),
            (Value::Number(number), Show::Decimals(decimals) | Show::Percent(decimals)) => {
                format!("{:.decimals$}", self.scaled(*number))
            }
            (Value::Number(number), Show::Words) => number.to_string(),
            (Value::Above(number), _) => format!("> {}", self.shown(&Value::Number(*number))),
            (Value::Count(count), _) => count.to_string(),
            (Value::Flag(flag), _) => if *flag { "yes" } else { "no" }.to_owned(),
            (Value::Nothing, Show::Words) => String::new(),
            (Value::Nothing, _) => "–".to_owned(),
        }
    }

    /// A value for programs that read text.
    pub(super) fn written(&self, value: &Value) -> String {
        match (value, self.digits) {
            (Value::Number(number), Some(digits)) => format!("{number:.digits$}"),
            (Value::Number(number), None) => number.to_string(),
            (Value::Above(number), _) => format!(">{}", self.written(&Value::Number(*number))),
            (Value::Text(text) | Value::Verdict(text, _), _) => text.clone(),
            (Value::Count(count), _) => count.to_string(),
            (Value::Flag(flag), _) => flag.to_string(),
            (Value::Nothing, _) => String::new(),
        }
    }
}

impl Sum {
    pub(super) fn of<'v>(self, values: impl Iterator<Item = &'v Value> + Clone) -> Value {
        let numbers = || values.clone().filter_map(Value::number);
        let some = |number: f64| match numbers().next() {
            Some(_) => Value::Number(number),
            None => Value::Nothing,
        };
        match self {
            Self::Same | Self::Dropped => values.clone().next().cloned().unwrap_or(Value::Nothing),
            Self::Median => some(median(numbers().collect())),
            // A total of counts is a count again.
            Self::Total => match values.clone().all(|value| matches!(value, Value::Count(_))) {
                true => Value::Count(values.map(count).sum()),
                false => some(numbers().sum()),
            },
            Self::Least => some(numbers().fold(f64::INFINITY, f64::min)),
            Self::Greatest => {
                let most = numbers().fold(f64::NEG_INFINITY, f64::max);
                // What is more than the most that was waited for is more than all that was measured.
                let above = values
                    .clone()
                    .filter(|value| matches!(value, Value::Above(_)));
                match above.filter_map(Value::number).reduce(f64::max) {
                    Some(above) if above >= most => Value::Above(above),
                    _ => some(most),
                }
            }
            Self::Distinct => {
                let mut known: Vec<&Value> = Vec::new();
                for value in values {
                    if !known.contains(&value) {
                        known.push(value);
                    }
                }
                known.len().into()
            }
        }
    }
}

fn count(value: &Value) -> u64 {
    match value {
        Value::Count(count) => *count,
        _ => 0,
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.len() % 2) {
        (Some(value), 1) => *value,
        (Some(value), _) => (value + values[middle - 1]) / 2.0,
        (None, _) => 0.0,
    }
}
