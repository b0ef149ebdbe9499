//! The names of bundles that are gone, which version 0.2 of the PostgreSQL store keeps for ever: its table would grow without a bound, and
//! a node without a clock, which uses its names again after each start, would never be heard again.
//!
//! Until when each name is to be kept stands in a table of its own beside those of the store. Lifetimes may be years: so many names are kept
//! at most.

use std::time::{Duration, Instant};

use hardy_bpa::storage::Result;
use hardy_bpv7::bundle::Id;
use parking_lot::Mutex;
use sqlx::{PgPool, postgres::PgPoolOptions};
use time::OffsetDateTime;

/// Connections: the store has its own.
const CONNECTIONS: u32 = 4;
/// How often names are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// Names that are forgotten at a time when there are too many: other changes wait meanwhile.
const AT_A_TIME: usize = 1000;
/// How long names are kept of which nothing is known, as those of earlier versions.
const UNKNOWN: time::Duration = time::Duration::days(365);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS starhaul_gone (bundle_id TEXT PRIMARY KEY, until TIMESTAMPTZ NOT NULL)";
const INDEX: &str = "CREATE INDEX IF NOT EXISTS starhaul_gone_until ON starhaul_gone (until ASC)";
const ADD_UNKNOWN: &str = "INSERT INTO starhaul_gone (bundle_id, until)
    SELECT b.bundle_id, $1 FROM bundles b
    WHERE NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)
    ON CONFLICT (bundle_id) DO NOTHING";
/// As in the log: a copy of a bundle without a clock may live longer, by what was left of its lifetime when it came, an hour at most.
const KEEP: &str = "INSERT INTO starhaul_gone (bundle_id, until)
    SELECT b.bundle_id, m.expiry + CASE WHEN $2 THEN INTERVAL '0'
        ELSE LEAST(INTERVAL '1 hour', GREATEST(INTERVAL '0', m.expiry - m.received_at)) END
    FROM bundles b JOIN metadata m ON m.id = b.id WHERE b.bundle_id = $1
    ON CONFLICT (bundle_id) DO UPDATE SET until = EXCLUDED.until";
/// A name that is kept no longer, as soon as its bundle is gone.
const FREE: &str = "INSERT INTO starhaul_gone (bundle_id, until) VALUES ($1, $2)
    ON CONFLICT (bundle_id) DO UPDATE SET until = EXCLUDED.until";
/// What is noted of a bundle that is still here stays: it is perhaps about to go, and its name would be kept for ever.
const FORGET_ALL: &str = "WITH old AS (DELETE FROM starhaul_gone g WHERE g.until < $1
        AND NOT EXISTS (SELECT 1 FROM bundles b JOIN metadata m ON m.id = b.id WHERE b.bundle_id = g.bundle_id)
        RETURNING g.bundle_id)
    DELETE FROM bundles b USING old WHERE b.bundle_id = old.bundle_id
    AND NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)";
const FORGET_ONE: &str = "WITH old AS (DELETE FROM starhaul_gone g WHERE g.until < $1 AND g.bundle_id = $2
        AND NOT EXISTS (SELECT 1 FROM bundles b JOIN metadata m ON m.id = b.id WHERE b.bundle_id = g.bundle_id)
        RETURNING g.bundle_id)
    DELETE FROM bundles b USING old WHERE b.bundle_id = old.bundle_id
    AND NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)";

/// Of names that are kept, those that are kept the shortest.
const FORGET_SURPLUS: &str = "WITH old AS (DELETE FROM starhaul_gone WHERE bundle_id IN
        (SELECT g.bundle_id FROM starhaul_gone g JOIN bundles b ON b.bundle_id = g.bundle_id
            WHERE NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)
            ORDER BY g.until LIMIT $1)
        RETURNING bundle_id)
    DELETE FROM bundles b USING old WHERE b.bundle_id = old.bundle_id
    AND NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)";
const COUNT: &str =
    "SELECT COUNT(*) FROM bundles b WHERE NOT EXISTS (SELECT 1 FROM metadata m WHERE m.id = b.id)";

/// Names of bundles that were here.
pub(super) struct Names {
    pool: PgPool,
    /// More are not kept, but for the last few.
    most: usize,
    state: Mutex<State>,
    /// Held while names are forgotten: two at a time would want the same rows, and could wait for each other.
    forgetting: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Names that are kept of bundles that are gone, or more: one that goes twice at a time counts twice.
    count: u64,
    /// Names that were added in all, and how many of them before the database last counted: by the others that is too much at most.
    added: u64,
    counted: u64,
    forgot: Option<Instant>,
}

