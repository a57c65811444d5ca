//! `vellum backup`: copies all data of a server or data directory, or the commits since the last
//! backup, to a backup directory.
//!
//! `vellum restore`: creates a data directory as of a point in time from a backup and archived
//! journals.

use crate::cli::{BackupOptions, RestoreOptions, is_server_address};
use crate::failure::{Failure, Purpose, error_message};
use crate::server_client;
use base::bson::{Builder, Document, DocumentBuf, Value};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::disk::{Files, SystemFiles};
use storage::{
    ArchiveOptions, BackupDirectory, DiskOptions, Engine, PartWriter, ReadOnlyEngine, Restore, Since,
};
use wire::client::Client;
use wire::uri::ConnectionString;

/// Default source of a backup.
const LOCAL: &str = "mongodb://127.0.0.1:27017/";

/// Makes a backup. Returns the output. Creates nothing if a data directory cannot be read.
pub(crate) fn back_up(options: &BackupOptions) -> Result<String, Failure> {
    let (source, to) = match (options.arguments.as_slice(), &options.data) {
        ([.., to], _) if is_server_address(to) => return Err(Failure::of_options(target_hint(options, to))),
        ([to], Some(data)) => (Source::open(data, options)?, to),
        ([to], None) => (Source::Server(server_client::parse_uri(LOCAL)?), to),
        ([data, to], None) if Path::new(data).is_dir() => {
            return Err(Failure::of_options(format!(
                "'{data}' is a directory, not the address of a server. To back up a data directory without a \
                 server: vellum backup --data '{data}' '{to}'"
            )));
        }
        ([uri, to], None) => (Source::Server(server_client::parse_uri(uri)?), to),
        _ => {
            return Err(Failure::of_options(
                "with --data, give only the directory to write the backup to: vellum backup --data DIR TO",
            ));
        }
    };
    let mut directory = BackupDirectory::open(Arc::new(SystemFiles), Path::new(to))
        .map_err(|error| error_message(&error, Path::new(to), Purpose::Target))?;
    let since = directory.since().filter(|_| !options.full);
    let mut part = directory.begin().map_err(|error| error.to_string())?;
    let why = match source.copy(options, since, &mut part) {
        Ok(why) => why,
        Err(error) => {
            part.discard();
            return Err(error.into());
        }
    };
    let bytes = part.written();
    let kind = part.finish().map_err(|error| error.to_string())?;
    let Some(part) = directory.parts().last() else { return Err("no backup was written".to_string().into()) };
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let title = match kind {
        "full" => format!("everything{why}"),
        _ => format!("{} commits since the previous backup", part.end.position - part.from),
    };
    Ok(format!(
        "{}: {title}, {bytes} bytes, up to {}",
        part.path.display(),
        format_cluster_time(part.end.covers)
    ))
}

/// Returns the message for a connection string in the place of the target.
fn target_hint(options: &BackupOptions, address: &str) -> String {
    let hint = match (options.arguments.as_slice(), &options.data) {
        (_, Some(_)) => "give the directory to write to: vellum backup --data DIR TO".to_string(),
        ([other, _], None) if !is_server_address(other) => {
            format!("give it before the directory to write to: vellum backup '{address}' '{other}'")
        }
        ([first, ..], None) => {
            format!("give the directory to write to, after the connection string: vellum backup '{first}' TO")
        }
        _ => String::new(),
    };
    format!("'{address}' is the address of a server: {hint}")
}

/// What a backup copies.
enum Source {
    /// A data directory that is not in use.
    Directory(Box<ReadOnlyEngine>),
    /// The first reachable server of a connection string.
    Server(ConnectionString),
}

impl Source {
    /// Opens a data directory.
    fn open(data: &Path, options: &BackupOptions) -> Result<Self, String> {
        let archive = options
            .journal_archive
            .clone()
            .map(|directory: PathBuf| ArchiveOptions { directory, keep: None });
        let journal_directory = options.journal_dir.clone();
        let options = DiskOptions { journal_directory, archive, ..DiskOptions::new(data) };
        let engine = ReadOnlyEngine::open(&options);
        engine
            .map(|engine| Source::Directory(Box::new(engine)))
            .map_err(|error| error_message(&error, data, Purpose::Backup))
    }

