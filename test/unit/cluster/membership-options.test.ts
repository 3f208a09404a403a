// Which failures end a node.
import { expect, it } from 'vitest';
import { FinalFailures, NodeUrlTakenError } from '../../../src/cluster/membership-options.ts';
import { SchemaTooNewError } from '../../../src/store/schema-migration.ts';

const taken = new NodeUrlTakenError('http://a');
const create = () => new FinalFailures({ urlWaitMs: 1_000 });

it('ends a node at once if the schema is too new', () => {
  expect(create().isFinal(new SchemaTooNewError(9, 8), 0)).toBe(true);
});

it('ends a node after the wait if another has its URL, also with other failures in between', () => {
  const failures = create();
  const lost = new Error('the connection has ended');
  const seen = [
    failures.isFinal(taken, 5_000),
    failures.isFinal(lost, 5_900),
    failures.isFinal(taken, 5_999),
    failures.isFinal(lost, 9_000),
    failures.isFinal(taken, 9_000),
  ];
  expect(seen).toEqual([false, false, false, false, true]);
});

it('begins the wait anew once the node has been a member', () => {
  const failures = create();
  failures.isFinal(taken, 0);
  failures.end();
  expect([failures.isFinal(taken, 2_000), failures.isFinal(taken, 3_000)]).toEqual([false, true]);
});
