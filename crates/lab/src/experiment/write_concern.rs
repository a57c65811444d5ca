//! `write-concern`: what waiting for one member, for a majority, or for the journal costs, on one
//! connection and on several.
//!
//! A target that acknowledges what it can't have done, such as w: 2 with no second member, gets no
//! figures for it: they would be those of something else. The row says what was claimed.

use super::Experiment;
use super::bare::{Bare, Sent};
use super::parts::Link;
use super::sentences::{self, Apart};
use crate::error::Result;
use crate::load::Worker;
use crate::load::measure::{Bench, Case, Prepared, Visit};
use crate::load::random::Dice;
use crate::report::figures;
use crate::result::{Kind, Promise, Report, Row, Section};
use crate::run::Lab;
use crate::target::{Protocol, Target};
use mongodb::bson::{Bson, Document, doc};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The experiment.
pub(crate) struct WriteConcern;

const INSERTS: u64 = 1000;
const CONNECTIONS: &[u32] = &[1, 8];
const NAME: &str = "concerns";

/// A write concern.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Concern {
    w: W,
    j: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum W {
    Members(i32),
    Majority,
}

impl Concern {
    fn all() -> Vec<Concern> {
        let ws = [W::Members(0), W::Members(1), W::Members(2), W::Majority];
        let js = [None, Some(true), Some(false)];
        ws.into_iter().flat_map(|w| js.map(|j| Concern { w, j })).collect()
    }

    /// As rows name it.
    fn name(self) -> String {
        let w = match self.w {
            W::Members(members) => format!("w {members}"),
            W::Majority => "w majority".to_string(),
        };
        self.j.map_or(w.clone(), |j| format!("{w}, j {j}"))
    }

    fn document(self) -> Document {
        let mut concern = match self.w {
            W::Members(members) => doc! { "w": members },
            W::Majority => doc! { "w": "majority" },
        };
        if let Some(j) = self.j {
            concern.insert("j", j);
        }
        concern
    }

    fn command(self, database: &str, seed: u64, number: u64) -> Document {
        let text = Dice::of(seed, number).words(200);
        doc! {
            "insert": NAME,
            "documents": [{ "_id": number as i64, "text": text }],
            "writeConcern": self.document(),
            "$db": database,
        }
    }
}

impl Experiment for WriteConcern {
    fn name(&self) -> &'static str {
        "write-concern"
    }

    fn title(&self) -> String {
        "Write concerns".to_string()
    }

    fn about(&self) -> String {
        "Inserts of one document of about 250 bytes, by write concern. Nothing is printed as a write concern that \
         a target acknowledged without being able to keep it. Inserts with w 0 go over a bare connection, since \
         the official driver refuses to send them, and take as long as handing them to the kernel."
            .to_string()
    }

    async fn measure(&self, lab: &mut Lab) -> Result<()> {
        let section = lab.section(
            "write-concern",
            "Inserts by write concern",
            "An operation is one insert, until it is acknowledged. Rows are w, columns j; colours and lines have one scale.",
            Kind::Matrix,
        );
        let promises = lab.report.targets.iter();
        let promises: Arc<BTreeMap<String, Promise>> =
            Arc::new(promises.map(|info| (info.name.clone(), info.fingerprint.promise)).collect());
        let mut cases = Vec::new();
        for connections in lab.connections(CONNECTIONS) {
            for concern in Concern::all() {
                let (sent, promises) = (Sent::default(), Arc::clone(&promises));
                let bench = Inserting { concern, seed: lab.seed, sent, promises };
                cases.push(Case::new(concern.name(), lab.operations(INSERTS), bench).on(connections));
            }
        }
        lab.measure(section, &cases).await;
        Ok(())
    }

    fn findings(&self, report: &Report) -> Vec<String> {
        report.sections.iter().filter(|section| section.kind == Kind::Matrix).flat_map(findings).collect()
    }
}

#[derive(Clone, Debug)]
struct Inserting {
    concern: Concern,
    seed: u64,
    /// Sent in this round with w 0.
    sent: Sent,
    promises: Arc<BTreeMap<String, Promise>>,
}

impl Bench for Inserting {
    type Worker = Inserter;

    async fn prepare(&self, target: &Target, visit: &Visit) -> Result<Prepared<Inserter>> {
        if target.protocol == Protocol::Postgres {
            return Ok(Prepared::Cannot("write concerns are MongoDB's".to_string()));
        }
        let link = Link::open(target).await?;
        create(&link).await?;
        // Asked over a connection that hears the answer: w 0 would never tell.
        if let Some(why) = self.refusal(&link).await? {
            return Ok(Prepared::Cannot(why));
        }
        self.sent.clear();
        if self.concern.w == W::Members(0) {
            create(&link).await?;
            return self.bare(target, visit.connections).await;
        }
        let links = Link::open_all(target, visit.connections).await?;
        let by = links.into_iter().map(|link| Inserter { by: By::Driver(Box::new(link)), of: self.clone() });
        Ok(Prepared::Ready(by.collect()))
    }