    /// Copies the data into a part. Returns the reason for a full backup if changes were requested.
    fn copy(
        self,
        options: &BackupOptions,
        since: Option<Since>,
        part: &mut PartWriter<'_>,
    ) -> Result<Option<String>, String> {
        let engine = match self {
            Source::Directory(engine) => engine,
            Source::Server(uri) => {
                let (client, host) = server_client::connect(&uri, options.timeout)?;
                let timeout = Duration::from_millis(options.timeout);
                return receive(client, timeout, since, part).map_err(|why| format!("{host}: {why}"));
            }
        };
        // Later commits get a later second, as long as the directory is not in use.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut backup =
            engine.backup(since, (now << 32).saturating_sub(1)).map_err(|error| error.to_string())?;
        while let Some(piece) = backup.piece().map_err(|error| error.to_string())? {
            part.write(&piece).map_err(|error| error.to_string())?;
        }
        Ok(backup.why_full().map(str::to_string))
    }
}

fn receive(
    mut client: Client,
    timeout: Duration,
    since: Option<Since>,
    part: &mut PartWriter<'_>,
) -> Result<Option<String>, String> {
    let mut command = Builder::new();
    command.append(c"vellumBackup", 1);
    if let Some(since) = since {
        command
            .begin_document(c"since")
            .append(c"id", since.id as i64)
            .append(c"position", since.position as i64);
        command.end();
    }
    command.append(c"$db", "admin");
    let mut ask = |command: &DocumentBuf| {
        client.set_deadline(Instant::now() + timeout);
        client.command(command)
    };
    let mut reply = ask(&command.finish())?;
    let mut why = None;
    let mut batch = "firstBatch";
    loop {
        let cursor = document(reply.view(), "cursor")?;
        let documents = cursor.get(batch).and_then(|batch| batch.as_array()).ok_or_else(unexpected_reply)?;
        for document in documents.iter().filter_map(|document| document.as_document()) {
            match document.get("data") {
                Some(Value::Binary { bytes, .. }) => part.write(bytes).map_err(|error| error.to_string())?,
                _ => why = document.get("why").and_then(|why| why.as_str()).map(str::to_string),
            }
        }
        let id = cursor.get("id").and_then(|id| id.as_i64()).ok_or_else(unexpected_reply)?;
        if id == 0 {
            return Ok(why);
        }
        let mut more = Builder::new();
        more.append(c"getMore", id).append(c"collection", "$cmd.vellumBackup").append(c"$db", "admin");
        reply = ask(&more.finish())?;
        batch = "nextBatch";
    }
}

fn document<'a>(reply: Document<'a>, name: &str) -> Result<Document<'a>, String> {
    reply.get(name).and_then(|value| value.as_document()).ok_or_else(unexpected_reply)
}

fn unexpected_reply() -> String {
    "the reply is not part of a backup".to_string()
}

/// Restores a backup. Returns the output.
pub(crate) fn restore(options: &RestoreOptions) -> Result<String, Failure> {
    if options.from.is_file() {
        let directory = options.from.parent().filter(|parent| !parent.as_os_str().is_empty());
        return Err(Failure::of_options(format!(
            "{} is a file. Give the directory of the backup: {}",
            options.from.display(),
            directory.unwrap_or(Path::new(".")).display()
        )));
    }
    let restore = Restore {
        from: options.from.clone(),
        archives: options.journal_archive.clone(),
        until: options.at,
        to: options.data.clone(),
        cache_bytes: options.cache_size,
    };
    let files: Arc<dyn Files> = Arc::new(SystemFiles);
    let restored = storage::restore(&files, &restore)
        .map_err(|error| error_message(&error, &options.data, Purpose::Target))?;
    Ok(format!(
        "{}: {} and {} later commits, the last at {}",
        options.data.display(),
        restored.full.display(),
        restored.commits,
        format_cluster_time(restored.time)
    ))
}

/// Formats a cluster time for people: date and number.
pub(crate) fn format_cluster_time(time: u64) -> String {
    if time == 0 {
        return "unknown time".to_string();
    }
    let seconds = time >> 32;
    let text = Timestamp::from_second(seconds as i64).map(|time| time.to_string());
    format!("{} ({seconds},{})", text.unwrap_or_default(), time & u64::from(u32::MAX))
}
