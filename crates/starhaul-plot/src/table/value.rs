//! What stands in a cell.

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A name or a short text.
    Text(String),
    /// A measured figure.
    Number(f64),
    /// So many of something.
    Count(u64),
    /// Yes or no.
    Flag(bool),
    /// More than this: the rest was not waited for.
    Above(f64),
    /// A text that is good or bad news.
    Verdict(String, bool),
    /// It was not measured, or does not apply.
    Nothing,
}

impl Value {
    /// The figure, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) | Self::Above(number) => Some(*number),
            #[expect(
                clippy::cast_precision_loss,
                reason = "what is counted here is far below 2⁵³"
            )]
            Self::Count(count) => Some(*count as f64),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Verdict(text, _) => text,
            _ => "",
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing) || matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}
