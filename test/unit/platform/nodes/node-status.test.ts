import { expect, it } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { NodeStatus, PostgresFailures } from '../../../../src/platform/postgres-store.ts';

it('warns in the status of a node while the disk of the database server is full', () => {
  const failures = new PostgresFailures(silentLog);
  const status = new NodeStatus({
    failures,
    findFault: () => undefined,
    served: { open: [], failing: [], givenUp: [] },
  });
  expect(status.warnings).toEqual([]);
  failures.note(Object.assign(new Error('could not extend file'), { code: '53100' }));
  expect(status.warnings).toEqual([expect.stringContaining('the disk of its server is full')]);
});

it('names the shards in the status of a node that it cannot open', () => {
  const status = new NodeStatus({
    failures: new PostgresFailures(silentLog),
    findFault: () => undefined,
    served: { open: [0, 1], failing: [2], givenUp: [3] },
  });
  expect(status.warnings).toEqual([
    'this node cannot open shard 2 and tries again; see its log',
    'this node could not open shard 3 and has left it to another node; see its log, and restart it once the cause is gone',
  ]);
  expect(status.shards).toEqual({ open: 2, failing: 1, givenUp: 1 });
});
