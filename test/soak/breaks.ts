// The promises of the queue and of nodes, and how each can be broken in the sources.

export interface Break {
  promise: string;
  file: string;
  from: string;
  to: string;
  /** The expected message. */
  seen: RegExp;
}

/** Seeds of the queue and its workers must notice each. */
export const QUEUE_BREAKS: Break[] = [
  {
    promise: 'a commit that fails changes nothing in memory',
    file: 'src/store/live/live-jobs.ts',
    from: 'this.#endpoints.clear();',
    to: '',
    seen: /has not ended|has the chunks|is before it/,
  },
  {
    promise: 'the database has every change of a job after the commit',
    file: 'src/store/live/cached-jobs.ts',
    from: 'const { now, payloads, stored } = kept;',
    to: 'const { now, payloads, stored } = kept; if (now?.attempt === 2) continue;',
    seen: /has not ended|is lost/,
  },
  {
    promise: 'every lease is for the first ready job of its group',
    file: 'src/store/live/group-queue.ts',
    from: 'if (job.place > this.#extent || this.has(job)) return false;',
    to: 'if (this.has(job)) return false;',
    seen: /was leased, though job .* is before it/,
  },
  {
    promise: 'a job reaches one terminal status only',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: 'if (isTerminal(job.status)) return { refused:',
    to: 'if (job.attempt < 0) return { refused:',
    seen: /left a terminal status/,
  },
  {
    promise: 'the platform loses no acknowledged report',
    file: 'src/queue/reports/reports.ts',
    from: '  applyReport(tx',
    to: "  if (report.kind !== 'outcome' || report.seq % 5 > 0) applyReport(tx",
    seen: /the (completion|failure) of attempt \d+ is lost/,
  },
  {
    promise: 'a job never has two live leases',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: "case 'renew':\n      return",
    to: "case 'renew':\n      if (job.releases < 1) return change({ ...job, status: 'IN_QUEUE', releases: 1 });\n      return",
    seen: /a second live lease/,
  },
  {
    promise: 'a report with an older token does not change a job',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: 'if (job.lease?.token !== report.token || job.attempt !== report.attempt) {',
    to: 'if (job.lease?.token !== report.token && report.seq <= job.lastSeq) {',
    seen: /was applied, though a newer attempt has the job/,
  },
  {
    promise: 'a repeated report counts once',
    file: 'src/queue/lifecycle/lifecycle.ts',
    from: "if (report.seq <= job.lastSeq) return { answer: 'duplicate' };",
    to: "if (report.seq <= job.lastSeq) return 'apply';",
    seen: /was applied twice/,
  },
  {
    promise: 'a stream has no chunk of an old attempt after a reset',
    file: 'src/queue/reports/streams.ts',
    from: 'if (after.attempt < job.attempt) return',
    to: 'if (after.attempt < 1) return',
    seen: /the stream of job/,
  },
  {
    promise: 'the queue does not requeue a job without limit',
    file: 'src/queue/lifecycle/attempt-end.ts',
    from: 'if (!alone) return suspect(job, moment);',
    to: 'if (detail) return change(requeue({ ...job, solo: true }, 0, moment));',
    seen: /requeued uncounted/,
  },
  {
    promise: 'the queue counts releases',
    file: 'src/queue/lifecycle/attempt-end.ts',
    from: 'releases: job.releases + 1',
    to: 'releases: job.releases',
    seen: /requeued uncounted|\d+ attempts for \d+/,
  },
  {
    promise: 'a job does not fail because of another job',
    file: 'src/queue/leases/handover.ts',
    from: 'const alone = ended.length === 1;',
    to: 'const alone = true;',
    seen: /suffers for what others did/,
  },
  {
    promise: 'the platform extends leases after its restart',
    file: 'src/queue/queue.ts',
    from: 'await extendLeases(this.#parts, 0)',
    to: 'await store.read((tx) => tx.leasedJobs())',
    seen: /expired \d+ ms after the platform came back/,
  },
  {
    promise: 'a job does not run again if its outcome is on the disk of a dead worker',
    file: 'src/queue/leases/handover.ts',
    from: 'job.lease !== null && delivering.has(job.lease.token)',
    to: 'job.lease === null && delivering.has(job.id)',
    seen: /ran again after attempt \d+, which survived|has not ended/,
  },
  {
    promise: 'what no job has is deleted',
    file: 'src/queue/sweeper.ts',
    from: 'await changes.inSlice(() => payloads.deleteSome())',
    to: 'clock.now() < 0 && (await changes.inSlice(() => payloads.deleteSome()))',
    seen: /payloads are left/,
  },
];

