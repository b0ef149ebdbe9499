//! The last byte of fragments of odd length. `reed-solomon-simd` codes pairs of bytes, so that byte gets a Reed–Solomon
//! code of its own over GF(2⁸): the data bytes are the values of a polynomial at 0, 1, …, data − 1, and the redundancy
//! its values at the points that follow. That keeps every fragment of a code equally long.
//!
//! Fragments of even length only would need no such code, but another wire format: a sender that rounds ⌈len / k⌉ up leaves up to 2k − 1 bytes
//! of padding, and receivers refuse a fragment that tells of k or more (docs/wire.md, "Fragment"). A byte that is added for coding alone would
//! make the redundancy longer than the data, which they refuse, too.

const FIELD: usize = 256;
/// x⁸ + x⁴ + x³ + x² + 1, of which 2 is a generator.
const POLYNOMIAL: u16 = 0x11d;

struct Tables {
    exp: [u8; 2 * FIELD],
    log: [u8; FIELD],
}

static TABLES: Tables = tables();

#[expect(
    clippy::cast_possible_truncation,
    reason = "x < 256 and power < 255 by construction"
)]
const fn tables() -> Tables {
    let mut exp = [0; 2 * FIELD];
    let mut log = [0; FIELD];
    let (mut power, mut x) = (0, 1u16);
    while power < FIELD - 1 {
        exp[power] = x as u8;
        exp[power + FIELD - 1] = x as u8;
        log[x as usize] = power as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        power += 1;
    }
    Tables { exp, log }
}

fn log(x: u8) -> usize {
    usize::from(TABLES.log[usize::from(x)])
}

/// Logarithm of the product of all differences `from` − point, leaving out the points equal to `from`.
fn log_of_differences(points: &[(u8, u8)], from: u8) -> usize {
    let differences = points.iter().map(|(point, _)| point ^ from);
    differences
        .filter(|difference| *difference != 0)
        .map(log)
        .sum::<usize>()
        % (FIELD - 1)
}

/// The polynomial of least degree through the given points, each with its value, prepared to be evaluated elsewhere
/// (barycentric Lagrange interpolation).
pub(crate) struct Interpolation {
    /// Point, and logarithm of value / Π differences to the other points; points of value 0 add nothing.
    terms: Vec<(u8, usize)>,
    points: Vec<(u8, u8)>,
}

impl Interpolation {
    /// `points` must differ from each other.
    pub(crate) fn new(points: Vec<(u8, u8)>) -> Self {
        let terms = points
            .iter()
            .filter(|(_, value)| *value != 0)
            .map(|(point, value)| {
                (
                    *point,
                    log(*value) + (FIELD - 1) - log_of_differences(&points, *point),
                )
            })
            .collect();
        Self { terms, points }
    }

    /// Value at `x`, which must be none of the points.
    pub(crate) fn at(&self, x: u8) -> u8 {
        let product = log_of_differences(&self.points, x);
        let terms = self.terms.iter().map(|(point, weight)| {
            let power = product + weight + (FIELD - 1) - log(point ^ x);
            TABLES.exp[power % (FIELD - 1)]
        });
        terms.fold(0, |sum, term| sum ^ term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_two_points_goes_on_as_a_line() {
        // f(x) = 7 + x, which in this field is 7 XOR x.
        let line = Interpolation::new(vec![(0, 7), (1, 6)]);
        for x in 2..=255 {
            assert_eq!(line.at(x), 7 ^ x);
        }
    }

    #[test]
    fn any_points_of_a_polynomial_give_its_other_values() {
        let through = Interpolation::new((0..20u8).map(|x| (x, x.wrapping_mul(37))).collect());
        let later = Interpolation::new((100..120).map(|x| (x, through.at(x))).collect());
        for x in 0..20u8 {
            assert_eq!(later.at(x), x.wrapping_mul(37));
        }
    }
}
