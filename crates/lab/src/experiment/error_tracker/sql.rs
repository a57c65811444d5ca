//! The same application on PostgreSQL, as one would write it there: columns, an upsert by the unique key, what varies as
//! jsonb, words in an array with an inverted index.

use super::Work;
use super::documents::{self, Occurrence};
use crate::error::Result;
use crate::experiment::parts::named;
use crate::target::Target;
use mongodb::bson::Bson;
use tokio_postgres::{Client, Statement};

const SCHEMA: &str = "DROP TABLE IF EXISTS notices, problems, apps; \
     CREATE TABLE apps (id bigint PRIMARY KEY, api_key text NOT NULL UNIQUE, name text NOT NULL, \
     problem_count int NOT NULL DEFAULT 0); \
     CREATE TABLE problems (id bigserial PRIMARY KEY, app_id bigint NOT NULL, fingerprint text NOT NULL, \
     app_name text, environment text, error_class text, place text, message text, words text[], \
     first_notice_at timestamptz, last_notice_at timestamptz, last_notice_id bigint, \
     resolved boolean NOT NULL DEFAULT false, comments_count int NOT NULL DEFAULT 0, notices_count int NOT NULL, \
     hosts jsonb NOT NULL DEFAULT '{}', user_agents jsonb NOT NULL DEFAULT '{}', UNIQUE (app_id, fingerprint)); \
     CREATE INDEX ON problems (last_notice_at DESC); CREATE INDEX ON problems (message); \
     CREATE INDEX ON problems USING gin (words); \
     CREATE TABLE notices (id bigserial PRIMARY KEY, problem_id bigint NOT NULL, created_at timestamptz NOT NULL, \
     body jsonb NOT NULL); CREATE INDEX ON notices (problem_id, id)";

const APP: &str = "SELECT id FROM apps WHERE api_key = $1";
const PROBLEM: &str = "INSERT INTO problems (app_id, fingerprint, app_name, environment, error_class, place, message, \
     words, first_notice_at, notices_count) VALUES ($1, $2, $3, 'production', $4, $5, $6, $7, $8, 1) \
     ON CONFLICT (app_id, fingerprint) DO UPDATE SET notices_count = problems.notices_count + 1 RETURNING id";
const NOTICE: &str =
    "INSERT INTO notices (problem_id, created_at, body) VALUES ($1, $2, $3::text::jsonb) RETURNING id";
const CACHED: &str = "UPDATE problems SET last_notice_at = $2, last_notice_id = $3, message = $4, \
     hosts = jsonb_set(hosts, ARRAY[$5::text], to_jsonb(coalesce((hosts->>$5::text)::int, 0) + 1)), \
     user_agents = jsonb_set(user_agents, ARRAY[$6::text], to_jsonb(coalesce((user_agents->>$6::text)::int, 0) + 1)) \
     WHERE id = $1";
const COUNTED: &str = "UPDATE apps SET problem_count = problem_count + 1 WHERE id = $1";

const BY_REGEX: &str =
    "app_name ~* $1 OR environment ~* $1 OR error_class ~* $1 OR message ~* $1 OR place ~* $1";
const BY_WORD: &str = "words @> ARRAY[$1::text]";

/// One process of the application.
pub(super) struct Sql {
    target: Target,
    client: Client,
    app: Statement,
    problem: Statement,
    notice: Statement,
    cached: Statement,
    counted: Statement,
    /// The count and the first page, by regular expression and by word.
    searches: [[Statement; 2]; 2],
}

/// Empty tables with their indexes, and the apps.
pub(super) async fn begin(target: &Target) -> Result<()> {
    let client = target.postgres().await?;
    named(target, client.batch_execute(SCHEMA).await)?;
    let insert = "INSERT INTO apps (id, api_key, name) VALUES ($1, $2, $3)";
    let insert = named(target, client.prepare(insert).await)?;
    for (id, (key, name)) in (0_i64..).zip(documents::app_keys()) {
        named(target, client.execute(&insert, &[&id, &key, &name]).await)?;
    }
    Ok(())
}

impl Sql {
    /// A connection of its own.
    pub(super) async fn open(target: &Target) -> Result<Sql> {
        let client = target.postgres().await?;
        let prepare = async |text: &str| named(target, client.prepare(text).await);
        let search = async |filter: &str| {
            let count = prepare(&format!("SELECT count(*) FROM problems WHERE {filter}")).await?;
            let page = format!(
                "SELECT * FROM problems WHERE {filter} ORDER BY last_notice_at DESC LIMIT {}",
                super::PAGE
            );
            Ok::<_, crate::error::Error>([count, prepare(&page).await?])
        };
        let searches = [search(BY_REGEX).await?, search(BY_WORD).await?];
        let (app, problem, notice) = (prepare(APP).await?, prepare(PROBLEM).await?, prepare(NOTICE).await?);
        let (cached, counted) = (prepare(CACHED).await?, prepare(COUNTED).await?);
        Ok(Sql { target: target.clone(), client, app, problem, notice, cached, counted, searches })
    }

    /// Stores an error, in as many statements as the other targets get commands.
    pub(super) async fn create(&self, error: &Occurrence) -> Result<()> {
        let (client, target) = (&self.client, &self.target);
        let app = named(target, client.query_one(&self.app, &[&error.api_key()]).await)?;
        let app: i64 = named(target, app.try_get(0))?;
        let (at, message, words) = (error.time(), error.message(), error.words());
        let (name, class, place) = (error.app_name(), error.error_class(), error.place());
        let problem = client
            .query_one(
                &self.problem,
                &[&app, &error.fingerprint_text(), &name, &class, &place, &message, &words, &at],
            )
            .await;
        let problem: i64 = named(target, named(target, problem)?.try_get(0))?;
        let body = serde_json::to_string(&error.notice(&Bson::Int64(problem)));
        let body = body.map_err(|error| target.error(error))?;
        let notice = named(target, client.query_one(&self.notice, &[&problem, &at, &body]).await)?;
        let notice: i64 = named(target, notice.try_get(0))?;
        let (host, agent) = (error.host(), error.agent());
        let cached = client.execute(&self.cached, &[&problem, &at, &notice, &message, &host, &agent]).await;
        named(target, cached)?;
        if error.is_new() {
            named(target, client.execute(&self.counted, &[&app]).await)?;
        }
        Ok(())
    }

    /// The count, then the first page.
    pub(super) async fn search(&self, work: Work, term: &str) -> Result<()> {
        let [regex, word] = &self.searches;
        let statements = if work == Work::Search { regex } else { word };
        for statement in statements {
            named(&self.target, self.client.query(statement, &[&term]).await)?;
        }
        Ok(())
    }
}
