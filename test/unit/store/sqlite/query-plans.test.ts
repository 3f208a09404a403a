import { DatabaseSync } from 'node:sqlite';
import { afterAll, describe, expect, it } from 'vitest';
import { noCounts } from '../../../../src/store/live/live-endpoint.ts';
import { SqlReader } from '../../../../src/store/sql/sql-reader.ts';
import { SqlTables } from '../../../../src/store/sql/sql-tables.ts';
import { MIGRATIONS, migrate } from '../../../../src/store/sqlite/schema.ts';
import type { StagedPayload, Step } from '../../../../src/store/store.ts';
import type { TableListing, Tables } from '../../../../src/store/tables.ts';
import { makeDelivery, makeJob } from '../../../support/store/stored-jobs.ts';

const database = new DatabaseSync(':memory:');
migrate(database, MIGRATIONS);
afterAll(() => database.close());

const reader = new SqlReader();
const tables = new SqlTables();

/** How SQLite finds the rows of every statement of the verb, one line each. */
function explain(steps: Step<unknown>): string[] {
  const plan: string[] = [];
  const seen = new Set<string>();
  for (let step = steps.next(); !step.done; ) {
    const { sql, params } = step.value;
    const rows = database.prepare(`explain query plan ${sql}`).all(...params);
    plan.push(...rows.map((row) => String(row['detail'])));
    step = steps.next(seen.has(sql) ? [] : answer(sql));
    seen.add(sql);
  }
  return plan;
}

/** Rows with which the verb goes on to its next query. */
function answer(sql: string): Record<string, number>[] {
  if (sql.startsWith('select first from')) return [{ first: 0 }];
  return [];
}

const key = { endpointId: 'e', id: 'a' };

function listing(status: TableListing['status']) {
  return reader.jobs({ endpointId: 'e', status, before: 9, limit: 5 });
}

function range(from: number) {
  return { ...key, attempt: 1, from, maxBytes: 9 };
}

const reads: [string, () => Step<unknown>, string][] = [
  ['readyJobs', () => reader.readyJobs('e', 5), 'job_queued (endpoint_id=? AND lane=?)'],
  [
    'queuedJobs',
    () => reader.queuedJobs('e', 5),
    'job_by_status (endpoint_id=? AND status=? AND position<?)',
  ],
  [
    'readyPriorities',
    () => reader.readyPriorities('e'),
    'COVERING INDEX job_queued (endpoint_id=? AND lane=? AND priority<?)',
  ],
  [
    'readyGroups',
    () => reader.readyGroups({ endpointId: 'e', priority: 1, after: 'g', limit: 5 }),
    'COVERING INDEX job_queued (endpoint_id=? AND lane=? AND priority=? AND group_key>?)',
  ],
  [
    'readyJobsOfGroups',
    () => reader.readyJobsOfGroups('e', [{ priority: 1, group: 'g', from: 3 }], 5),
    'job_queued (endpoint_id=? AND lane=? AND priority=? AND group_key=? AND place>?)',
  ],
  [
    'oldestQueuedAt',
    () => reader.oldestQueuedAt('e'),
    'job_by_status (endpoint_id=? AND status=?)',
  ],
  [
    'outgrownJobs',
    () => reader.outgrownJobs({ endpointId: 'e', gpuType: 7, from: undefined, limit: 5 }),
    'job_outgrown (endpoint_id=? AND lane=?)',
  ],
  [
    'outgrownLoads',
    () => reader.outgrownLoads('e'),
    'COVERING INDEX job_queued (endpoint_id=? AND lane>?)',
  ],
  ['dueJobs', () => reader.dueJobs(1, 5), 'job_due (due_at<?)'],
  ['nextDueAt', () => reader.nextDueAt(), 'job_due'],
  ['jobsOfWorker', () => reader.jobsOfWorker('e', 'w'), 'job_leased (endpoint_id=? AND worker=?)'],
  ['leasedJobs', () => reader.leasedJobs(), 'job_leased'],
  ['jobs', () => listing(undefined), 'job_listed (endpoint_id=? AND position>? AND position<?)'],
  ['jobs that are queued', () => listing('IN_QUEUE'), 'job_by_status (endpoint_id=? AND status=?'],
  ['jobs that failed', () => listing('FAILED'), 'job_by_status (endpoint_id=? AND status=?'],
  ['jobs that timed out', () => listing('TIMED_OUT'), 'job_by_status (endpoint_id=? AND status=?'],
  [
    'jobs that were cancelled',
    () => listing('CANCELLED'),
    'job_by_status (endpoint_id=? AND status=?',
  ],
  ['job', () => reader.job(key), '(endpoint_id=? AND id=?)'],
  ['jobByIdempotencyKey', () => reader.jobByIdempotencyKey('e', 'k'), 'job_idempotent'],
  ['input', () => reader.input(key), '(endpoint_id=? AND job_id=?)'],
  ['output', () => reader.output(key), '(endpoint_id=? AND job_id=?)'],
  ['payloadPart', () => reader.payloadPart('input', key, 1), '(endpoint_id=? AND job_id=?)'],
  ['deliveriesOf', () => reader.deliveriesOf('e', 5), '(endpoint_id=?)'],
  ['outputBytes', () => reader.outputBytes(key), '(endpoint_id=? AND job_id=?)'],
  [
    'chunks',
    () => reader.chunks(range(3)),
    '(endpoint_id=? AND job_id=? AND attempt=? AND first<?)',
  ],
  ['log', () => reader.log(range(3)), '(endpoint_id=? AND job_id=? AND at>? AND at<?)'],
  ['receivers', () => reader.receivers(), 'delivery_due'],
  [
    'dueDeliveries',
    () => reader.dueDeliveries({ userId: 'u', receiver: 'r', now: 1, limit: 5 }),
    'delivery_due (user_id=? AND receiver=? AND next_at<?)',
  ],
  [
    'nextDeliveryAt',
    () => reader.nextDeliveryAt({ userId: 'u', receiver: 'r' }, 1),
    'delivery_due (user_id=? AND receiver=? AND next_at>?)',
  ],
  ['deliveryPart', () => reader.deliveryPart(key, 0), '(endpoint_id=? AND delivery_id=? AND at=?)'],
  ['keyByHash', () => reader.keyByHash('h'), '(hash=?)'],
  ['keysOfUser', () => reader.keysOfUser('u'), 'api_key_of_user (user_id=?)'],
];