/** Seeds of nodes that share a database must notice each. */
export const NODE_BREAKS: Break[] = [
  {
    promise: 'the fence stops a commit of a node that has not seen all commits',
    file: 'src/store/postgres/batch.ts',
    from: '1 / (case when number = ? then 1 else 0 end)',
    to: '(case when ? is null then 1 else 1 end)',
    seen: /the node knows commit \d+ only/,
  },
  {
    promise: 'a commit that Postgres has rolled back is not acknowledged',
    file: 'src/store/postgres/batch.ts',
    from: "if (command === 'COMMIT')",
    to: "if (command !== '')",
    seen: /before its commit|memory differs|is lost|applied twice/,
  },
  {
    promise: 'a new owner ends the session of the old one',
    file: 'src/store/postgres/database-link.ts',
    from: 'if (takeOver) await evictHolder',
    to: 'if (takeOver && oldPid !== undefined) await evictHolder',
    seen: /nobody has served/,
  },
  {
    promise: 'a node takes the lock of a shard again only while it owns the shard',
    file: 'src/store/postgres/database-link.ts',
    from: 'if (!(await mayReturn()))',
    to: 'if ((await mayReturn()) === undefined)',
    seen: /took the lock of shard \d, which node_\d+ owns/,
  },
  {
    promise: 'a commit whose answer was lost is not counted as undone if it is there',
    file: 'src/store/postgres/database-link.ts',
    from: "return number === this.#committed ? 'committed' : 'undone';",
    to: "return number === -1 ? 'committed' : 'undone';",
    seen: /memory differs/,
  },
  {
    promise: 'a commit whose answer was lost is not counted as committed if it is not there',
    file: 'src/store/postgres/database-link.ts',
    from: "return number === this.#committed ? 'committed' : 'undone';",
    to: "return number === -1 ? 'undone' : 'committed';",
    seen: /memory differs|before its commit/,
  },
  {
    promise: 'memory is read again after a commit that failed',
    file: 'src/store/postgres/postgres.ts',
    from: 'else this.#memory.forget();',
    to: 'else this.#memory.settle();',
    seen: /memory differs/,
  },
  {
    promise: 'no answer precedes its commit',
    file: 'src/store/postgres/postgres.ts',
    from: 'operation.settle = () => resolve(value);',
    to: 'resolve(value);',
    seen: /before its commit/,
  },
  {
    promise: 'a node stops serving before its lease ends',
    file: 'src/cluster/node-lease.ts',
    from: 'return this.ageMs < (isConnected ? connected : unconnected) && !this.isDoubtful;',
    to: 'return this.ageMs < 10 * (isConnected ? connected : unconnected) && !this.isDoubtful;',
    seen: /its lease has ended/,
  },
  {
    promise: 'a node stops serving some time before its lease ends',
    file: 'src/cluster/node-lease.ts',
    from: 'const connected = leaseMs - marginMs;',
    to: 'const connected = leaseMs + marginMs;',
    seen: /its lease has ended/,
  },
  {
    promise: 'a statement on a frozen connection ends within a takeover',
    file: 'src/platform/nodes/shard-opener.ts',
    from: 'const MAX_STATEMENT_MS = 8_000;',
    to: 'const MAX_STATEMENT_MS = 60_000;',
    seen: /nobody has served|a call failed in calm/,
  },
  {
    promise: 'a submission that is sent again adds one job',
    file: 'src/queue/admission.ts',
    from: 'if (newJob && (newJob.isRepeated || chosen.isRepeated(newJob.requestId ?? newJob.id))) {',
    to: "if (newJob && chosen.isRepeated('another')) {",
    seen: /a client's call/,
  },
  {
    promise: 'a node takes over the leases that it finds',
    file: 'src/queue/queue.ts',
    from: 'await extendLeases(this.#parts, 0)',
    to: 'await store.read((tx) => tx.leasedJobs())',
    seen: /expired \d+ ms after the platform came back/,
  },
  {
    promise: 'nodes claim the shards of a dead one',
    file: 'src/cluster/plan-shards.ts',
    from: 'owner === null || !donors.has(owner)',
    to: 'owner === null',
    seen: /nobody has served/,
  },
];