    async fn finish(&self, target: &Target, row: &mut Row) -> Result<()> {
        let sent = self.sent.messages();
        if self.concern.w == W::Members(0) && !target.is_floor && sent > 0 {
            if !self.sent.settle().await {
                row.note =
                    Some("the server didn't answer afterwards: how many arrived is not known".to_string());
                return Ok(());
            }
            let arrived = self.arrived(target).await?;
            let share = 100.0 * arrived as f64 / sent as f64;
            let before = row.extra.get(ARRIVED).copied().unwrap_or(100.0);
            row.extra.insert(ARRIVED.to_string(), share.min(before));
        }
        Ok(())
    }
}

impl Inserting {
    async fn bare(&self, target: &Target, connections: u32) -> Result<Prepared<Inserter>> {
        let mut workers = Vec::new();
        for _ in 0..connections {
            match Bare::connect(target, self.sent.clone()).await? {
                Ok(bare) => {
                    let by = By::Bare { bare, database: target.database()?.to_string() };
                    workers.push(Inserter { by, of: self.clone() });
                }
                Err(why) => return Ok(Prepared::Cannot(why)),
            }
        }
        Ok(Prepared::Ready(workers))
    }

    /// Tries the write concern once: why it isn't measured, if so.
    async fn refusal(&self, link: &Link) -> Result<Option<String>> {
        let mut command = self.concern.command(link.database.name(), self.seed, u64::MAX >> 1);
        command.remove("$db");
        let reply = match link.database.run_command(command).await {
            Ok(reply) => reply,
            Err(error) if is_command_error(&error) => {
                return Ok(Some(format!("refused: {}", message_of(&error))));
            }
            Err(error) => return Err(link.target.error(error)),
        };
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Ok(Some(format!(
                "refused: {}",
                error.get_str("errmsg").unwrap_or("a write concern error")
            )));
        }
        if link.target.is_floor {
            return Ok(None);
        }
        if let (W::Members(wanted), Some(members)) = (self.concern.w, members(link).await?)
            && i64::from(wanted) > members
        {
            return Ok(Some(claimed(wanted, members)));
        }
        let promise = self.promises.get(&link.target.name).copied();
        let acknowledged = self.concern.w != W::Members(0);
        if acknowledged && self.concern.j == Some(true) && promise == Some(Promise::Memory) {
            let why = "claimed: it acknowledged j: true, but keeps its data in memory only, so that there was no \
                       journal to wait for; not measured as that";
            return Ok(Some(why.to_string()));
        }
        Ok(None)
    }

    /// How many documents are there.
    async fn arrived(&self, target: &Target) -> Result<u64> {
        let link = Link::open(target).await?;
        link.named(link.collection::<Document>(NAME).count_documents(doc! {}).await)
    }
}

/// An empty collection.
async fn create(link: &Link) -> Result<()> {
    link.drop(NAME).await?;
    link.run(doc! { "create": NAME }).await.map(drop)
}

fn claimed(wanted: i32, members: i64) -> String {
    format!(
        "claimed: it acknowledged w: {wanted}, but says itself that {members} member holds data; its figures would \
         be those of w {members}, and are not measured as w {wanted}"
    )
}

/// Whether the server said no, as opposed to being gone.
fn is_command_error(error: &mongodb::error::Error) -> bool {
    matches!(*error.kind, mongodb::error::ErrorKind::Command(_))
}

fn message_of(error: &mongodb::error::Error) -> String {
    match &*error.kind {
        mongodb::error::ErrorKind::Command(error) => error.message.clone(),
        _ => error.to_string(),
    }
}

/// How many members that hold data the target says there are; `None` if it can't be told, as
/// behind a router.
async fn members(link: &Link) -> Result<Option<i64>> {
    let hello = match link.database.run_command(doc! { "hello": 1 }).await {
        Ok(hello) => hello,
        // Servers before 4.4 know it by its older name.
        Err(_) => link.admin(doc! { "isMaster": 1 }).await?,
    };
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Ok(None);
    }
    if !hello.contains_key("setName") {
        return Ok(Some(1));
    }
    let status = link.client.database("admin").run_command(doc! { "replSetGetStatus": 1 }).await;
    Ok(Some(status.ok().and_then(|status| holding_data(&status)).unwrap_or_else(|| listed(&hello))))
}

/// Members in state PRIMARY or SECONDARY.
fn holding_data(status: &Document) -> Option<i64> {
    let members = status.get_array("members").ok()?;
    let state = |member: &Bson| match member.as_document()?.get("state")? {
        Bson::Int32(state) => Some(i64::from(*state)),
        Bson::Int64(state) => Some(*state),
        _ => None,
    };
    Some(members.iter().filter(|member| matches!(state(member), Some(1 | 2))).count() as i64)
}

