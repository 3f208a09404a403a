// Proves that the simulation of nodes detects a broken cluster: each test breaks one rule of nodes that share a database,
// in a copy of the sources, and expects the seeds to fail with the matching message.
import { type Break, describeGuards } from './broken-copy.ts';

const BREAKS: Break[] = [
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
    from: 'if (mayReturn && !(await mayReturn()))',
    to: 'if (mayReturn && (await mayReturn()) === undefined)',
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
    promise: 'memory is undone with a commit that failed',
    file: 'src/store/postgres/postgres.ts',
    from: "if (outcome.kind !== 'committed') this.#memory.undoTo(0);",
    to: "if (outcome.kind === 'refused') this.#memory.undoTo(0);",
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
    file: 'src/platform/nodes/shard-store.ts',
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

describeGuards({ name: 'the simulation of nodes', kind: 'nodes', seeds: 250, breaks: BREAKS });
