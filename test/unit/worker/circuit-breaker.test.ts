// The circuit breaker: when a worker slows down, and when it asks for a new process.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import type { ErrorCode } from '../../../src/wire/job/job.ts';
import type { Outcome } from '../../../src/wire/link/worker-link.ts';
import {
  type BreakerState,
  CLOSED,
  limitTakes,
  nextBreakerState,
  wantsNewProcess,
} from '../../../src/worker/circuit-breaker.ts';
import { lease, startScript } from '../../support/workers/worker-script.ts';

const done: Outcome = { kind: 'completed', executionMs: 1, output: 'value' };
const released: Outcome = { kind: 'released', reason: 'neighbour' };
const cancelled: Outcome = { kind: 'cancelled', executionMs: 1, stopped: 'signal' };
const slow: Outcome = {
  ...{ kind: 'timed_out', executionMs: 1, stopped: 'signal' },
  error: { code: 'execution_timeout', message: 'too slow' },
};
const full = (path = '/tmp/a1') => fail(`ENOSPC: no space left on device, open '${path}'`);

function fail(
  message: string,
  code: ErrorCode = 'handler_error',
  retry: 'default' | 'never' = 'default',
) {
  return { kind: 'failed', executionMs: 1, error: { code, message }, retry } satisfies Outcome;
}

/** The state after attempts of different jobs. */
function judge(outcomes: readonly Outcome[], state: BreakerState = CLOSED, failures = 3) {
  return outcomes.reduce((before, outcome, index) => {
    const event = { type: 'ended', token: `t${index}`, jobId: `job-${index}`, outcome } as const;
    return nextBreakerState(before, event, { failures, now: 0 });
  }, state);
}

const many = (count: number, outcome: Outcome) => Array.from({ length: count }, () => outcome);

