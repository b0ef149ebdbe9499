//! The size of a step along the gradient (Vivace §4.2): it grows with each step in the same direction, within a
//! boundary that widens only while steps reach it.

/// θ0: Mbit/s for each unit of gradient.
const CONVERSION: f64 = 1.0;
/// ω0 and δ: the boundary of a rate change as a share of the rate, at first and per increment.
const FIRST_BOUNDARY: f64 = 0.05;
const BOUNDARY_INCREMENT: f64 = 0.1;
const MAX_STEPS_IN_A_ROW: u32 = 1000;

/// The step size and its boundary.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stepper {
    upwards: bool,
    in_a_row: u32,
    /// k: increments of the boundary.
    increments: u32,
}

impl Stepper {
    /// The change in Mbit/s of a rate of `mbit` for this gradient.
    pub(super) fn step(&mut self, gradient: f64, mbit: f64) -> f64 {
        if !gradient.is_finite() || gradient == 0.0 {
            return 0.0;
        }
        let upwards = gradient > 0.0;
        if upwards == self.upwards {
            self.in_a_row = (self.in_a_row + 1).min(MAX_STEPS_IN_A_ROW);
        } else {
            *self = Self {
                upwards,
                in_a_row: 1,
                increments: 0,
            };
        }
        let wanted = CONVERSION * self.amplifier() * gradient.abs();
        let boundary =
            |increments| mbit * (FIRST_BOUNDARY + BOUNDARY_INCREMENT * f64::from(increments));
        let change = if wanted > boundary(self.increments) {
            let change = boundary(self.increments);
            self.increments = self.increments.saturating_add(1);
            change
        } else {
            // The least boundary that allows the step.
            while self.increments > 0 && wanted <= boundary(self.increments - 1) {
                self.increments -= 1;
            }
            wanted
        };
        if upwards { change } else { -change }
    }

    /// The confidence amplifier m(τ).
    fn amplifier(&self) -> f64 {
        let steps = f64::from(self.in_a_row);
        if self.in_a_row <= 3 {
            steps
        } else {
            2.0 * steps - 3.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_lengthens_steps_and_a_turn_shortens_them() {
        let mut stepper = Stepper::default();
        let steps: Vec<f64> = (0..6).map(|_| stepper.step(0.5, 1000.0)).collect();
        assert_eq!(steps, [0.5, 1.0, 1.5, 2.5, 3.5, 4.5]);
        assert_eq!(stepper.step(-0.5, 1000.0), -0.5);
    }

    #[test]
    fn the_boundary_widens_while_it_is_met_and_narrows_again() {
        let mut stepper = Stepper::default();
        let steps: Vec<f64> = (0..3).map(|_| stepper.step(-1e6, 100.0)).collect();
        for (step, expected) in steps.iter().zip([-5.0, -15.0, -25.0]) {
            assert!((step - expected).abs() < 1e-9, "{steps:?}");
        }
        stepper.step(-0.001, 100.0);
        let narrow = stepper.step(-1e6, 100.0);
        assert!((narrow + 5.0).abs() < 1e-9, "{narrow}");
    }
}