impl State {
    /// Names of which it is certain that they are kept.
    fn certain(&self) -> u64 {
        let doubtful = self.added.saturating_sub(self.counted);
        self.count.saturating_sub(doubtful)
    }
}

impl Names {
    /// Those in a database in which the store has made its tables; `most` are kept.
    pub(super) async fn open(url: &str, most: usize) -> std::result::Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        let pool = pool.connect(url).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        sqlx::query(INDEX).execute(&pool).await?;
        let until = OffsetDateTime::now_utc().saturating_add(UNKNOWN);
        sqlx::query(ADD_UNKNOWN).bind(until).execute(&pool).await?;
        let names = Self {
            pool,
            most,
            state: Mutex::default(),
            forgetting: tokio::sync::Mutex::default(),
        };
        names.count().await?;
        Ok(names)
    }

    /// Counts the names that are kept; at least how many these are.
    async fn count(&self) -> std::result::Result<u64, sqlx::Error> {
        let begun = self.state.lock().added;
        let counted = sqlx::query_scalar::<_, i64>(COUNT);
        let counted = counted.fetch_one(&self.pool).await?;
        let mut state = self.state.lock();
        // To count millions takes seconds, in which others go.
        let since = state.added.saturating_sub(begun);
        state.count = u64::try_from(counted).unwrap_or(0).saturating_add(since);
        state.counted = begun;
        Ok(state.certain())
    }

    /// Notes that a bundle has gone and its name is kept.
    pub(super) fn keep_one(&self) {
        let mut state = self.state.lock();
        state.count = state.count.saturating_add(1);
        state.added = state.added.saturating_add(1);
    }

    fn note_forgotten(&self, names: u64) {
        let mut state = self.state.lock();
        state.count = state.count.saturating_sub(names);
    }

    /// Notes until when the name of a bundle is kept that is about to go.
    pub(super) async fn keep(&self, id: &Id) -> Result<()> {
        sqlx::query(KEEP)
            .bind(id.to_key())
            .bind(id.timestamp.is_clocked())
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Notes that the name of a bundle is free that is about to go.
    pub(super) async fn free(&self, id: &Id) -> Result<()> {
        sqlx::query(FREE)
            .bind(id.to_key())
            .bind(OffsetDateTime::UNIX_EPOCH)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Forgets names that are kept no longer, if that was not done for a while, and of too many those that are kept the shortest.
    pub(super) async fn forget(&self) -> Result<()> {
        let Ok(_alone) = self.forgetting.try_lock() else {
            return Ok(());
        };
        let is_due = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            let last = state.forgot;
            let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= FORGET_EVERY);
            if is_due {
                state.forgot = Some(now);
            }
            is_due
        };
        if is_due {
            let forgotten = sqlx::query(FORGET_ALL)
                .bind(OffsetDateTime::now_utc())
                .execute(&self.pool)
                .await?;
            self.note_forgotten(forgotten.rows_affected());
        }
        self.forget_surplus().await
    }

    async fn forget_surplus(&self) -> Result<()> {
        let most = self.most as u64;
        let (count, certain) = {
            let state = self.state.lock();
            (state.count, state.certain())
        };
        // What was counted twice would cost names that are to be kept. To count them takes a look at each, of which an earlier version may
        // have left millions.
        if count <= most || certain <= most && self.count().await? <= most {
            return Ok(());
        }
        // Otherwise each bundle that goes would have a name forgotten; and a bound that is lower than before is reached in the end.
        let surplus = AT_A_TIME.min(self.most / 8 + 2);
        let forgotten = sqlx::query(FORGET_SURPLUS)
            .bind(i64::try_from(surplus)?)
            .execute(&self.pool)
            .await?;
        self.note_forgotten(forgotten.rows_affected());
        Ok(())
    }

    /// Forgets a name if it is kept no longer.
    pub(super) async fn forget_one(&self, id: &Id) -> Result<()> {
        let forgotten = sqlx::query(FORGET_ONE)
            .bind(OffsetDateTime::now_utc())
            .bind(id.to_key())
            .execute(&self.pool)
            .await?;
        self.note_forgotten(forgotten.rows_affected());
        Ok(())
    }
}