/// Members that hello names, arbiters aside.
fn listed(hello: &Document) -> i64 {
    let count = |field| hello.get_array(field).map_or(0, Vec::len);
    (count("hosts") + count("passives")).max(1) as i64
}

/// One connection that inserts.
struct Inserter {
    by: By,
    of: Inserting,
}

enum By {
    Driver(Box<Link>),
    Bare { bare: Bare, database: String },
}

impl Worker for Inserter {
    async fn operation(&mut self, number: u64) -> Result<()> {
        let Inserting { concern, seed, .. } = &self.of;
        match &mut self.by {
            By::Bare { bare, database } => {
                let command = concern.command(database, *seed, number);
                bare.send(number, &command).await
            }
            By::Driver(link) => {
                let mut command = concern.command(link.database.name(), *seed, number);
                command.remove("$db");
                let reply = link.run(command).await?;
                match reply.get_document("writeConcernError").ok().or_else(|| write_error(&reply)) {
                    None => Ok(()),
                    Some(error) => Err(link.target.error(error.get_str("errmsg").unwrap_or("a write error"))),
                }
            }
        }
    }
}

fn write_error(reply: &Document) -> Option<&Document> {
    reply.get_array("writeErrors").ok()?.first()?.as_document()
}

/// What the journal costs each target, and what was claimed.
fn findings(section: &Section) -> Vec<String> {
    let mut found = Vec::new();
    for target in sentences::targets(section) {
        let rows = section.rows.iter().filter(|row| row.target == target && row.operations > 0);
        let median = |name: &str| {
            let row = rows.clone().find(|row| row.case == name)?;
            Some((row.latency.quantile(0.5), row))
        };
        if let Some(((plain, before), (journaled, after))) = median("w 1, j false").zip(median("w 1, j true"))
        {
            let connections = before.connections;
            let apart = sentences::apart(before, after, |round| round.latency.p50);
            if apart == Apart::No {
                found.push(format!(
                    "{target}, {}: no difference can be told between waiting for the journal and not, {} and {} in the median.",
                    figures::plural(connections.into(), "connection"),
                    figures::latency(journaled),
                    figures::latency(plain)
                ));
                continue;
            }
            found.push(format!(
                "{target}, {}: an acknowledged insert takes {} without waiting for the journal and {} with it ({}), \
                 in the median{}.",
                figures::plural(connections.into(), "connection"),
                figures::latency(plain),
                figures::latency(journaled),
                figures::times(journaled / plain),
                apart.caveat()
            ));
        }
    }
    let claims =
        section.rows.iter().filter(|row| row.note.as_ref().is_some_and(|note| note.starts_with("claimed")));
    let mut claimed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in claims {
        let cases = claimed.entry(&row.target).or_default();
        if !cases.contains(&row.case.as_str()) {
            cases.push(&row.case);
        }
    }
    for (target, cases) in claimed {
        found.push(format!("{target} acknowledged what it can't have done: {}.", cases.join("; ")));
    }
    found.extend(sentences::targets(section).into_iter().filter_map(|target| lost(section, target)));
    found
}

/// Figures beside rows with w 0: how many of the inserts were there in the end, in the worst round.
const ARRIVED: &str = "arrived, %";

/// What became of inserts that nobody waited for, where some are missing.
fn lost(section: &Section, target: &str) -> Option<String> {
    let rows = section.rows.iter().filter(|row| row.target == target);
    let worst = rows.filter_map(|row| row.extra.get(ARRIVED)).copied().min_by(f64::total_cmp)?;
    (worst < 100.0).then(|| {
        let share = figures::number(worst);
        format!(
            "{target}: of the inserts sent with w 0, {share} % were there once the server had carried out everything \
             that was sent, in the worst round."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_every_concern_apart() {
        let names: Vec<String> = Concern::all().into_iter().map(Concern::name).collect();
        assert_eq!(names.len(), 12);
        assert_eq!((names[0].as_str(), names[10].as_str()), ("w 0", "w majority, j true"));
        assert_eq!(Concern { w: W::Members(2), j: Some(false) }.document(), doc! { "w": 2, "j": false });
    }

    #[test]
    fn members_that_hold_no_data_do_not_count() {
        let member = |state: i32| doc! { "state": state };
        let status = doc! { "members": [member(1), member(2), member(7), member(3)] };
        assert_eq!(holding_data(&status), Some(2));
        assert_eq!(listed(&doc! { "hosts": ["a", "b"], "arbiters": ["c"] }), 2);
        assert_eq!(listed(&doc! {}), 1);
    }
}
