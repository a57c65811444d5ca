//! Table of mongod's options, with the reason for each option that is refused.

use Support::{Off, Refused, Switch, Value};

/// Treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Support {
    /// A supported switch.
    Switch,
    /// An option with a value, which may be refused.
    Value,
    /// A switch that stays off, for this reason. A file may have `false`.
    Off(&'static str),
    /// Refused by name, for this reason.
    Refused(&'static str),
}

const NO_SHARDS: &str = "sharding is not supported";
const NO_OUTGOING_TLS: &str = "Vellum opens no connections to other servers";
const NO_SYSLOG: &str = "syslog is not supported; use --logpath";
const NO_SOCKET: &str = "Unix domain sockets are not supported";
const NOT_WIRED_TIGER: &str = "the storage engine is not WiredTiger";
const NOT_IMPLEMENTED: &str = "Vellum does not have this feature";
const NO_AUDIT: &str = "Vellum writes no audit log";
const NO_ENCRYPTION: &str = "Vellum does not encrypt its files; use an encrypted volume";
const NO_EXTENSIONS: &str = "Vellum loads no extensions";
const NO_EXPANSION: &str = "the configuration file has no expansion directives";
const NO_MASTER: &str = "MongoDB removed this form of replication; use --replSet";
const ONE_PORT: &str = "the server listens on one port";
const FIXED_CIPHERS: &str = "the TLS ciphers are fixed";
const ONLY_FILES: &str = "certificates are files; use --tlsCertificateKeyFile";
const ALWAYS_VALIDATED: &str = "messages are always validated";

/// An option of mongod.
#[derive(Debug)]
pub(super) struct MongodOption {
    /// Name without dashes.
    pub(super) name: &'static str,
    /// Name in a configuration file; empty if the file cannot have it.
    pub(super) path: &'static str,
    /// Treatment of the option.
    pub(super) treatment: Support,
}

const fn option(name: &'static str, path: &'static str, treatment: Support) -> MongodOption {
    MongodOption { name, path, treatment }
}

/// Options of mongod, by name. [`REFUSED_GROUPS`] has further ones.
pub(super) const OPTIONS: &[MongodOption] = &[
    option("arbiter", "", Refused(NO_MASTER)),
    option("auth", "", Switch),
    option("bind_ip", "net.bindIp", Value),
    option("bind_ip_all", "net.bindIpAll", Switch),
    option("cacheSize", "", Refused("use --wiredTigerCacheSizeGB")),
    option("clusterAuthMode", "security.clusterAuthMode", Value),
    option(
        "clusterIpSourceAllowlist",
        "security.clusterIpSourceAllowlist",
        Refused("Vellum has no cluster members to check"),
    ),
    option(
        "clusterIpSourceWhitelist",
        "security.clusterIpSourceWhitelist",
        Refused("Vellum has no cluster members to check"),
    ),
    option("config", "", Value),
    option("configExpand", "", Value),
    option("configExpandTimeoutSecs", "", Refused(NO_EXPANSION)),
    option("configsvr", "", Refused(NO_SHARDS)),
    option("cpu", "", Refused("Vellum has nothing to print for it")),
    option("crashOnInvalidBSONError", "", Refused(NOT_IMPLEMENTED)),
    option("dbpath", "storage.dbPath", Value),
    option("directoryperdb", "storage.directoryPerDB", Off("all databases share one file")),
    option("enableEncryption", "security.enableEncryption", Off(NO_ENCRYPTION)),
    option("enableMajorityReadConcern", "replication.enableMajorityReadConcern", Value),
    option("extensionsConfigPath", "processManagement.extensionsConfigPath", Refused(NO_EXTENSIONS)),
    option(
        "extensionsSignaturePublicKeyPath",
        "processManagement.extensionsSignaturePublicKeyPath",
        Refused(NO_EXTENSIONS),
    ),
    option("filePermissions", "net.unixDomainSocket.filePermissions", Refused(NO_SOCKET)),
    option("fork", "processManagement.fork", Switch),
    option("groupCollections", "storage.groupCollections", Off("all databases share one file")),
    option("help", "", Switch),
    option("initializerShuffleSeed", "", Refused(NOT_IMPLEMENTED)),
    option(
        "inMemorySizeGB",
        "storage.inMemory.engineConfig.inMemorySizeGB",
        Refused("the limit of the process bounds the memory"),
    ),
    option("ipv6", "net.ipv6", Switch),
    option("journal", "storage.journal.enabled", Switch),
    option("journalCommitInterval", "storage.journal.commitIntervalMs", Value),
    option("keyFile", "security.keyFile", Value),
    option("listenBacklog", "net.listenBacklog", Refused("the backlog is fixed")),
    option("loadExtensions", "processManagement.loadExtensions", Refused(NO_EXTENSIONS)),
    option("logappend", "systemLog.logAppend", Switch),
    option("logFormat", "systemLog.logFormat", Value),
    option("logpath", "systemLog.path", Value),
    option("logRotate", "systemLog.logRotate", Value),
    option("logv2", "", Switch),
    option("master", "", Refused(NO_MASTER)),
    option("maxConns", "net.maxIncomingConnections", Value),
    option("moveParanoia", "", Refused(NO_SHARDS)),
    option("networkMessageCompressors", "net.compression.compressors", Value),
    option("noauth", "", Switch),
    option("nojournal", "", Switch),
    option("noMoveParanoia", "", Refused(NO_SHARDS)),
    option("noobjcheck", "", Refused(ALWAYS_VALIDATED)),
    option("noscripting", "", Switch),
    option("notablescan", "", Switch),
    option("nounixsocket", "", Switch),
    option("objcheck", "net.wireObjectCheck", Switch),
    option("opIdMem", "", Refused(NO_MASTER)),
    option("oplogMinRetentionHours", "storage.oplogMinRetentionHours", Value),
    option("oplogSize", "replication.oplogSizeMB", Value),
    option("outputConfig", "", Refused("Vellum does not print the resolved options")),
    option("pairwith", "", Refused(NO_MASTER)),
    option("pidfilepath", "processManagement.pidFilePath", Value),
    option("port", "net.port", Value),
    option("priorityPort", "net.priorityPort", Refused(ONE_PORT)),
    option("profile", "", Value),
    option(
        "profileFilter",
        "operationProfiling.filter",
        Refused("the command profile sets filters, for each database"),
    ),
    option("proxyUnixSocketFileGroupId", "net.proxyUnixDomainSocket.fileGroupId", Refused(NO_SOCKET)),
    option("proxyUnixSocketPrefix", "net.proxyUnixDomainSocket.pathPrefix", Refused(NO_SOCKET)),
    option("queryableBackupMode", "storage.queryableBackupMode", Off(NOT_IMPLEMENTED)),
    option("quiet", "systemLog.quiet", Switch),
    option("redactClientLogData", "security.redactClientLogData", Off(NOT_IMPLEMENTED)),
    option("repair", "storage.repair", Switch),
    option("replSet", "replication.replSetName", Value),
    option("secondaryPort", "net.secondaryPort", Refused(ONE_PORT)),
    option("setParameter", "", Value),
    option("shardsvr", "sharding.clusterRole", Refused(NO_SHARDS)),
    option("shutdown", "", Refused("send the process SIGTERM, or the command shutdown")),
    option("slave", "", Refused(NO_MASTER)),
    option("slowms", "operationProfiling.slowOpThresholdMs", Value),
    option("slowOpSampleRate", "operationProfiling.slowOpSampleRate", Value),
    option("storageEngine", "storage.engine", Value),
    option("syncdelay", "storage.syncPeriodSecs", Value),
    option("sysinfo", "", Refused("Vellum has nothing to print for it")),
    option("syslog", "", Refused(NO_SYSLOG)),
    option("syslogFacility", "systemLog.syslogFacility", Refused(NO_SYSLOG)),
    option("timeStampFormat", "systemLog.timeStampFormat", Value),
    option("timeZoneInfo", "processManagement.timeZoneInfo", Value),
    option("tlsAllowConnectionsWithoutCertificates", "net.tls.allowConnectionsWithoutCertificates", Switch),
    option(
        "tlsAllowInvalidCertificates",
        "net.tls.allowInvalidCertificates",
        Off("client certificates are always validated"),
    ),
    option("tlsAllowInvalidHostnames", "net.tls.allowInvalidHostnames", Off(NO_OUTGOING_TLS)),
    option("tlsCAFile", "net.tls.CAFile", Value),
    option("tlsCertificateKeyFile", "net.tls.certificateKeyFile", Value),
    option("tlsCertificateKeyFilePassword", "net.tls.certificateKeyFilePassword", Value),
    option("tlsCertificateSelector", "net.tls.certificateSelector", Refused(ONLY_FILES)),
    option("tlsCipherConfig", "net.tls.tlsCipherConfig", Refused(FIXED_CIPHERS)),
    option("tlsClusterAuthX509Attributes", "net.tls.clusterAuthX509.attributes", Refused(NO_OUTGOING_TLS)),
    option(
        "tlsClusterAuthX509ExtensionValue",
        "net.tls.clusterAuthX509.extensionValue",
        Refused(NO_OUTGOING_TLS),
    ),
    option("tlsClusterCAFile", "net.tls.clusterCAFile", Refused(NO_OUTGOING_TLS)),
    option("tlsClusterCertificateSelector", "net.tls.clusterCertificateSelector", Refused(NO_OUTGOING_TLS)),
    option("tlsClusterFile", "net.tls.clusterFile", Refused(NO_OUTGOING_TLS)),
    option("tlsClusterPassword", "net.tls.clusterPassword", Refused(NO_OUTGOING_TLS)),
    option("tlsCRLFile", "net.tls.CRLFile", Value),
    option("tlsDisabledProtocols", "net.tls.disabledProtocols", Value),
    option("tlsFIPSMode", "net.tls.FIPSMode", Off("the built-in cryptography is not FIPS-certified")),
    option(
        "tlsLogVersions",
        "net.tls.logVersions",
        Refused("serverStatus has the counters in transportSecurity"),
    ),
    option("tlsMode", "net.tls.mode", Value),
    option("tlsOnNormalPorts", "", Refused("use --tlsMode requireTLS")),
    option("traceExceptions", "systemLog.traceAllExceptions", Off(NOT_IMPLEMENTED)),
    option(
        "transitionToAuth",
        "security.transitionToAuth",
        Off("use --auth to require authentication, or omit it"),
    ),
    option("unixSocketPrefix", "net.unixDomainSocket.pathPrefix", Refused(NO_SOCKET)),
    option("upgrade", "", Refused("data files need no upgrade")),
    option("verbose", "", Switch),
    option("version", "", Switch),
    option("wiredTigerCacheSizeGB", "storage.wiredTiger.engineConfig.cacheSizeGB", Value),
    option(
        "wiredTigerCollectionBlockCompressor",
        "storage.wiredTiger.collectionConfig.blockCompressor",
        Refused(NOT_WIRED_TIGER),
    ),
    option(
        "wiredTigerDirectoryForIndexes",
        "storage.wiredTiger.engineConfig.directoryForIndexes",
        Off(NOT_WIRED_TIGER),
    ),
    option("wiredTigerEngineConfigString", "", Refused(NOT_WIRED_TIGER)),
    option("wiredTigerIndexPrefixCompression", "storage.wiredTiger.indexConfig.prefixCompression", Value),
    option(
        "wiredTigerJournalCompressor",
        "storage.wiredTiger.engineConfig.journalCompressor",
        Refused(NOT_WIRED_TIGER),
    ),
    option("zstdDefaultCompressionLevel", "", Refused(NOT_WIRED_TIGER)),
];

/// Groups of options that are refused: the start of a name on the command line and in a file, and the reason. An empty
/// start matches nothing. The options of MongoDB Enterprise and of Windows services are here.
const REFUSED_GROUPS: &[(&str, &str, &str)] = &[
    ("audit", "auditLog.", NO_AUDIT),
    ("enableFreeMonitoring", "cloud.", "Vellum reports to no cloud service"),
    ("encryption", "security.encryption", NO_ENCRYPTION),
    ("freeMonitoringTag", "", "Vellum reports to no cloud service"),
    ("kmip", "security.kmip.", NO_ENCRYPTION),
    ("ldap", "security.ldap.", "LDAP is not supported"),
    ("maintenanceMode", "", NOT_IMPLEMENTED),
    ("rotateMasterKey", "", NO_ENCRYPTION),
    ("sasl", "security.sasl.", "Kerberos and SASL proxies are not supported"),
    ("serviceExecutor", "net.serviceExecutor", NOT_IMPLEMENTED),
    ("service", "processManagement.windowsService.", "Vellum is not a Windows service"),
    ("snmp", "snmp.", "SNMP is not supported"),
    ("wiredTiger", "storage.wiredTiger.", NOT_WIRED_TIGER),
    ("", "net.maxIncomingConnectionsOverride", "the connection limit has no exceptions"),
    ("", "net.reservedAdminThreads", NOT_IMPLEMENTED),
    ("", "security.authSchemaVersion", NOT_IMPLEMENTED),
    ("", "security.enableLocalhostAuthBypass", "use setParameter.enableLocalhostAuthBypass"),
    ("", "sharding.", NO_SHARDS),
    ("", "systemLog.component.", "components have no level of their own; use systemLog.verbosity"),
];

/// TLS options: names before version 4.2 on the command line and in a file, and present names.
const OLD_NAMES: &[(&str, &str, &str)] = &[
    (
        "sslAllowConnectionsWithoutCertificates",
        "net.ssl.allowConnectionsWithoutCertificates",
        "tlsAllowConnectionsWithoutCertificates",
    ),
    ("sslAllowInvalidCertificates", "net.ssl.allowInvalidCertificates", "tlsAllowInvalidCertificates"),
    ("sslAllowInvalidHostnames", "net.ssl.allowInvalidHostnames", "tlsAllowInvalidHostnames"),
    ("sslCAFile", "net.ssl.CAFile", "tlsCAFile"),
    ("sslCipherConfig", "net.ssl.sslCipherConfig", "tlsCipherConfig"),
    ("sslClusterCAFile", "net.ssl.clusterCAFile", "tlsClusterCAFile"),
    ("sslClusterFile", "net.ssl.clusterFile", "tlsClusterFile"),
    ("sslClusterPassword", "net.ssl.clusterPassword", "tlsClusterPassword"),
    ("sslCRLFile", "net.ssl.CRLFile", "tlsCRLFile"),
    ("sslDisabledProtocols", "net.ssl.disabledProtocols", "tlsDisabledProtocols"),
    ("sslFIPSMode", "net.ssl.FIPSMode", "tlsFIPSMode"),
    ("sslMode", "net.ssl.mode", "tlsMode"),
    ("sslOnNormalPorts", "", "tlsOnNormalPorts"),
    ("sslPEMKeyFile", "net.ssl.PEMKeyFile", "tlsCertificateKeyFile"),
    ("sslPEMKeyPassword", "net.ssl.PEMKeyPassword", "tlsCertificateKeyFilePassword"),
];

/// Returns the option of a present or older name.
pub(super) fn find(name: &str) -> Option<&'static MongodOption> {
    let older = OLD_NAMES.iter().find(|(older, _, _)| *older == name);
    let name = older.map_or(name, |(_, _, newer)| newer);
    OPTIONS.iter().find(|known| known.name == name)
}

/// Returns the option of a name in a file.
pub(super) fn find_in_file(path: &str) -> Option<&'static MongodOption> {
    if path.is_empty() {
        return None;
    }
    match OLD_NAMES.iter().find(|(_, older, _)| *older == path) {
        Some((_, _, newer)) => find(newer),
        None => OPTIONS.iter().find(|known| known.path == path),
    }
}

/// Returns the reason for refusing an option of a group, by its name.
pub(super) fn refused_group(name: &str) -> Option<&'static str> {
    let mut groups = REFUSED_GROUPS.iter().filter(|(start, _, _)| !start.is_empty());
    groups.find(|(start, _, _)| name.starts_with(start)).map(|(_, _, why)| *why)
}

/// Returns the reason for refusing an option of a group, by its name in a file.
pub(super) fn refused_group_in_file(path: &str) -> Option<&'static str> {
    let mut groups = REFUSED_GROUPS.iter().filter(|(_, start, _)| !start.is_empty());
    groups.find(|(_, start, _)| path.starts_with(start)).map(|(_, _, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        let plain = |name: &str| name.to_ascii_lowercase().replace('_', "");
        assert!(OPTIONS.is_sorted_by_key(|known| plain(known.name)));
    }
}
