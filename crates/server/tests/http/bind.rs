//! Addresses.

use std::net::TcpListener;
use std::sync::Arc;

use thalweg_server::{Options, Server};
use thalweg_types::{Class, Error};

use crate::fake::FakeNode;

fn bind(address: &str) -> Result<Server, Error> {
    Server::bind(address, Arc::new(FakeNode::default()), Options::default())
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = bind(&address).err().unwrap();
    assert_eq!(error.class(), Class::External);
    assert!(error.chain().starts_with(&format!("listen on {address}: ")), "{}", error.chain());
    assert!(error.hint().unwrap().contains("127.0.0.1:0"));
}

#[test]
fn addresses_that_others_can_reach_are_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080", "[::ffff:10.0.0.1]:80"] {
        let error = bind(address).err().unwrap();
        assert_eq!(error.class(), Class::User, "{address}");
        assert!(error.message().contains("neither TLS nor tokens"), "{error}");
        assert!(error.hint().unwrap().contains("127.0.0.1"));
    }
}

#[test]
fn what_is_no_address_is_refused() {
    for address in ["", "8080", "localhost", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x"] {
        let error = bind(address).err().unwrap();
        assert_eq!(error.class(), Class::User, "{address}");
        assert!(error.message().contains("HOST:PORT"), "{error}");
    }
}

#[test]
fn loopback_has_several_names() {
    for address in ["127.0.0.1:0", "127.0.0.2:0", "localhost:0"] {
        let server = bind(address).unwrap();
        assert!(server.local_addr().ip().is_loopback());
        assert_ne!(server.local_addr().port(), 0);
    }
}
