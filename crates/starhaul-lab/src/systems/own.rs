//! Our own stack with one of our controllers, by `starhaul lab flow`.

use std::{ffi::OsString, sync::Arc};

use starhaul_cc::ControllerConfig;

use crate::{
    Error,
    realtime::{Bench, Ends, Sender},
    transfer::{PORT, Secret},
};

/// A controller of ours.
#[derive(Clone, Debug)]
pub(crate) struct Own(pub(crate) ControllerConfig);

/// The sender called `name`, if we have such a controller.
pub(super) fn named(name: &str) -> Option<Result<Arc<dyn Sender>, Error>> {
    let config = ControllerConfig::from_name(name, None).ok()?;
    Some(Ok(Arc::new(Own(config))))
}

impl Sender for Own {
    fn name(&self) -> String {
        self.0.name().to_owned()
    }

    fn missing(&self) -> Option<String> {
        None
    }

    fn ends(&self, bench: &Bench, seconds: u32, down: bool) -> Ends {
        let secret = Secret::generate();
        let end = |which: &str| {
            let mut arguments: Vec<OsString> = vec![bench.program.clone().into()];
            let rest = ["--log", "warn", "lab", "flow", which, "--secret", &secret];
            arguments.extend(rest.map(OsString::from));
            arguments.extend(["--controller", self.0.name()].map(OsString::from));
            arguments
        };
        let mut server = OsString::from("exec");
        for argument in end("server") {
            server.push(" '");
            server.push(argument);
            server.push("'");
        }
        server.push(format!(" --listen 0.0.0.0:{PORT}"));
        let mut client: Vec<OsString> = ["sh", "-c", "exec \"$0\" \"$@\" >/dev/null"]
            .map(OsString::from)
            .into();
        client.extend(end("client"));
        client.extend(["--json", "--seconds", &seconds.to_string()].map(OsString::from));
        client.extend(down.then(|| "--down".into()));
        Ends { server, client }
    }
}
