import { describe, expect, it } from 'vitest';
import { describeCause, LoadPeak } from '../../../../src/control/scaling/scaler-demand.ts';
import type {
  ScaledWorker,
  ScalerCause,
  ScalerInput,
} from '../../../../src/wire/resources/scaling.ts';
import { fc } from '../../../support/properties.ts';

const worker = (id: string, state: ScaledWorker['state']): ScaledWorker => {
  return { id, state, jobs: 0, idleSince: null, isCurrent: true };
};

const INPUT: ScalerInput = {
  ...{ now: 10_000, type: 'QUEUE', workersMin: 0, workersMax: 2, idleTimeoutMs: 5_000 },
  scaler: { type: 'QUEUE_DELAY', seconds: 4 },
  load: { waiting: 0, running: 0, oldestQueuedAt: null, peak: 0 },
  ...{ workers: [], lastStartAt: null, lastWant: null, places: null },
  crashes: { streak: 0, notBefore: 0, reason: null },
};

function say(cause: ScalerCause, input: Partial<ScalerInput>, alive = 0): string {
  return describeCause(cause, {
    ...{ input: { ...INPUT, ...input }, alive },
    ...{ want: 0, start: 0, drains: 0 },
  });
}

describe('the reason of a decision', () => {
  it('says that the workers are enough if nothing changes', () => {
    expect(say('enough', {})).toBe('no load: no worker is needed');
    expect(say('enough', {}, 1)).toBe('no load: 1 worker is enough');
    expect(say('enough', {}, 2)).toBe('no load: 2 workers are enough');
  });

  it('says whether a rolling update drains or waits', () => {
    const workers = [{ ...worker('a', 'ready'), isCurrent: false }];
    const facts = { input: { ...INPUT, workers }, alive: 1, want: 1, start: 0, drains: 0 };
    expect(describeCause('rolling', facts)).toMatch(/: waiting until replacements are ready$/);
    expect(describeCause('rolling', { ...facts, drains: 1 })).toMatch(/: draining 1$/);
  });

  it('counts failed workers in a row', () => {
    const crashes = { streak: 1, notBefore: 11_000, reason: 'it exited with code 1' };
    expect(say('crashed', { crashes })).toBe(
      'a worker failed: it exited with code 1; next start in 1 s',
    );
    expect(say('crashed', { crashes: { ...crashes, streak: 3, notBefore: 0 } })).toBe(
      '3 workers in a row failed: it exited with code 1; one worker is on trial',
    );
  });

  it('counts draining workers', () => {
    const load = { waiting: 3, running: 0, oldestQueuedAt: 9_000, peak: 3 };
    const [one, other] = [worker('a', 'draining'), worker('b', 'draining')];
    expect(say('at_maximum', { load, workersMax: 0 })).toMatch(/; the endpoint is switched off/);
    expect(say('at_maximum', { load, workers: [one] })).toMatch(/: 2, 1 of them draining$/);
    expect(say('at_maximum', { load, workers: [one, other] })).toMatch(/2 of them draining$/);
  });
});

const WINDOW_MS = 10;

describe('the peak of a load', () => {
  it('is the greatest value of the window, whatever came earlier', () => {
    const steps = fc.array(fc.record({ ms: fc.nat(6), value: fc.nat(9) }), { minLength: 1 });
    fc.assert(
      fc.property(steps, (all) => {
        const peak = new LoadPeak();
        const seen: { at: number; value: number }[] = [];
        let now = 0;
        for (const { ms, value } of all) {
          now += ms;
          seen.push({ at: now, value });
          const recent = seen.filter(({ at }) => at >= now - WINDOW_MS);
          expect(peak.note(value, now, WINDOW_MS)).toBe(
            Math.max(...recent.map((sample) => sample.value)),
          );
        }
      }),
    );
  });
});
