import { expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { NodeStatus } from '../../../src/platform/nodes/node-status.ts';
import { PostgresFailures } from '../../../src/platform/postgres-store.ts';

it('the status of a node warns while the disk of the database server is full', () => {
  const failures = new PostgresFailures(silentLog);
  const status = new NodeStatus({ failures, findFault: () => undefined });
  expect(status.warnings).toEqual([]);
  failures.note(Object.assign(new Error('could not extend file'), { code: '53100' }));
  expect(status.warnings).toEqual([expect.stringContaining('the disk of its server is full')]);
});
