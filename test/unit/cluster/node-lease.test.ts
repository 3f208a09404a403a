// Until when a node may serve, and which failures end it.
import { describe, expect, it } from 'vitest';
import { FinalFailures, NodeLease, NodeUrlTakenError } from '../../../src/cluster/node-lease.ts';
import { SchemaTooNewError } from '../../../src/store/schema-migration.ts';

const HOUR = 3_600_000;

function start() {
  const clock = { monotonic: 50, wall: HOUR };
  const lease = new NodeLease(
    { leaseMs: 8_000, marginMs: 2_000, freeLockMs: 3_000 },
    { monotonic: () => clock.monotonic, wall: () => clock.wall },
  );
  const pass = (ms: number) => {
    clock.monotonic += ms;
    clock.wall += ms;
  };
  return { clock, lease, pass };
}

describe('a lease', () => {
  it('is not valid before the first renewal and after its end', () => {
    const { lease } = start();
    expect(lease.isValid(true)).toBe(false);
    lease.accept(lease.read(lease.now(), 0));
    expect(lease.isValid(true)).toBe(true);
    lease.end();
    expect(lease.isValid(true)).toBe(false);
  });

  it('counts from before the renewal was sent, and ends 2 s early', () => {
    const { lease, pass } = start();
    const sentAt = lease.now();
    pass(1_000);
    lease.accept(lease.read(sentAt, 0));
    pass(4_999);
    expect([lease.ageMs, lease.isValid(true)]).toEqual([5_999, true]);
    pass(1);
    expect(lease.isValid(true)).toBe(false);
  });

  it('is not valid if its renewal was answered too late', () => {
    const { lease, pass } = start();
    const sentAt = lease.now();
    pass(20_000);
    lease.accept(lease.read(sentAt, 0));
    expect(lease.isValid(true)).toBe(false);
  });

  it('ends before others find that its lock is free', () => {
    const { lease, pass } = start();
    lease.accept(lease.read(lease.now(), 0));
    pass(2_249);
    expect(lease.isValid(false)).toBe(true);
    pass(1);
    expect([lease.isValid(false), lease.isValid(true)]).toEqual([false, true]);
  });

  it.each([HOUR, -HOUR])('is doubtful after the wall clock was set by %d ms', (step) => {
    const { clock, lease, pass } = start();
    lease.accept(lease.read(lease.now(), 0));
    clock.wall += 900;
    expect([lease.isDoubtful, lease.isValid(true)]).toEqual([false, true]);
    clock.wall += step;
    expect([lease.isDoubtful, lease.isValid(true)]).toEqual([true, false]);
    pass(10);
    lease.accept(lease.read(lease.now(), 0));
    expect([lease.isDoubtful, lease.isValid(true)]).toEqual([false, true]);
  });
});

describe('the time of the database', () => {
  it('continues by the monotonic clock, whatever the wall clock says', () => {
    const { clock, lease, pass } = start();
    const sentAt = lease.now();
    pass(10);
    lease.accept(lease.read(sentAt, 9 * HOUR));
    expect(lease.databaseNow()).toBe(9 * HOUR + 5);
    clock.wall -= HOUR;
    pass(100);
    expect(lease.databaseNow()).toBe(9 * HOUR + 105);
  });

  it('never goes back', () => {
    const { lease, pass } = start();
    lease.accept(lease.read(lease.now(), HOUR));
    expect(lease.databaseNow()).toBe(HOUR);
    lease.accept(lease.read(lease.now(), HOUR - 500));
    pass(400);
    expect(lease.databaseNow()).toBe(HOUR);
    pass(200);
    expect(lease.databaseNow()).toBe(HOUR + 100);
  });
});

describe('FinalFailures', () => {
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
});
