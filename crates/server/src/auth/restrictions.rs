//! `authenticationRestrictions`: allowed client addresses and server addresses of a user.
//!
//! A list of documents, of which one must match: `{clientSource: [network, …], serverAddress:
//! [network, …]}`. A network is an address or a range such as `10.0.0.0/8`.

use crate::protocol::fields::Fields;
use base::bson::{Array, Builder, FieldName, Value};
use base::{Error, Result, bail};
use ipnet::IpNet;
use std::net::IpAddr;

/// Fields of a restriction.
const FIELDS: [&str; 2] = ["clientSource", "serverAddress"];

/// Both addresses of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) client: IpAddr,
    /// Server address that the client connected to.
    pub(crate) server: IpAddr,
}

/// Returns true if a list of restrictions allows logins between these addresses. An invalid list
/// allows none.
pub(crate) fn allow(restrictions: Array<'_>, ends: Ends) -> bool {
    let mut all = restrictions.iter().peekable();
    if all.peek().is_none() {
        return true;
    }
    all.any(|restriction| {
        let Some(restriction) = restriction.as_document() else { return false };
        FIELDS.iter().zip([ends.client, ends.server]).all(|(name, address)| {
            let Some(networks) = restriction.get(name) else { return true };
            let Some(networks) = networks.as_array() else { return false };
            networks.iter().any(|network| {
                let network = network.as_str().and_then(network_of);
                network.is_some_and(|network| network.contains(&address.to_canonical()))
            })
        })
    })
}

/// Validates a list from a command and appends it.
///
/// Errors: invalid fields; BadValue for an invalid network.
pub(crate) fn append_checked(document: &mut Builder, path: &str, restrictions: Array<'_>) -> Result<()> {
    document.begin_array(c"authenticationRestrictions");
    for restriction in restrictions.iter() {
        let Value::Document(restriction) = restriction else {
            return Err(Error::wrong_type(
                format_args!("{path}.authenticationRestrictions"),
                restriction.kind(),
                "object",
            ));
        };
        let mut fields = Fields::of_document("address restriction", restriction);
        document.push_document();
        for name in FIELDS {
            let Some(networks) = fields.strings(name)? else { continue };
            document.begin_array(FieldName::literal(name));
            for network in networks {
                if network_of(network).is_none() {
                    bail!(BadValue, "Invalid IP address or CIDR string: {network}");
                }
                document.push(network);
            }
            document.end();
        }
        document.end();
        fields.finish()?;
    }
    document.end();
    Ok(())
}

fn network_of(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::DocumentBuf;

    fn list(build: impl FnOnce(&mut Builder)) -> DocumentBuf {
        let mut builder = Builder::new();
        builder.begin_array(c"r");
        build(&mut builder);
        builder.end();
        builder.finish()
    }

    fn allows(list: &DocumentBuf, client: &str) -> bool {
        let ends = Ends { client: client.parse().unwrap(), server: "127.0.0.1".parse().unwrap() };
        allow(list.view().get("r").unwrap().as_array().unwrap(), ends)
    }

    #[test]
    fn one_restriction_of_several_must_hold_whole() {
        assert!(allows(&list(|_| ()), "10.1.1.1"));
        let lists = list(|b| {
            b.push_document().begin_array(c"clientSource").push("10.0.0.0/8").push("::1").end();
            b.begin_array(c"serverAddress").push("127.0.0.1").end().end();
            b.push_document().begin_array(c"clientSource").push("192.168.1.1").end();
            b.begin_array(c"serverAddress").push("192.168.1.2").end().end();
        });
        for (client, expected) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("::1", true),
            ("11.0.0.1", false),
            ("192.168.1.1", false),
        ] {
            assert_eq!(allows(&lists, client), expected, "{client}");
        }
        let nonsense = list(|b| {
            b.push_document().append(c"clientSource", "10.0.0.0/8").end().push(1);
            b.push_document().begin_array(c"clientSource").push("everywhere").end().end();
        });
        assert!(!allows(&nonsense, "10.1.2.3"));
    }

    #[test]
    fn lists_are_checked() {
        let checked = |list: &DocumentBuf| {
            let mut out = Builder::new();
            append_checked(&mut out, "createUser", list.view().get("r").unwrap().as_array().unwrap())
        };
        checked(&list(|b| _ = b.push_document().begin_array(c"clientSource").push("10.0.0.1").end().end()))
            .unwrap();
        let refused = |build: fn(&mut Builder)| checked(&list(build)).unwrap_err().code().number();
        assert_eq!(refused(|b| _ = b.push(1)), 14);
        assert_eq!(refused(|b| _ = b.push_document().append(c"clientSource", 1).end()), 14);
        assert_eq!(refused(|b| _ = b.push_document().append(c"source", 1).end()), 40415);
        assert_eq!(
            refused(|b| _ = b.push_document().begin_array(c"clientSource").push("10.0.0.0/99").end().end()),
            2
        );
    }
}
