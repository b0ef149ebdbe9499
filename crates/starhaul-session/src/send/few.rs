//! A list that mostly has one item, for which it takes no memory of its own: most blocks are one fragment.

use std::{
    mem,
    ops::{Deref, DerefMut},
};

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) enum Few<T> {
    None,
    One(T),
    Many(Vec<T>),
}

impl<T> Few<T> {
    pub(super) fn push(&mut self, item: T) {
        *self = match mem::replace(self, Self::None) {
            Self::None => Self::One(item),
            Self::One(first) => Self::Many(vec![first, item]),
            Self::Many(mut items) => {
                items.push(item);
                Self::Many(items)
            }
        };
    }

    pub(super) fn clear(&mut self) {
        *self = Self::None;
    }
}

impl<T: Clone> Few<T> {
    /// The same item so many times.
    pub(super) fn repeated(item: T, count: usize) -> Self {
        match count {
            0 => Self::None,
            1 => Self::One(item),
            _ => Self::Many(vec![item; count]),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(item) => std::slice::from_mut(item),
            Self::Many(items) => items,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_was_pushed_and_what_was_changed_in_place() {
        let mut few: Few<u32> = Few::None;
        for number in 0..5 {
            assert_eq!(*few, (0..number).collect::<Vec<_>>());
            few.push(number);
        }
        few.iter_mut().for_each(|number| *number *= 10);
        assert_eq!(*few, [0, 10, 20, 30, 40]);
        few.clear();
        assert!(few.is_empty());
        for count in 0..3 {
            assert_eq!(*Few::repeated(7, count), vec![7; count]);
        }
    }
}
