import { describe, expect, it } from 'vitest';
import { ByteBudget, type Claim, giveBack, type Transfer } from '../../../src/base/byte-budget.ts';
import { ManualClock } from '../../../src/base/clock.ts';

function open(maxBytes = 100, maxOwnerBytes = 50) {
  const clock = new ManualClock();
  const budget = new ByteBudget({ clock, maxBytes, maxOwnerBytes });
  const transfer = (owner: string, bytes: number, moved = 0): Transfer => ({
    ...{ owner, bytes, moved: () => moved, drop: () => {} },
  });
  return { clock, budget, transfer };
}

/** What a claim has come to so far. */
function track(claim: Promise<Claim | undefined>) {
  const seen: { state: 'waiting' | 'granted' | 'refused'; claim?: Claim } = { state: 'waiting' };
  void claim.then((granted) => {
    seen.state = granted ? 'granted' : 'refused';
    if (granted) seen.claim = granted;
  });
  return seen;
}

const LONG = { waitMs: 60_000 };

describe('a budget of bytes', () => {
  it('grants what fits, and at most its share to one owner', () => {
    const { budget, transfer } = open();
    expect(budget.tryClaim(transfer('a', 50))).toBeDefined();
    expect(budget.tryClaim(transfer('a', 1))).toBeUndefined();
    expect(budget.tryClaim(transfer('b', 50))).toBeDefined();
    expect(budget.tryClaim(transfer('c', 1))).toBeUndefined();
    expect(budget.usedBytes).toBe(100);
  });

  it('grants a claim larger than itself to an owner without claims when it is empty', () => {
    const { budget, transfer } = open();
    expect(budget.tryClaim(transfer('a', 1_000))).toBeDefined();
    expect(open().budget.tryClaim(transfer('a', 60))).toBeDefined();
  });

  it('takes bytes back once, however often a claim is released', () => {
    const { budget, transfer } = open();
    const claim = budget.tryClaim(transfer('a', 40));
    claim?.release();
    claim?.release();
    expect(budget.usedBytes).toBe(0);
  });

  it('takes back unneeded bytes of a claim, and at most its size', async () => {
    const { budget, clock, transfer } = open();
    const claim = budget.tryClaim(transfer('a', 50));
    const waiting = track(budget.claim(transfer('a', 40), LONG));
    claim?.shrink(10);
    claim?.shrink(45);
    await clock.advance(0);
    expect([waiting.state, budget.usedBytes]).toEqual(['granted', 50]);
    claim?.release();
    claim?.shrink(1);
    expect(budget.usedBytes).toBe(40);
  });

  it('makes claims wait until enough is free, the owner with the least first', async () => {
    const { budget, clock, transfer } = open();
    const first = budget.tryClaim(transfer('a', 50));
    const second = budget.tryClaim(transfer('b', 50));
    const own = track(budget.claim(transfer('b', 40), LONG));
    const other = track(budget.claim(transfer('c', 40), LONG));
    await clock.advance(0);
    first?.release();
    await clock.advance(0);
    expect([own.state, other.state]).toEqual(['waiting', 'granted']);
    second?.release();
    await clock.advance(0);
    expect(own.state).toBe('granted');
  });

  it('rejects a claim after its wait, or at once if its caller has gone', async () => {
    const { budget, clock, transfer } = open();
    budget.tryClaim(transfer('a', 50));
    const gone = new AbortController();
    const late = track(budget.claim(transfer('a', 1), { waitMs: 1_000 }));
    const left = track(budget.claim(transfer('a', 1), { waitMs: 1_000, signal: gone.signal }));
    gone.abort();
    await clock.advance(999);
    expect([late.state, left.state]).toEqual(['waiting', 'refused']);
    await clock.advance(1);
    expect(late.state).toBe('refused');
  });

  it('does not let small claims pass a large one that waits for the whole budget', async () => {
    const { budget, clock, transfer } = open();
    const large = budget.tryClaim(transfer('a', 50));
    budget.tryClaim(transfer('b', 30));
    const waiting = track(budget.claim(transfer('c', 40), LONG));
    expect(budget.tryClaim(transfer('d', 10))).toBeUndefined();
    large?.release();
    await clock.advance(0);
    expect(waiting.state).toBe('granted');
    expect(budget.tryClaim(transfer('d', 10))).toBeDefined();
  });

  it('drops the slowest claims, one a second, while others wait for the whole budget', async () => {
    const { budget, clock, transfer } = open();
    const dropped: string[] = [];
    const claims = new Map<string, Claim | undefined>();
    for (const [owner, moved] of [
      ['fast', 30],
      ['slow', 1],
      ['slower', 0],
    ] as const) {
      const drop = () => {
        dropped.push(owner);
        claims.get(owner)?.release();
      };
      claims.set(owner, budget.tryClaim({ ...transfer(owner, 33, moved), drop }));
    }
    await clock.advance(10_000);
    const waiting = track(budget.claim(transfer('new', 50), LONG));
    await clock.advance(999);
    expect(dropped).toEqual([]);
    await clock.advance(1);
    expect([dropped, waiting.state]).toEqual([['slower'], 'waiting']);
    await clock.advance(1_000);
    expect([dropped, waiting.state]).toEqual([['slower', 'slow'], 'granted']);
    await clock.advance(60_000);
    expect(dropped).toEqual(['slower', 'slow']);
  });

  it('drops nothing for an owner who has used up their share', async () => {
    const { budget, clock, transfer } = open();
    const dropped: string[] = [];
    budget.tryClaim({ ...transfer('a', 50), drop: () => dropped.push('a') });
    await clock.advance(10_000);
    const waiting = track(budget.claim(transfer('a', 10), { waitMs: 5_000 }));
    await clock.advance(5_000);
    expect([dropped, waiting.state]).toEqual([[], 'refused']);
  });

  it('spares new claims', async () => {
    const { budget, clock, transfer } = open();
    const dropped: string[] = [];
    for (const owner of ['a', 'b']) {
      budget.tryClaim({ ...transfer(owner, 50), drop: () => dropped.push(owner) });
    }
    const waiting = track(budget.claim(transfer('c', 10), { waitMs: 4_000 }));
    await clock.advance(4_000);
    expect([dropped, waiting.state]).toEqual([[], 'refused']);
  });
});

describe('released bytes', () => {
  it('are freed at once', () => {
    const spent = Buffer.allocUnsafeSlow(100_000);
    giveBack(spent);
    expect(spent).toHaveLength(0);
  });

  it('are kept if they share their memory', () => {
    const whole = Buffer.alloc(100_000, 1);
    giveBack(whole.subarray(0, 99_999));
    expect(whole).toHaveLength(100_000);
  });

  it('free as much shared memory as their owner allows', () => {
    const message = Buffer.alloc(100_000, 1);
    giveBack(message.subarray(10), 9);
    expect(message).toHaveLength(100_000);
    giveBack(message.subarray(10), 10);
    expect(message).toHaveLength(0);
  });

  it('are kept if they are empty or small enough for a pool', () => {
    const few = Buffer.allocUnsafeSlow(100);
    const none = new Uint8Array(0);
    giveBack(few);
    giveBack(none);
    expect(few).toHaveLength(100);
    expect(none.buffer.detached).toBe(false);
  });
});