describe('the breaker', () => {
  it.each<[string, 'open' | 'closed', Outcome[]]>([
    ['three failures of one kind after a success', 'open', [done, full(), full(), full()]],
    [
      'paths, numbers, IDs and quoted words differ',
      'open',
      [done, full('/a/b'), full('/c'), full('7')],
    ],
    ['two failures', 'closed', [done, full(), full()]],
    ['a success between', 'closed', [done, full(), full(), done, full(), full()]],
    ['different errors', 'closed', [done, full(), fail('no mount'), full(), fail('no mount')]],
    ['no success before', 'closed', many(11, full())],
    ['no success, but many failures', 'open', many(12, full())],
    [
      'inputs that the schema refuses',
      'closed',
      [done, ...many(20, fail('input.a', 'input_invalid', 'never'))],
    ],
    [
      'NonRetryableError',
      'closed',
      [done, ...many(20, fail('no such model', 'handler_error', 'never'))],
    ],
    ['timeouts', 'closed', [done, ...many(20, slow)]],
    ['cancelled jobs', 'closed', [done, ...many(20, cancelled)]],
    ['released jobs', 'closed', [done, ...many(20, released)]],
    ['other ends between', 'open', [done, full(), released, full(), cancelled, slow, full()]],
  ])('%s: %s', (_, name, outcomes) => {
    expect(judge(outcomes).name).toBe(name);
  });

  it('counts a job once', () => {
    const end = { type: 'ended', token: 't', jobId: 'same', outcome: full() } as const;
    let state = judge([done]);
    for (let time = 0; time < 10; time += 1) {
      state = nextBreakerState(state, end, { failures: 3, now: time });
    }
    expect(state.name).toBe('closed');
  });

  it('never opens with 0', () => {
    expect(judge([done, ...many(50, full())], CLOSED, 0).name).toBe('closed');
  });

  it('lets one probe after another through, with growing waits, and asks for new processes', () => {
    let state = judge([done, full(), full(), full()]);
    let now = 0;
    const waits: number[] = [];
    const replacements: number[] = [];
    for (let probe = 1; probe <= 16 && state.name === 'open'; probe += 1) {
      expect(limitTakes(state, 0, state.until - 1)).toBe(0);
      waits.push(state.until - now);
      now = state.until;
      expect(limitTakes(state, 0, now)).toBe(1);
      expect(limitTakes(state, 1, now)).toBe(0);
      const token = `probe-${probe}`;
      const options = { failures: 3, now };
      const begun = nextBreakerState(state, { type: 'began', token }, options);
      const late = { type: 'ended', token: 'begun before', jobId: 'a', outcome: full() } as const;
      expect(nextBreakerState(begun, late, options)).toBe(begun);
      state = nextBreakerState(begun, { ...late, token, outcome: fail('other') }, options);
      if (wantsNewProcess(begun, state)) replacements.push(probe);
    }
    expect(waits.slice(0, 7)).toEqual([500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    expect(replacements).toEqual([3, 6, 12]);
    expect(judge([done], state)).toEqual(judge([done]));
  });
});

/** Its timers fire a little before their time, as those of Node do. */
class HastyClock extends ManualClock {
  override after(ms: number, act: () => void): () => void {
    return super.after(ms > 3 ? ms - 3 : ms, act);
  }
}

describe('a worker whose jobs keep failing', () => {
  async function startFailing(clock = new ManualClock()) {
    const script = await startScript({ slots: 2, breakAfter: 3, clock });
    const run = async (name: string, outcome: Outcome) => {
      script.link.lastTake.answer([lease(name)]);
      await script.clock.advance(0);
      script.executor.last.finish({ outcome, output: undefined });
      await script.clock.advance(0);
    };
    await run('good', done);
    for (const name of ['a', 'b', 'c']) await run(name, full());
    return script;
  }

  it('returns what an open take brings, takes one job after a wait, and says why', async () => {
    const { clock, executor, link, worker } = await startFailing();
    expect(worker.health()).toMatchObject({
      ready: false,
      sameError: expect.stringContaining('ENOSPC'),
      reason: expect.stringContaining('ENOSPC'),
    });
    const begun = executor.executions.length;
    link.lastTake.answer([lease('d'), lease('e')]);
    await clock.advance(0);
    expect(link.reported.slice(-2)).toEqual(['d#1 released', 'e#1 released']);
    const { length: takes } = link.takes;
    await clock.advance(499);
    expect(link.takes).toHaveLength(takes);
    await clock.advance(1);
    expect(link.lastTake.request.max).toBe(1);
    link.lastTake.answer([lease('probe')]);
    await clock.advance(0);
    expect(executor.executions).toHaveLength(begun + 1);
    executor.last.complete();
    await clock.advance(0);
    expect(worker.health()).toMatchObject({ ready: true });
    expect(link.lastTake.request.max).toBe(2);
  });

  it('takes a job after the wait, though the timer fires too early', async () => {
    const { clock, link } = await startFailing(new HastyClock());
    link.lastTake.answer([]);
    await clock.advance(499);
    const { length: takes } = link.takes;
    await clock.advance(1);
    expect(link.takes).toHaveLength(takes + 1);
    expect(link.lastTake.request.max).toBe(1);
  });

  it('is replaced after three failed probes, and the next process goes on with the waits', async () => {
    const { clock, executor, link, worker } = await startFailing();
    link.lastTake.answer([]);
    for (const waitMs of [500, 1_000, 2_000]) {
      await clock.advance(waitMs);
      link.lastTake.answer([lease(`probe-${waitMs}`)]);
      await clock.advance(0);
      executor.last.finish({ outcome: full(), output: undefined });
      await clock.advance(0);
    }
    expect(await worker.ended).toMatchObject({
      recycle: { reason: expect.stringMatching(/^job after job failed .*ENOSPC/) },
    });
    const nextClock = new ManualClock();
    const until = nextClock.now() + 20_000;
    const breakerState = {
      name: 'open',
      error: 'ENOSPC',
      probes: 4,
      until,
      probe: 'lost',
    } as const;
    const next = await startScript({ breakAfter: 3, breakerState, clock: nextClock });
    expect(next.link.takes).toHaveLength(0);
    await next.clock.advance(20_000);
    expect(next.link.lastTake.request.max).toBe(1);
  });
});
