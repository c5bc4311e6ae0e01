//! Certificates of a broker and of a client, signed by an authority that exists for them, all in PEM.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::super::finish;
use super::settings::USER;

/// The authority that both sides trust.
pub(super) const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";

/// Key and certificate of the broker, in one file.
pub(super) const SERVER: &str = "server.pem";

/// That of a client, whose name is that of the user who may do everything.
pub(super) const CLIENT: &str = "client.pem";
pub(super) const CLIENT_KEY: &str = "client.key";

/// All extensions are written down here: what a system adds by itself would make every certificate one of an authority.
const EXTENSIONS: &str = "\
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
authorityKeyIdentifier = keyid
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
authorityKeyIdentifier = keyid
";

pub(super) fn make(folder: &Path) -> Result<()> {
    std::fs::write(folder.join("openssl.cnf"), EXTENSIONS).context("write settings of openssl")?;
    let request = |extensions: &str, name: &str, key: &str, certificate: &str| {
        let mut request = Command::new("openssl");
        request.args(["req", "-x509", "-config", "openssl.cnf", "-extensions", extensions]);
        request.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
        request.args(["-subj", &format!("/CN={name}"), "-keyout", key, "-out", certificate]);
        request.current_dir(folder);
        request
    };
    let log = folder.join("openssl.log");
    finish(request("ca", "Thalweg tests", CA_KEY, CA), &log)?;
    let (key, certificate) = ("server.key", "server.crt");
    for mut of in
        [request("server", "localhost", key, certificate), request("client", USER, CLIENT_KEY, CLIENT)]
    {
        of.args(["-CA", CA, "-CAkey", CA_KEY]);
        finish(of, &log)?;
    }
    let parts = [key, certificate].map(|name| std::fs::read_to_string(folder.join(name)));
    let [key, certificate] = parts;
    std::fs::write(folder.join(SERVER), key? + &certificate?).context("write what the broker has")
}
