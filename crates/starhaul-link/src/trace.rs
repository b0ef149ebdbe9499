//! Traces: capacity, delay and loss of one direction of a path over time, and recordings with a part of these.

use std::{ops::Range, sync::Arc, time::Duration};

use crate::{DelaySeries, Error, LossSeries, Opportunities};

/// One direction of a path over time: its capacity, one-way delay and loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Capacity over time.
    pub capacity: Arc<Opportunities>,
    /// One-way delay over time, if known; repeats together with the capacity.
    pub delay: Option<Arc<DelaySeries>>,
    /// Random loss over time, if known; repeats together with the capacity.
    pub loss: Option<Arc<LossSeries>>,
}

impl Trace {
    /// Creates a trace of both series, which then repeat together: after the shorter of their periods, so that no
    /// values are invented; a constant delay fits any period.
    ///
    /// # Errors
    /// [`Error::NoCommonPeriod`] where the delays end before the first delivery opportunity.
    pub fn new(capacity: Opportunities, delay: Option<DelaySeries>) -> Result<Self, Error> {
        let Some(delay) = delay else {
            return Ok(Self {
                capacity: Arc::new(capacity),
                delay: None,
                loss: None,
            });
        };
        let first = capacity.time_of(1);
        let capacity = match delay.period() {
            period if delay.is_constant() || period >= capacity.period() => capacity,
            period => capacity
                .cut(&(Duration::ZERO..period))
                .ok_or(Error::NoCommonPeriod { period, first })?,
        };
        let delay = delay.with_period(capacity.period());
        Ok(Self {
            capacity: Arc::new(capacity),
            delay: Some(Arc::new(delay)),
            loss: None,
        })
    }

    /// The part of the trace in `span`; its period is the length of that part.
    ///
    /// # Errors
    /// [`Error::EmptyPart`] if that part has no capacity.
    pub fn cut(&self, span: Range<Duration>) -> Result<Self, Error> {
        let nothing = || Error::EmptyPart {
            from: span.start,
            to: span.end,
            period: self.capacity.period(),
        };
        let capacity = self.capacity.cut(&span).ok_or_else(nothing)?;
        let span = span.start..span.start + capacity.period();
        let delay = self.delay.as_ref().and_then(|delay| delay.cut(&span));
        let loss = self.loss.as_ref().and_then(|loss| loss.cut(&span));
        let part = Self::new(capacity, delay)?;
        Ok(match loss {
            Some(loss) => part.with_loss(loss),
            None => part,
        })
    }

    /// The trace with random loss, cut or extended to the period of the capacity.
    pub fn with_loss(mut self, loss: LossSeries) -> Self {
        self.loss = Some(Arc::new(loss.with_period(self.capacity.period())));
        self
    }
}

/// The series that a file, a pair of files or a description gives for one direction of a path; others are missing. They
/// repeat together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Capacity over time.
    pub capacity: Option<Arc<Opportunities>>,
    /// One-way delay over time.
    pub delay: Option<Arc<DelaySeries>>,
    /// Random loss over time.
    pub loss: Option<Arc<LossSeries>>,
}

impl From<Trace> for Recording {
    fn from(trace: Trace) -> Self {
        Self {
            capacity: Some(trace.capacity),
            delay: trace.delay,
            loss: trace.loss,
        }
    }
}

impl Recording {
    /// A recording of delays only.
    pub fn of_delay(delay: DelaySeries) -> Self {
        Self {
            delay: Some(Arc::new(delay)),
            ..Self::default()
        }
    }

    /// The recording with this capacity; both repeat together as in [`Trace::new`], with its errors.
    pub fn with_capacity(self, capacity: Opportunities) -> Result<Self, Error> {
        let trace = Trace::new(capacity, self.delay.map(Arc::unwrap_or_clone))?;
        Ok(match self.loss {
            Some(loss) => trace.with_loss(Arc::unwrap_or_clone(loss)).into(),
            None => trace.into(),
        })
    }

    /// The recording with these delays; both repeat together as in [`Trace::new`], with its errors.
    pub fn with_delay(mut self, delay: DelaySeries) -> Result<Self, Error> {
        self.delay = Some(Arc::new(delay));
        match self.capacity.take() {
            Some(capacity) => self.with_capacity(Arc::unwrap_or_clone(capacity)),
            None => Ok(self),
        }
    }

    /// The recording with this random loss besides its own, if there is any: a packet is lost by either.
    pub fn and_loss(mut self, loss: Option<Arc<LossSeries>>) -> Self {
        self.loss = match (self.loss, loss) {
            (Some(own), Some(further)) => Some(Arc::new(own.and(&further))),
            (own, further) => own.or(further),
        };
        self
    }

    /// The time after which the recording repeats.
    pub fn period(&self) -> Duration {
        let capacity = self.capacity.as_ref().map(|capacity| capacity.period());
        let delay = || self.delay.as_ref().map(|delay| delay.period());
        let loss = || self.loss.as_ref().map(|loss| loss.period());
        capacity.or_else(delay).or_else(loss).unwrap_or_default()
    }

    /// The part in `span`; its period is the length of that part.
    ///
    /// # Errors
    /// [`Error::EmptyPart`] if that part has no series, or a capacity of zero.
    pub fn cut(&self, span: Range<Duration>) -> Result<Self, Error> {
        let nothing = || Error::EmptyPart {
            from: span.start,
            to: span.end,
            period: self.period(),
        };
        if let Some(capacity) = &self.capacity {
            let trace = Trace {
                capacity: Arc::clone(capacity),
                delay: self.delay.clone(),
                loss: self.loss.clone(),
            };
            return Ok(trace.cut(span)?.into());
        }
        let delay = self.delay.as_ref().map(|delay| delay.cut(&span));
        let loss = self.loss.as_ref().map(|loss| loss.cut(&span));
        if delay == Some(None) || loss == Some(None) {
            return Err(nothing());
        }
        Ok(Self {
            capacity: None,
            delay: delay.flatten().map(Arc::new),
            loss: loss.flatten().map(Arc::new),
        })
    }
}
