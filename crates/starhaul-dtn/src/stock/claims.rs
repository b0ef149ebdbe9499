//! Parts of bundles for applications here that the agent is being given: one at a time of those that overlap.

use std::ops::Range;

use hardy_bpv7::bundle::{FragmentInfo, Id};

use super::{
    Stock,
    parts::{Missing, NoPart, range, whole},
};

/// A part that the agent is being given; others that overlap wait until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    stock: &'a Stock,
    id: Id,
    /// What is noted as being taken; nothing if the whole is here.
    part: Option<Range<u64>>,
    /// The bytes of the whole that the agent is to get.
    pub(crate) missing: Missing,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            self.stock.held().parts.end(&self.id, part);
            self.stock.part_ended.notify_waiters();
        }
    }
}

impl Stock {
    /// Begins to take a part of so many bytes of a bundle for an application here, when none that overlaps is being taken any more.
    ///
    /// # Errors
    /// [`NoPart::Beyond`] and [`NoPart::Contradiction`].
    pub(crate) async fn claim(
        &self,
        id: &Id,
        info: &FragmentInfo,
        bytes: u64,
    ) -> Result<Claim<'_>, NoPart> {
        let part = range(info, bytes).ok_or(NoPart::Beyond)?;
        loop {
            // From here on, an end is not missed.
            let ended = self.part_ended.notified();
            let begun = {
                let mut held = self.held();
                // It has been put together, and waits for its application.
                match held.bundles.contains_key(&whole(id)) {
                    true => Some((None, Vec::new())),
                    false => {
                        let begun = held.parts.begin(id, &part, info.total_adu_length)?;
                        begun.map(|missing| (Some(part.clone()), missing))
                    }
                }
            };
            if let Some((part, missing)) = begun {
                return Ok(Claim {
                    stock: self,
                    id: id.clone(),
                    part,
                    missing,
                });
            }
            ended.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hardy_bpa::bundle::{Bundle, BundleMetadata};
    use hardy_bpv7::{builder::Builder, creation_timestamp::CreationTimestamp};

    use super::*;
    use crate::{
        config::Storage,
        stock::parts::tests::{ends, id},
    };

    /// A neighbour has sent the last part again before it heard that it was taken.
    #[tokio::test]
    async fn a_part_that_comes_again_does_not_end_the_one_that_is_being_taken() {
        let stock = Stock::new("ipn:2.0".parse().unwrap(), Storage::small());
        let builder = Builder::new("ipn:1.5".parse().unwrap(), "ipn:2.5".parse().unwrap());
        let builder = builder.with_payload(vec![7; 100].into());
        let whole = Bundle {
            bundle: builder.build(CreationTimestamp::now()).unwrap().0,
            metadata: BundleMetadata::default(),
        };
        let info = FragmentInfo {
            offset: 50,
            total_adu_length: 100,
        };
        let part = Id {
            fragment_info: Some(info.clone()),
            ..whole.bundle.id.clone()
        };
        let first = stock.claim(&part, &info, 50).await.unwrap();
        stock.insert(&whole, false);
        let again = stock.claim(&part, &info, 50).await.unwrap();
        assert!(again.missing.is_empty());
        drop(again);
        stock.remove(&whole.bundle.id);
        let other = stock.claim(&part, &info, 50);
        let early = tokio::time::timeout(Duration::from_millis(50), other).await;
        assert!(early.is_err(), "the first is still being taken");
        drop(first);
        assert!(stock.held().parts.is_empty());
    }

    #[tokio::test]
    async fn a_part_that_overlaps_waits_for_the_one_that_is_being_taken() {
        let stock = Stock::new("ipn:2.0".parse().unwrap(), Storage::small());
        let claim = async |offset, bytes| {
            let id = id(offset, 100);
            let info = id.fragment_info.clone().unwrap();
            stock.claim(&id, &info, bytes).await
        };
        assert_eq!(claim(90, 11).await.unwrap_err(), NoPart::Beyond);
        let first = claim(0, 50).await.unwrap();
        let beside = claim(50, 10).await.unwrap();
        assert_eq!(ends(&first.missing), [(0, 50)]);
        assert_eq!(ends(&beside.missing), [(50, 60)]);
        let other = id(0, 200);
        let info = other.fragment_info.clone().unwrap();
        let contradicts = stock.claim(&other, &info, 10).await;
        assert_eq!(contradicts.unwrap_err(), NoPart::Contradiction);
        let second = claim(40, 30);
        tokio::pin!(second);
        let early = tokio::time::timeout(Duration::from_millis(50), &mut second);
        assert!(early.await.is_err(), "both would be taken");
        stock.held().parts.insert(&id(0, 100), 50);
        drop((first, beside));
        let second = tokio::time::timeout(Duration::from_secs(5), second).await;
        let second = second.expect("it waits for ever").unwrap();
        assert_eq!(ends(&second.missing), [(50, 70)]);
        drop(second);
        stock.held().parts.remove(&id(0, 100));
        assert!(stock.held().parts.is_empty());
    }
}
