//! What a running gateway cannot change.

use super::{Config, SessionLimits};

impl Config {
    /// The keys whose values in `new` a gateway that was started with this configuration takes up only at its next start. The
    /// key pair is not compared: its file may have another content under the same name.
    pub(crate) fn needs_restart(&self, new: &Self) -> Vec<&'static str> {
        // Every field is named, so that a new one is either listed below or known to be applied by a reload.
        let Self {
            identity: _,
            listen,
            accept,
            packet_bytes,
            keepalive,
            scheduler,
            budget,
            session_limits:
                SessionLimits {
                    max_streams,
                    max_send_bytes,
                    max_receive_bytes,
                },
            control,
            control_group,
            metrics,
            state,
            qlog: _,
            peers: _,
            sessions: _,
            datagram_rules: _,
            connection_rules: _,
            tunnels: _,
            leotp,
            bundle,
            egress: _,
        } = self;
        let limits = &new.session_limits;
        let changed = [
            ("listen", new.listen != *listen),
            ("accept", new.accept != *accept),
            ("leotp", new.leotp != *leotp),
            ("bundle", new.bundle != *bundle),
            ("control", new.control != *control),
            ("metrics", new.metrics != *metrics),
            ("state", new.state != *state),
            ("control_group", new.control_group != *control_group),
            ("packet_bytes", new.packet_bytes != *packet_bytes),
            ("keepalive", new.keepalive != *keepalive),
            ("scheduler", new.scheduler != *scheduler),
            ("budget", new.budget != *budget),
            ("max_streams", limits.max_streams != *max_streams),
            ("max_send_bytes", limits.max_send_bytes != *max_send_bytes),
            (
                "max_receive_bytes",
                limits.max_receive_bytes != *max_receive_bytes,
            ),
        ];
        let changed = changed.into_iter();
        changed
            .filter_map(|(key, changed)| changed.then_some(key))
            .collect()
    }
}
