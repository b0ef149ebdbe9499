//! Which page a byte of a stream is in: pages have numbers, and one of two sizes.

/// The size of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageSize {
    /// Of a stream that carries little.
    Small,
    /// Of a stream that carries much: fewer pages are allocated and freed for the same bytes.
    Large,
}

impl PageSize {
    pub(super) const fn bytes(self) -> usize {
        1 << self.bits()
    }

    const fn bits(self) -> u32 {
        match self {
            Self::Small => 12,
            Self::Large => 14,
        }
    }
}

/// Where a byte of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of its page.
    pub(super) number: u64,
    /// Where it is in that.
    pub(super) at: usize,
    pub(super) size: PageSize,
}

/// The sizes of a stream's pages: of one size up to an offset, and of one from there on. Pages that began before the former size came into
/// force have no place in it, so the size changes again only when all of these were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// The offset.
    from: u64,
    /// Number of the page that begins there.
    number: u64,
    /// Of the pages from there on.
    size: PageSize,
    /// Of those before.
    former: PageSize,
}

impl Layout {
    /// All pages are small.
    pub(super) const fn new() -> Self {
        Self {
            from: 0,
            number: 0,
            size: PageSize::Small,
            former: PageSize::Small,
        }
    }

    /// The size of pages to come.
    pub(super) const fn size(&self) -> PageSize {
        self.size
    }

    pub(super) fn place(&self, offset: u64) -> Place {
        match offset.checked_sub(self.from) {
            Some(beyond) => {
                let pages = beyond >> self.size.bits();
                Place {
                    number: self.number + pages,
                    at: index(beyond - (pages << self.size.bits())),
                    size: self.size,
                }
            }
            None => {
                let before = self.from - offset;
                let pages = before.div_ceil(1 << self.former.bits());
                Place {
                    number: self.number.saturating_sub(pages),
                    at: index((pages << self.former.bits()) - before),
                    size: self.former,
                }
            }
        }
    }

    /// Pages from the number `next` on, of which there is none yet, have this size, unless pages of the former one are left: `first` is the
    /// first of all. True if the size changed.
    pub(super) fn change(&mut self, first: u64, next: u64, size: PageSize) -> bool {
        if size == self.size || first < self.number || next < first {
            return false;
        }
        *self = Self {
            from: self.from + ((next - self.number) << self.size.bits()),
            number: next,
            size,
            former: self.size,
        };
        true
    }
}

/// A place within a page.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_one_place_whatever_sizes_came_before() {
        let mut layout = Layout::new();
        let place = |layout: &Layout, offset| {
            let Place { number, at, size } = layout.place(offset);
            (number, at, size)
        };
        assert_eq!(place(&layout, 9_000), (2, 808, PageSize::Small));
        assert!(layout.change(2, 5, PageSize::Large));
        // What was there before stays where it was.
        assert_eq!(place(&layout, 9_000), (2, 808, PageSize::Small));
        assert_eq!(place(&layout, 20_479), (4, 4_095, PageSize::Small));
        assert_eq!(place(&layout, 20_480), (5, 0, PageSize::Large));
        assert_eq!(place(&layout, 20_480 + 16_384), (6, 0, PageSize::Large));
        assert!(
            !layout.change(4, 7, PageSize::Small),
            "a page of the former size is left"
        );
        assert!(!layout.change(5, 7, PageSize::Large), "it is the size");
        let before: Vec<_> = (20_480..53_248).map(|at| place(&layout, at)).collect();
        assert!(layout.change(5, 7, PageSize::Small));
        let after: Vec<_> = (20_480..53_248).map(|at| place(&layout, at)).collect();
        assert!(before == after);
        assert_eq!(place(&layout, 53_248), (7, 0, PageSize::Small));
    }
}
