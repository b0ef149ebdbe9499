//! What comes from neighbours over a layer: who may give a bundle, and when there is room for it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use hardy_bpa::{
    Bytes, async_trait,
    cla::{ClaAddress, Error, Result, Sink},
};

use super::{Door, Neighbour, Turns, head_on};
use crate::{
    egress::Lanes,
    fragments::Part,
    plan::NodeId,
    schedule::Schedule,
    steady::{self, Became, Fault},
    stock::{NoPart, NoRoom, Room},
    trail::Marks,
};

impl Door {
    /// Waits for room for a bundle of a node as long as it may wait, and takes it beyond the limits where nothing would leave otherwise.
    ///
    /// # Errors
    /// There is none for it: it is to be refused.
    async fn room(
        &self,
        bytes: u64,
        node: Option<&NodeId>,
    ) -> std::result::Result<Room<'_>, NoRoom> {
        let began = tokio::time::Instant::now();
        let mut turn = None;
        loop {
            let reason = match self.stock.room(bytes) {
                Ok(room) => return Ok(room),
                Err(reason) => reason,
            };
            let is_head_on = node.is_some_and(|node| self.head_on.meets(node));
            if is_head_on && !self.waits && turn.is_none() {
                turn = self.head_on.turn();
            }
            let may_wait = self.waits || is_head_on && turn.is_some();
            let is_closed = self.is_closed.load(Ordering::SeqCst);
            if reason != NoRoom::Full || is_closed || !may_wait {
                return Err(reason);
            }
            if is_head_on && began.elapsed() >= head_on::PATIENCE {
                match self.stock.room_beyond(bytes) {
                    Ok(room) => return Ok(room),
                    Err(reason) if !self.waits => return Err(reason),
                    Err(_) => {}
                }
            }
            self.stock.wait_for_room().await;
        }
    }
}

/// What the layer takes for the agent.
pub(super) struct Entrance(pub(super) Arc<Door>);

impl Entrance {
    /// Gives the agent a bundle.
    async fn take(
        &self,
        bundle: Bytes,
        node: Option<&NodeId>,
        address: Option<&ClaAddress>,
    ) -> Result<Became> {
        let door = &self.0;
        let agent = door.agent.get().ok_or(Error::Disconnected)?;
        let marks = Marks::of(&bundle);
        let taken = steady::arrive(marks, agent.dispatch(bundle, node, address)).await;
        let (taken, became) = taken.map_err(|fault| {
            match fault {
                Fault::NotStored(_) => door.stock.refused(),
                Fault::CameBack => door.log_return(node),
            }
            Error::Internal(fault.into())
        })?;
        taken.map(|()| became)
    }

    /// Gives the agent what is not here yet of a part of a bundle.
    async fn take_part(
        &self,
        part: &Part,
        data: Bytes,
        node: Option<&NodeId>,
        address: Option<&ClaAddress>,
    ) -> Result<Became> {
        let stock = &self.0.stock;
        let refuse = |reason: NoPart| {
            self.0.log_part(node, reason);
            stock.refused();
            Error::Internal(reason.into())
        };
        let claim = stock.claim(&part.bundle.id, &part.info, part.bytes).await;
        let claim = claim.map_err(refuse)?;
        if claim.missing.iter().any(|missing| part.is(missing)) {
            return self.take(data, node, address).await;
        }
        let mut became = Became::Known;
        for (number, missing) in claim.missing.iter().enumerate() {
            let cut = part.cut(&data, missing);
            let cut = cut.ok_or_else(|| refuse(NoPart::Protected))?;
            let bytes = cut.len() as u64;
            // The first one has the room of the part. Others may be as many as there are gaps.
            let room = (number > 0).then(|| stock.admit(bytes)).transpose();
            let _room = room.map_err(|error| {
                self.0.log_full(node, bytes, error);
                Error::Internal(error.into())
            })?;
            became = match (became, self.take(cut, node, address).await?) {
                (Became::Stored, _) | (_, Became::Stored) => Became::Stored,
                (Became::Dropped, _) | (_, Became::Dropped) => Became::Dropped,
                (Became::Known, Became::Known) => Became::Known,
            };
        }
        Ok(became)
    }
}

#[async_trait]
impl Sink for Entrance {
    async fn unregister(&self) {
        if let Some(agent) = self.0.agent.get() {
            agent.unregister().await;
        }
    }

    async fn dispatch(
        &self,
        bundle: Bytes,
        node: Option<&NodeId>,
        address: Option<&ClaAddress>,
    ) -> Result<()> {
        let door = &self.0;
        if !door.may_enter(node) {
            if let Some(others) = door.log.is_due(Instant::now()) {
                tracing::warn!(
                    node = node.map(ToString::to_string),
                    others,
                    "a bundle of an unknown neighbour is refused"
                );
            }
            return Err(Error::Disconnected);
        }
        let bytes = bundle.len() as u64;
        let room = door.room(bytes, node).await;
        let _room = room.map_err(|error| {
            door.stock.not_taken(error);
            door.log_full(node, bytes, error);
            Error::Internal(error.into())
        })?;
        let part = Part::of(&bundle, &door.stock);
        let became = match &part {
            // Rare, and its state is larger than all else that a bundle needs here.
            Some(part) => Box::pin(self.take_part(part, bundle, node, address)).await?,
            None => self.take(bundle, node, address).await?,
        };
        door.count(became, node);
        node.into_iter().for_each(|node| door.is_there(node));
        Ok(())
    }

    async fn add_peer(&self, address: ClaAddress, nodes: &[NodeId]) -> Result<bool> {
        let known = nodes.iter().find(|node| self.0.may_enter(Some(node)));
        let Some(node) = known.cloned() else {
            self.0.log_name(nodes);
            self.0.strangers().insert(address);
            return Ok(false);
        };
        let mut neighbour = Neighbour {
            node,
            number: self.0.came.fetch_add(1, Ordering::Relaxed),
            turns: Turns::new(),
            lanes: Lanes::default(),
            is_shown: false,
        };
        self.0.is_there(&neighbour.node);
        let is_new = {
            let mut neighbours = self.0.neighbours();
            self.0.schedule.came(&neighbour.node, self.0.layer);
            // The agent knows one for each address, and goes on with what it has.
            if let Some(former) = neighbours.get(&address) {
                neighbour.lanes = former.lanes.clone();
            }
            let replaced = neighbours.insert(address, neighbour);
            if let Some(replaced) = &replaced {
                replaced.turns.close();
                self.0.left(&neighbours, &replaced.node);
            }
            replaced.is_none()
        };
        self.0.update(Schedule::now()).await;
        Ok(is_new)
    }

    async fn remove_peer(&self, address: &ClaAddress) -> Result<bool> {
        self.0.strangers().remove(address);
        let was_there = self.0.forget(address).await;
        // The node may be connected at another address, too, which is the latest now.
        if !self.0.is_closed.load(Ordering::SeqCst) {
            self.0.update(Schedule::now()).await;
        }
        was_there
    }
}