const job = makeJob(key);
const other = makeJob({ ...key, id: 'o', webhook: 'https://example.com/' });
const delivery = makeDelivery(key);
const staged: StagedPayload = { ...key, kind: 'output', origin: 1 };
const writes: [string, (tx: Tables) => Step<unknown>][] = [
  [
    'changeJobRows',
    (tx) => {
      const after = { ...job, status: 'FAILED' as const, attempt: 3 };
      return tx.changeJobRows([{ before: job, after, output: undefined }]);
    },
  ],
  ['removeJobs', (tx) => tx.removeJobs([job])],
  ['removeJobs of several', (tx) => tx.removeJobs([job, other])],
  ['addCounts', (tx) => tx.addCounts(new Map([['e', { ...noCounts(), inQueue: 1 }]]))],
  ['postponeDelivery', (tx) => tx.postponeDelivery(delivery)],
  ['removeDelivery', (tx) => tx.removeDelivery(key)],
  ['dropChunks', (tx) => tx.dropChunks(key)],
  ['beginPayload', (tx) => tx.beginPayload(staged, new Uint8Array(1))],
  ['addPart', (tx) => tx.addPart(staged, 1, new Uint8Array(1))],
  ['deleteUnused', (tx) => tx.deleteUnused([staged], 1)],
  ['deleteUnused of chunks', (tx) => tx.deleteUnused([{ ...staged, kind: 'chunks' }], 1)],
];

describe('on SQLite', () => {
  it.each(reads)('finds the rows of %s by an index', (_, read, index) => {
    const plan = explain(read());
    expect(plan.join('\n')).toContain(index);
  });

  it.each(reads)('sorts nothing for %s', (_, read) => {
    expect(explain(read()).filter((line) => line.includes('TEMP B-TREE'))).toEqual([]);
  });

  it.each(writes)('finds the rows of %s by a key', (_, run) => {
    expect(explain(run(tables)).filter((line) => line.startsWith('SCAN'))).toEqual([]);
  });
});
